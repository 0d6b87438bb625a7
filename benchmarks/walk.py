"""Does the gain of the walk (flexstructrag/diffusion.py) hold on questions that did not choose its parameters?

Used by `python benchmarks/retrieval.py --tune`. For every question of a set the recall is taken under each setting of
a grid. Then, over seeded halvings of the questions, the setting that is best on one half is measured on the other, and
the setting that is best on one set on the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from corpusmill.methods.flexstructrag import diffusion, retriever
from corpusmill.retrieval.tasks import shorten

if TYPE_CHECKING:
    from benchmarks.retrieval import DataSet, Rows
    from corpusmill.methods.flexstructrag.retriever import Found

MOST = 200  # questions of a set
SPLITS = 50
SEED = 0


class Walk(NamedTuple):
    """The parameters that were chosen by looking at questions."""

    seeds: int
    restart: float
    passages: float
    same_name: float
    head: int


GRID = tuple(
    Walk(*values) for values in product((3, 5, 10), (0.3, 0.5, 0.7), (0.1, 0.2, 0.4), (0.0, 0.5, 1.0), (0, 1, 2))
)


def shipped() -> Walk:
    return Walk(
        diffusion.SEED_STATEMENTS,
        diffusion.RESTART,
        diffusion.PASSAGE_MASS,
        diffusion.SAME_NAME,
        retriever.KEPT_HEAD,
    )


@contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """The module's parameters set to those of `walk`."""
    names = ("SEED_STATEMENTS", "RESTART", "PASSAGE_MASS", "SAME_NAME")
    before = {name: getattr(diffusion, name) for name in names}
    try:
        for name, value in zip(names, walk[:4], strict=True):
            setattr(diffusion, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(diffusion, name, value)


@dataclass(frozen=True)
class Recalls:
    """Recall@5 of each question: under each setting of GRID, and by `fused` and `dense` passages alone."""

    walks: np.ndarray  # [len(GRID), questions]
    fused: np.ndarray
    dense: np.ndarray


async def recalls(rows: "Rows", data: "DataSet", top: int) -> Recalls:
    chosen = data.questions[:MOST]
    walks = np.zeros((len(GRID), len(chosen)))
    fused, dense = np.zeros(len(chosen)), np.zeros(len(chosen))
    for at, (question_id, question) in enumerate(chosen):
        gold = data.gold[question_id]

        def recall(ranked: Sequence[int], gold: set[str] = gold) -> float:
            found = set().union(*(rows.documents_of[row] for row in ranked[:top])) & gold
            return len(found) / len(gold)

        found = await rows.shipped.find(question, "hybrid")
        scores = rows.search.scores(shorten(question), found.vector)
        best = sorted(scores, key=lambda row: (-scores[row], row))
        fused[at] = recall(best)
        dense[at] = recall((await rows.dense(question))[0])
        walks[:, at] = [recall(ranked) for ranked in _ranked(rows, found, scores, best, top)]
    return Recalls(walks, fused, dense)


def _ranked(
    rows: "Rows", found: "Found", scores: Mapping[int, float], best: list[int], top: int
) -> Iterator[list[int]]:
    """The first passages under each setting of GRID, as FlexRetriever.fill ranks them."""
    seeds = [(unit, score) for _, unit, score in found.nearest]
    known: dict[tuple[float, ...], list[int]] = {}
    for walk in GRID:
        if found.vector is None:
            yield best
            continue
        if walk[:4] not in known:
            with walking(walk):
                shares = rows.shipped.graph.rank(seeds, found.entities, scores)
            known[walk[:4]] = sorted(shares, key=lambda row: (-shares[row], row))[: top + max(w.head for w in GRID)]
        head = best[: walk.head]
        rest = [row for row in known[walk[:4]] if row not in head]
        yield [*head, *rest] if rest else best


def held_out(made: Recalls) -> float:
    """Mean recall on one half of the setting that is best on the other, over seeded halvings."""
    chance = np.random.default_rng(SEED)
    count = made.walks.shape[1]
    found = []
    for _ in range(SPLITS):
        order = chance.permutation(count)
        for own, other in ((order[: count // 2], order[count // 2 :]), (order[count // 2 :], order[: count // 2])):
            found.append(made.walks[_best(made.walks[:, own]), other].mean())
    return float(np.mean(found))


def _best(walks: np.ndarray) -> int:
    """The setting with the best mean; of equal ones the first."""
    return int(np.round(walks.mean(axis=1), 9).argmax())


def show(made: Mapping[str, Recalls]) -> None:
    place = GRID.index(shipped())
    print(f"\nthe walk as shipped, {dict(shipped()._asdict())}, in a grid of {len(GRID)}; {MOST} questions a set")
    print(f"  {'':17} questions  dense  fused  shipped  best on all  best on the other half")
    for name, own in made.items():
        means = own.walks.mean(axis=1)
        print(
            f"  {name:17} {own.walks.shape[1]:9}  {own.dense.mean():.3f}  {own.fused.mean():.3f}  {means[place]:7.3f}"
            f"  {means.max():11.3f}  {held_out(own):22.3f}"
        )
    print("\nchosen on the set of the line, measured on the set of the column")
    print(f"  {'':17}" + "".join(f"{name:>17}" for name in made) + "   chosen")
    for name, own in made.items():
        at = _best(own.walks)
        cells = "".join(f"{other.walks[at].mean():17.3f}" for other in made.values())
        print(f"  {name:17}{cells}   {tuple(GRID[at])}")
