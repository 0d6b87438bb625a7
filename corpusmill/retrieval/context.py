"""What of the evidence the generator reads: whole pieces within a token budget, nothing twice.

Each kind of evidence has a fair share of the budget, in proportion to `SHARES`; a share that a kind does not use goes
to what is left of the others, in the order in which the method returned it. A piece that quotes its sources loses the
spans that an earlier piece already shows, and is dropped when nothing new is left; a piece whose words stand in an
earlier piece is dropped too. If not even one piece fits, the first is cut at a word to the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from corpusmill.methods.protocol import Evidence, Snapshot, Source
from corpusmill.models.tokens import estimate_tokens
from corpusmill.spans import Span, union

SHARES = {"passage": 4.0, "cluster": 2.0}  # weight of a kind's share; 1 for every other kind
_HEAD = 12  # tokens of the marks around one piece


@dataclass(frozen=True)
class Context:
    """The chosen evidence in the order of reading, and its estimated tokens."""

    evidence: tuple[Evidence, ...]
    tokens: int


def assemble(evidence: Sequence[Evidence], budget: int, snapshot: Snapshot) -> Context:
    """Choose from `evidence` (best first within its kind) what fits `budget` tokens. Deterministic."""
    pieces = _distinct(evidence, snapshot)
    costs = [estimate_tokens(piece.text) + _HEAD for piece in pieces]
    weights = {piece.kind: SHARES.get(piece.kind, 1.0) for piece in pieces}
    total = sum(weights.values())
    left = {kind: budget * weight / total for kind, weight in weights.items()}
    taken: set[int] = set()
    for i, piece in enumerate(pieces):
        if costs[i] <= left[piece.kind]:
            left[piece.kind] -= costs[i]
            taken.add(i)
    spare = budget - sum(costs[i] for i in taken)
    for i in range(len(pieces)):
        if i not in taken and costs[i] <= spare:
            spare -= costs[i]
            taken.add(i)
    if not taken and pieces:
        first = replace(pieces[0], text=_cut(pieces[0].text, budget - _HEAD))
        return Context((first,), min(budget, estimate_tokens(first.text) + _HEAD))
    return Context(tuple(pieces[i] for i in sorted(taken)), sum(costs[i] for i in taken))


def _distinct(evidence: Sequence[Evidence], snapshot: Snapshot) -> list[Evidence]:
    shown: dict[str, list[Span]] = {}
    words: list[str] = []
    kept: list[Evidence] = []
    for piece in evidence:
        verbatim = quotes_sources(piece, snapshot)
        own = _uncovered(piece, shown, snapshot) if verbatim else piece
        if own is None or not own.text.strip():
            continue
        plain = " ".join(own.text.split()).casefold()
        if any(plain in other for other in words):
            continue
        words.append(plain)
        if verbatim:
            for source in own.sources:
                shown[source.text_hash] = union([*shown.get(source.text_hash, []), source.span])
        kept.append(own)
    return kept


def quotes_sources(piece: Evidence, snapshot: Snapshot) -> bool:
    """Whether the evidence's text is exactly its source spans, joined by line ends."""
    if not piece.sources or sum(s.span.end - s.span.start for s in piece.sources) > len(piece.text) + 1:
        return False
    return piece.text == spans_text(piece.sources, snapshot)


def spans_text(sources: Sequence[Source], snapshot: Snapshot) -> str:
    """The source spans' texts, one a line."""
    return "\n".join(source.span.of(snapshot.text(source.text_hash)) for source in sources)


def _uncovered(piece: Evidence, shown: dict[str, list[Span]], snapshot: Snapshot) -> Evidence | None:
    """The piece without the spans that are shown; None if all are."""
    left = tuple(
        source
        for source in piece.sources
        if not any(s.start <= source.span.start and source.span.end <= s.end for s in shown.get(source.text_hash, []))
    )
    if len(left) == len(piece.sources):
        return piece
    return replace(piece, sources=left, text=spans_text(left, snapshot)) if left else None


def _cut(text: str, budget: int) -> str:
    """The longest prefix of whole words within `budget` tokens (at least one character)."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= budget else (low, middle - 1)
    prefix = text[:low]
    space = max(prefix.rfind(" "), prefix.rfind("\n"))
    return prefix[:space] if low < len(text) and space > low // 2 else prefix
