"""What a run will cost, before it: documents, chunks, model calls, tokens, price and GPU hours.

A seeded sample of the source is converted and chunked; means are extrapolated to all documents, with the 95 % interval
that the sample's spread gives. A text that several documents share is made once, so it counts once, as far as that can
be told: of records and of objects with equal ETags by the listing, of other documents where both are in the sample.
What a method asks of its models is the method's own to say (methods/extras.py).
"""

import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict

from corpusmill.hashing import hash_text
from corpusmill.models.contracts import Role

if TYPE_CHECKING:
    from corpusmill.settings import Settings
    from corpusmill.sources.listing import Listed, Opener, Source
    from corpusmill.sources.sandbox import Sandbox

T = TypeVar("T")
TOKENS_PER_WORD = 1.3  # of a subword tokenizer for each token of the `words` tokenizer, English prose
DEFAULT_SAMPLE = 100
SAMPLING_SECONDS = 20.0  # reading stops then; the sample is in random order, so what was read stays a fair one
MOST_CHARACTERS = 4_000_000
MOST_KNOWN = 500_000  # contents of listed documents that are kept to find repeats (some 50 MB)


@dataclass(frozen=True)
class CallEstimate:
    """Calls of one task for the sampled documents. Tokens are those of all its calls together. `at_most`: the calls of
    a whole corpus, where more documents do not mean more of them."""

    task: str
    role: Role
    calls: float
    tokens_in: float
    tokens_out: float
    at_most: float | None = None


@dataclass(frozen=True)
class MethodEstimate:
    """What a method's document steps will ask for the sampled documents. `embedded_texts` are texts to embed."""

    calls: tuple[CallEstimate, ...]
    embedded_texts: float = 0.0
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceSample:
    """Sampled documents of a source. `chunk_tokens` has the token counts of the chunks of each different text that was
    read; `repeated` counts the sampled documents whose text another one of the sample has, `known_repeats` those that
    the listing told to share another's text, of which none is in the sample."""

    documents: int
    complete: bool  # False: listing stopped at its bound, there are more documents
    chunk_tokens: tuple[tuple[int, ...], ...]
    unreadable: int = 0
    repeated: int = 0
    known_repeats: int = 0
    reason: str | None = None  # why the first of the unreadable ones cannot be read

    @property
    def sampled(self) -> int:
        return len(self.chunk_tokens) + self.unreadable + self.repeated

    @property
    def population(self) -> int:
        """The documents that the sample stands for."""
        return self.documents - self.known_repeats


