"""Settings of the method dense."""

from typing import Literal

from pydantic import Field

from corpusmill.frozen import Frozen


class DenseSettings(Frozen):
    passages: int = Field(12, ge=1)  # that a question gets
    mode: Literal["dense", "hybrid"] = "dense"


SETTINGS = DenseSettings
