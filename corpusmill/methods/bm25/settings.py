"""Settings of the method bm25."""

from pydantic import Field

from corpusmill.frozen import Frozen


class Bm25Settings(Frozen):
    passages: int = Field(12, ge=1)  # that a question gets


SETTINGS = Bm25Settings
