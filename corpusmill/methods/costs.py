"""What a method asks of models: while indexing, by its estimate of a sample document, and for one question."""

from collections.abc import Callable
from dataclasses import dataclass

from corpusmill.estimate import MethodEstimate
from corpusmill.methods.extras import method_extra
from corpusmill.methods.registry import get_method
from corpusmill.settings import Settings

SAMPLE_CHUNKS = 4


@dataclass(frozen=True)
class Costs:
    """Of one document of `document_tokens` tokens in four chunks, of a corpus, and of one question. None: not told.

    A call of an embedded rule counts as one, though it costs nothing. `corpus_calls` are at most so many whatever the
    corpus; `query_calls` at most so many, repairs and the answer aside.
    """

    document_tokens: int
    document_calls: float | None
    corpus_calls: float | None
    embedded_texts: float | None
    embeds: bool
    query_calls: int | None

    def sentence(self) -> str:
        """For people."""
        if self.document_calls is None or self.embedded_texts is None:
            indexing = f"indexing: model calls not told, {'embeds' if self.embeds else 'embeds nothing'}"
        else:
            calls = _calls(self.document_calls)
            corpus = f", at most {_calls(self.corpus_calls)} for the whole corpus" if self.corpus_calls else ""
            texts = f"{self.embedded_texts:.3g} texts embedded" if self.embeds else "nothing embedded"
            indexing = f"a document of {self.document_tokens:,} tokens: {calls}{corpus}, {texts}"
        asked = "model calls not told" if self.query_calls is None else _calls(self.query_calls)
        return f"{indexing}; a question: {asked} and the answer's"


def method_costs(name: str, settings: Settings) -> Costs:
    """The costs of one method under these settings. Loads no model. Raises UnknownMethodError."""
    size = (settings.chunk.ct_min + settings.chunk.ct_max) // 2
    sample = [[size] * SAMPLE_CHUNKS]
    extra = method_extra(name, "estimating")
    found: MethodEstimate | None = extra.estimate_calls(settings.method(name), sample) if extra is not None else None
    query: Callable[[Settings], int] | None = getattr(extra, "query_calls", None)
    return Costs(
        document_tokens=size * SAMPLE_CHUNKS,
        document_calls=None if found is None else float(sum(c.calls for c in found.calls if c.at_most is None)),
        corpus_calls=None if found is None else float(sum(c.at_most or 0.0 for c in found.calls)),
        embedded_texts=None if found is None else float(found.embedded_texts),
        embeds=any(step.embeds for step in get_method(name).plan(settings, 1)),
        query_calls=None if query is None else query(settings),
    )


def _calls(count: float | None) -> str:
    said = f"{count or 0:.3g}"
    return "no model call" if said == "0" else f"{said} model call{'' if said == '1' else 's'}"
