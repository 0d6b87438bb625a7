"""Prompts are versioned files inside a package, read once and hashed into the fingerprint of their task.

A prompt file is Markdown:

    ---
    name: extract
    version: 1
    ---
    # System
    The instruction. It has no slots, so that it is the token prefix which all calls of the task share.
    # User
    Text with $slots ($$ is a dollar sign). What changes least stands first.

Only the file's own `$slots` are replaced, in one pass: a `$` in a document's text is never taken for a slot.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from string import Template

import yaml

from corpusmill.models.contracts import Prompt

_LAYOUT = re.compile(r"\A---\n(?P<head>.*?)\n---\n\s*# System\n(?P<system>.*?)\n# User\n(?P<user>.*)\Z", re.DOTALL)


@cache
def load_prompt(package: str, name: str) -> Prompt:
    """The prompt `name` of `package`: `<package>/prompts/<name>.md`, else `<package>/<name>.md`.

    Raises FileNotFoundError with the places looked at, ValueError on a file that does not have the layout above.
    """
    root = files(package)
    places = [root / "prompts" / f"{name}.md", root / f"{name}.md"]
    for place in places:
        if place.is_file():
            return parse_prompt(place.read_text("utf-8"), name, str(place))
    raise FileNotFoundError(f"no prompt {name!r} in {package!r}; looked at {', '.join(str(p) for p in places)}")


def parse_prompt(text: str, name: str, place: str) -> Prompt:
    """A prompt from the text of its file. Raises ValueError naming `place` and what is wrong."""
    found = _LAYOUT.match(text.replace("\r\n", "\n"))
    if found is None:
        raise ValueError(f"{place}: a prompt has a front matter, then the lines `# System` and `# User`")
    head = yaml.safe_load(found["head"])
    if not isinstance(head, dict) or set(head) != {"name", "version"}:
        raise ValueError(f"{place}: the front matter needs exactly `name` and `version`, got {head!r}")
    if head["name"] != name:
        raise ValueError(f"{place}: the front matter names the prompt {head['name']!r}, the file {name!r}")
    if not isinstance(head["version"], int):
        raise ValueError(f"{place}: version must be a whole number, got {head['version']!r}")
    system, user = found["system"].strip(), found["user"].strip()
    for part, body in (("System", system), ("User", user)):
        if not Template(body).is_valid():
            raise ValueError(f"{place}: a lone `$` in the part {part}; write `$$` for a dollar sign")
    if slots := Template(system).get_identifiers():
        raise ValueError(f"{place}: the part System is a shared prefix and has no slots, found ${slots[0]}")
    return Prompt(name=name, version=head["version"], system=system, user=user)


def render_prompt(prompt: Prompt, values: Mapping[str, str]) -> tuple[str, str]:
    """(system, user) with every slot filled. Raises ValueError naming a slot that has no value."""
    try:
        return Template(prompt.system).substitute(values), Template(prompt.user).substitute(values)
    except KeyError as missing:
        raise ValueError(
            f"prompt {prompt.name!r} has a slot ${missing.args[0]} without a value; given: {sorted(values)}"
        ) from missing


def marks(*names: str) -> Callable[[str], str]:
    """A function that makes text unable to open or close any of the tags `names`, which a prompt puts around data."""
    opening = re.compile(rf"<(?=/?(?:{'|'.join(map(re.escape, names))})\b)", re.IGNORECASE)
    return lambda text: opening.sub("‹", text)
