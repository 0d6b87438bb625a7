"""The base of every typed value that is validated: immutable, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
