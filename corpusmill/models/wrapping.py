"""What the middlewares around a language model share."""

from corpusmill.models.contracts import Generation, InputT, LanguageModel, OutputT, Task


class ModelWrapper:
    """A language model around another: same fingerprint, since it changes how a call is made and not what is asked.

    `owned`: closing this one closes the inner one.
    """

    def __init__(self, inner: LanguageModel, *, owned: bool = True) -> None:
        self._inner = inner
        self._owned = owned

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        return await self._inner.generate(task, inputs, affinity=affinity)

    async def aclose(self) -> None:
        if self._owned:
            await self._inner.aclose()