class TaskEstimate(BaseModel):
    """One task of a run, extrapolated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    task: str
    role: str
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float


class Estimate(BaseModel):
    """An estimate of a full build. `uncertainty` is the half width of the 95 % interval of chunks, as a fraction (None:
    too few documents to tell); calls, tokens and cost carry it too. `repeats` are documents with the text of another,
    which cost nothing. `gpu_hours` is None without a known throughput."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: int
    complete: bool = True
    sampled: int = 0
    unreadable: int = 0
    repeats: int = 0
    chunks: int = 0
    chunk_tokens: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    embedded_texts: int = 0
    cost: float = 0.0
    gpu_hours: float | None = None
    uncertainty: float | None = None
    tasks: tuple[TaskEstimate, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        more = "" if self.complete else " or more"
        spread = f" ± {self.uncertainty:.0%}" if self.uncertainty else ""
        unread = f", {self.unreadable} of them unreadable" if self.unreadable else ""
        shared = f", {self.repeats:,} of them with the text of another" if self.repeats else ""
        out = [
            f"{_counted(self.documents, 'document', more)}{shared} ({self.sampled:,} sampled{unread}), "
            f"about {_counted(self.chunks, 'chunk')}{spread}, {_counted(self.chunk_tokens, 'token')} of text"
        ]
        by_model: dict[str, list[TaskEstimate]] = {}
        for task in self.tasks:
            by_model.setdefault(task.model, []).append(task)
        for model, tasks in by_model.items():
            said = ", ".join(f"{t.task} {t.calls:,}" for t in tasks)
            tokens_in, tokens_out = sum(t.tokens_in for t in tasks), sum(t.tokens_out for t in tasks)
            cost = sum(t.cost for t in tasks)
            tokens = f"; {tokens_in:,} tokens in, {tokens_out:,} out" if tokens_in or tokens_out else ""
            price = f"; cost {cost:,.2f}" if cost else ""
            calls = sum(t.calls for t in tasks)
            out.append(f"if all is new, about {_counted(calls, 'call')} of {model}: {said}{tokens}{price}")
        if self.gpu_hours is not None:
            out.append(f"{self.gpu_hours:,.2f} GPU hours at the configured throughput")
        return out + list(self.notes)


def estimate(settings: "Settings", sample: SourceSample) -> Estimate:
    """Extrapolate a sample to its source. Pure: nothing is read and no model is loaded."""
    from corpusmill.methods.extras import method_extra

    nothing = sample.unreadable + sample.repeated
    unread = (f"unreadable, for example: {sample.reason}",) if sample.reason else ()
    per_document = [float(len(chunks)) for chunks in sample.chunk_tokens] + [0.0] * nothing
    scale = sample.population / sample.sampled if sample.sampled else 0.0
    tasks: list[TaskEstimate] = []
    notes: list[str] = []
    embedded = 0.0
    for name in settings.run.methods:
        extra = method_extra(name, "estimating")
        if extra is None:
            notes.append(f"method {name} offers no estimate of its model calls")
            continue
        found: MethodEstimate = extra.estimate_calls(settings.method(name), sample.chunk_tokens)
        embedded += found.embedded_texts * scale
        tasks += [_task(settings, name, call, scale) for call in found.calls]
        notes += found.assumptions
    return Estimate(
        documents=sample.documents,
        complete=sample.complete,
        sampled=sample.sampled,
        unreadable=sample.unreadable,
        repeats=sample.known_repeats + round(sample.repeated * scale),
        chunks=round(sum(per_document) * scale),
        chunk_tokens=round(sum(map(sum, sample.chunk_tokens)) * scale),
        calls=sum(t.calls for t in tasks),
        tokens_in=sum(t.tokens_in for t in tasks),
        tokens_out=sum(t.tokens_out for t in tasks),
        embedded_texts=round(embedded),
        cost=sum(t.cost for t in tasks),
        gpu_hours=_gpu_hours(settings, tasks),
        uncertainty=half_width(per_document, sample.population),
        tasks=tuple(tasks),
        notes=(*unread, *notes),
    )


def _counted(number: int, noun: str, more: str = "") -> str:
    """`1 chunk`, `2,000 or more documents`."""
    return f"{number:,}{more} {noun}{'' if number == 1 and not more else 's'}"


def half_width(values: Sequence[float], population: int) -> float | None:
    """Half width of the 95 % interval of a mean, as a fraction of it; 0 when all are seen, None when it cannot be told.

    Normal approximation with the finite population correction.
    """
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    if n >= population and n:
        return 0.0
    if n < 2 or mean == 0:
        return None
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    return 1.96 * math.sqrt(variance / n * (1 - n / population)) / mean


def _task(settings: "Settings", method: str, call: CallEstimate, scale: float) -> TaskEstimate:
    model = settings.models.of(call.role)
    free = model.backend == "embedded"
    if call.at_most is not None and call.calls:
        scale = min(scale, call.at_most / call.calls)
    subwords = TOKENS_PER_WORD if settings.chunk.tokenizer == "words" else 1.0
    tokens_in = 0 if free else round(call.tokens_in * scale * subwords)
    tokens_out = 0 if free else round(call.tokens_out * scale * subwords)
    return TaskEstimate(
        method=method,
        task=call.task,
        role=call.role,
        model="the embedded rules" if free else str(model.model),
        calls=round(call.calls * scale),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=(tokens_in * model.price_in + tokens_out * model.price_out) / 1e6,
    )


def _gpu_hours(settings: "Settings", tasks: Sequence[TaskEstimate]) -> float | None:
    hours, known = 0.0, False
    for task in tasks:
        rate = settings.models.of(task.role).gpu_tokens_per_second  # type: ignore[arg-type]
        if rate is not None:
            known = True
            hours += (task.tokens_in + task.tokens_out) / rate / 3600
    return hours if known else None


def estimate_source(
    settings: "Settings", source: str, *, sample: int = DEFAULT_SAMPLE, most_listed: int | None = None
) -> Estimate:
    """List a source, read and chunk a seeded sample of it, and extrapolate.

    At most `most_listed` entries are listed (None: all) and SAMPLING_SECONDS spent on reading. Raises SourceError if
    there is no such source, UnknownMethodError.
    """
    from corpusmill.sources.listing import Source

    parsed = Source.parse(source, settings)
    listing = Listing(parsed.listing(settings), parsed.kind in ("prefix", "object"), most_listed)
    chosen = drawn(listing, sample, settings.run.seed)
    read = _read(settings, parsed, chosen)
    found = SourceSample(
        documents=listing.listed,
        complete=listing.complete,
        chunk_tokens=tuple(read.sizes),
        unreadable=read.unreadable,
        repeated=read.repeated,
        known_repeats=listing.repeats,
        reason=read.reason,
    )
    return estimate(settings, found)


@dataclass
class Listing:
    """The documents of a source without those whose content an earlier one has, as far as the listing tells; one pass.

    `tagged`: equal versions of equal size are equal bytes (ETags). At most `most` are listed.
    """

    items: Iterable["Listed"]
    tagged: bool = False
    most: int | None = None
    listed: int = 0
    complete: bool = True
    repeats: int = 0
    _known: set[int] = field(default_factory=set)

    def __iter__(self) -> Iterator["Listed"]:
        for item in self.items:
            if self.most is not None and self.listed >= self.most:
                self.complete = False
                return
            self.listed += 1
            if self._is_repeat(item):
                self.repeats += 1
            else:
                yield item

    def _is_repeat(self, item: "Listed") -> bool:
        if item.record is not None:
            content = item.record.text
        elif self.tagged and item.problem is None:
            content = f"{item.size} {item.version}"
        else:
            return False
        key = int(hash_text(content)[:16], 16)  # 64 bits: one wrong hit in some 10^8 corpora of this size
        if key in self._known:
            return True
        if len(self._known) < MOST_KNOWN:
            self._known.add(key)
        return False


def drawn(items: Iterable[T], size: int, seed: int) -> list[T]:
    """`size` of the items drawn without replacement, in random order. One pass, memory for the sample alone; the same
    seed and items give the same draw."""
    chance = random.Random(seed)
    kept: list[T] = []
    for seen, item in enumerate(items, start=1):
        if len(kept) < size:
            kept.insert(chance.randrange(len(kept) + 1), item)
        elif (place := chance.randrange(seen)) < size:
            kept[place] = item
    return kept


@dataclass
class _Read:
    """Chunk sizes of the different texts that could be read, how many documents could not and why the first of them,
    and how many repeat a text."""

    sizes: list[tuple[int, ...]] = field(default_factory=list)
    unreadable: int = 0
    repeated: int = 0
    reason: str | None = None


def _read(settings: "Settings", source: "Source", chosen: Sequence["Listed"]) -> _Read:
    """Read and chunk documents. Stops early when its time is up."""
    from corpusmill.errors import StoreUnavailableError
    from corpusmill.sources.outcomes import ConversionError
    from corpusmill.sources.sandbox import Sandbox

    limits = settings.convert.model_copy(update={"attempts": 1, "timeout_s": min(settings.convert.timeout_s, 10.0)})
    hasty = settings.model_copy(update={"convert": limits})
    read, known = _Read(), set[str]()
    started = time.monotonic()
    with Sandbox(limits) as sandbox:
        opener = source.opener(settings)
        for item in chosen:
            try:
                text = _text(hasty, item, opener, sandbox)
            except (ConversionError, OSError, StoreUnavailableError) as error:
                read.unreadable += 1
                read.reason = read.reason or f"{item.place or item.path}: {error}"
            else:
                if (key := hash_text(text)) in known:
                    read.repeated += 1
                else:
                    known.add(key)
                    read.sizes.append(_sizes(settings, text))
            if time.monotonic() - started > SAMPLING_SECONDS:
                break
    return read


def _text(settings: "Settings", item: "Listed", opener: "Opener", sandbox: "Sandbox") -> str:
    """The text of a listed document. Raises ConversionError where it would be quarantined, OSError,
    StoreUnavailableError."""
    from corpusmill.sources.convert import convert
    from corpusmill.sources.outcomes import ConversionError

    if item.record is not None:
        return item.record.text
    if item.problem is not None or item.location is None:
        raise ConversionError(item.problem or "it has no place")
    if (item.size or 0) > settings.source.max_bytes:
        raise ConversionError(f"{item.size:,} bytes, source.max_bytes is {settings.source.max_bytes:,}")
    return convert(opener(item.location), item.path, settings, sandbox).text


def _sizes(settings: "Settings", text: str) -> tuple[int, ...]:
    """Chunk sizes of a text; a very long one is told by its beginning."""
    sizes = chunk_sizes(settings, text[:MOST_CHARACTERS])
    repeats = max(1, round(len(text) / MOST_CHARACTERS)) if len(text) > MOST_CHARACTERS else 1
    return sizes * repeats


def chunk_sizes(settings: "Settings", text: str) -> tuple[int, ...]:
    """Token counts of the chunks of one text."""
    from corpusmill.segmentation.partition import partition
    from corpusmill.segmentation.tokens import get_tokenizer

    chunk = settings.chunk
    return tuple(piece.tokens for piece in partition(text, get_tokenizer(chunk.tokenizer), chunk.ct_min, chunk.ct_max))
