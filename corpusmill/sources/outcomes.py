"""What conversion comes to: a text, or an error that says whether trying again may help."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Converted:
    """A document's text. `reason` notes what was lost on the way (it is no failure), or is None."""

    text: str
    media_type: str
    title: str | None = None
    reason: str | None = None


class ConversionError(Exception):
    """A document could not be converted; the message is the reason that its row shows."""

    attempts = 1


class ConversionRefused(ConversionError):
    """Final: a password, an unsupported or broken format, too large. Trying again gives the same."""


class ConversionCrashed(ConversionError):
    """The converter's process ended without an answer."""


class ConversionTimedOut(ConversionError):
    """The converter exceeded `convert.timeout_s`."""


class ConversionOutOfMemory(ConversionError):
    """The converter exceeded `convert.memory_mb`."""
