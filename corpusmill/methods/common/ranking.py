"""From passages to evidence, and from evidence to the passages it leads to: how methods are compared by recall."""

from collections.abc import Sequence

from corpusmill.methods.common.passages import Passage, PassageSearch
from corpusmill.methods.protocol import Evidence, Snapshot, Source


def as_evidence(passage: Passage, snapshot: Snapshot) -> Evidence:
    """A passage as evidence of kind "passage"."""
    text = passage.span.of(snapshot.text(passage.text_hash))
    return Evidence("passage", passage.chunk_id, passage.score, text, (Source(passage.text_hash, passage.span),))


def passages_of(evidence: Sequence[Evidence], search: PassageSearch) -> list[int]:
    """Rows of passages that the units lead to, best first: the rule by which a structure's recall is measured.

    A unit gives its score, at least 0.01, in equal parts to the passages its first 8 sources touch; a passage sums up
    its parts, and ties go by row. Passages that are themselves evidence come first, in their order.
    """
    given = [search.row_of(piece.id) for piece in evidence if piece.kind == "passage"]
    sums: dict[int, float] = {}
    for piece in evidence:
        if piece.kind == "passage":
            continue
        rows = {row for s in piece.sources[:8] for row in search.rows_at(s.text_hash, s.span)}
        for row in sorted(rows):
            sums[row] = sums.get(row, 0.0) + max(piece.score, 0.01) / len(rows)
    ranked = sorted(sums, key=lambda row: (-sums[row], row))
    return list(dict.fromkeys([*given, *ranked]))
