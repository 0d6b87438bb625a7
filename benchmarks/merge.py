"""Precision and recall of the entity merge, and what a hub costs.

    python benchmarks/merge.py [--json]            quality, by threshold, embedded input and floor
    python benchmarks/merge.py --hub 100000        time and memory of one block of that many distinct texts
    python benchmarks/merge.py --recall 30000      pairs that the tables of hyperplanes join, against all pairs

Pairs of members in one block are judged; those that one canonical entity joins count as found.

musique        passages of musique_train100 are members under their title without its bracket; same title: same thing,
               "X (film)" and "X (album)": different things
homonyms       the same passages, five titles of several passages each renamed to one made-up name, in title and text
redocred       names of Re-DocRED that stand in several documents, with the sentences that mention them; entities of one
               type count as the same thing, of two types as different ones (a silver standard: no gold links exist
               across its documents); times and numbers are left out
aliases        of the gold pairs of names of one entity inside a document, how many the blocks can join at all
"""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from corpusmill.graph.forest import compatible_forest, exact_forest, quantise
from corpusmill.graph.splitting import split
from corpusmill.methods.flexstructrag.masking import without_name
from corpusmill.models.embedders import build_embedder
from corpusmill.names import normal_form
from corpusmill.settings import EmbedderSettings

SEED = 0
TAUS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.58)
FLOORS = (-1.0, 0.2, 0.3)
MADE_UP = "Xan"


@dataclass(frozen=True)
class Member:
    block: str
    truth: str
    name: str
    text: str


def shared_root() -> Path:
    return Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


def musique() -> list[dict[str, str]]:
    with (shared_root() / "musique_train100" / "corpus.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def base_title(title: str) -> str:
    return re.sub(r"\s*\([^)]*\)\s*$", "", title) or title


def titles() -> list[Member]:
    rows = [(base_title(row["title"]), row) for row in musique()]
    members = [Member(normal_form(base), row["title"], base, row["text"]) for base, row in rows]
    return _shared(members)


def homonyms(together: int = 5) -> list[Member]:
    by_title: dict[str, list[str]] = defaultdict(list)
    for row in musique():
        by_title[row["title"]].append(row["text"])
    several = sorted(title for title, texts in by_title.items() if len(texts) > 1)
    random.Random(SEED).shuffle(several)
    members = []
    for place, title in enumerate(several):
        for text in by_title[title]:
            renamed = re.sub(re.escape(base_title(title)), MADE_UP, text, flags=re.IGNORECASE)
            members.append(Member(f"group {place // together}", title, MADE_UP, renamed))
    return members


def redocred() -> tuple[list[Member], tuple[int, int]]:
    """Members, and (joinable, all) gold pairs of names within documents."""
    documents = json.loads((shared_root() / "redocred" / "dev_revised.json").read_text("utf-8"))
    members = []
    joinable = pairs = 0
    for document in documents:
        sentences = [" ".join(words) for words in document["sents"]]
        for cluster in document["vertexSet"]:
            names = sorted({mention["name"] for mention in cluster})
            for a, b in combinations(names, 2):
                pairs += 1
                joinable += normal_form(a) == normal_form(b)
            if cluster[0]["type"] in ("TIME", "NUM"):
                continue
            text = " ".join(sentences[at] for at in sorted({mention["sent_id"] for mention in cluster}))
            members += [Member(normal_form(name), cluster[0]["type"], name, text) for name in names]
    return _shared(members), (joinable, pairs)


def _shared(members: Sequence[Member]) -> list[Member]:
    """Members of blocks that have more than one."""
    blocks: dict[str, int] = defaultdict(int)
    for member in members:
        blocks[member.block] += 1
    return [member for member in members if blocks[member.block] > 1]


async def embed(texts: Sequence[str]) -> np.ndarray:
    embedder = build_embedder(EmbedderSettings())
    try:
        return await embedder.embed(texts, "passage")
    finally:
        await embedder.aclose()


def judge(members: Sequence[Member], vectors: np.ndarray, tau: float, floor: float) -> tuple[float, float]:
    """(precision, recall) of pairs within blocks."""
    blocks: dict[str, list[int]] = defaultdict(list)
    for at, member in enumerate(members):
        blocks[member.block].append(at)
    found = right = true = 0
    for places in blocks.values():
        grid = quantise(vectors[places])
        forest = exact_forest(grid, tau)
        label = split(forest.i, forest.j, forest.score, np.arange(len(places)), grid, floor).label
        for a, b in combinations(range(len(places)), 2):
            same = members[places[a]].truth == members[places[b]].truth
            joined = bool(label[a] == label[b])
            true, found, right = true + same, found + joined, right + (same and joined)
    return right / max(1, found), right / max(1, true)


def quality() -> list[dict[str, object]]:
    people, (joinable, pairs) = redocred()
    rows: list[dict[str, object]] = [{"set": "aliases", "joinable": joinable, "pairs": pairs}]
    for name, members in (("musique", titles()), ("homonyms", homonyms()), ("redocred", people)):
        for given in ("name and text", "text without name"):
            masked = given == "text without name"
            inputs = [without_name(m.text, m.name) if masked else f"{m.name}\n{m.text}" for m in members]
            vectors = asyncio.run(embed(inputs))
            for floor in FLOORS:
                for tau in TAUS:
                    precision, recall = judge(members, vectors, tau, floor)
                    row = {"set": name, "input": given, "floor": floor, "tau": tau}
                    rows.append({**row, "members": len(members), "precision": precision, "recall": recall})
    return rows


def show(rows: Sequence[dict[str, object]]) -> None:
    aliases, *rest = rows
    print(f"aliases: {aliases['joinable']} of {aliases['pairs']} gold pairs of names share a normal form")
    print("precision / recall by threshold (floor -1: no split)")
    print(f"{'':42}" + "".join(f"{tau:>12}" for tau in TAUS))
    lines: dict[str, list[str]] = defaultdict(list)
    for row in rest:
        line = f"{row['set']:9} {row['input']:17} floor {row['floor']:4} n {row['members']}"
        lines[line].append(f"{row['precision']:.2f} / {row['recall']:.2f}")
    for line, cells in lines.items():
        print(f"{line:42}" + "".join(f"{cell:>12}" for cell in cells))


def spread(count: int, groups: int, noise: float) -> np.ndarray:
    """Unit vectors around some centres, float32 [count, 384]."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(size=(groups, 384)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = centres[rng.integers(groups, size=count)]
    vectors += noise * rng.normal(size=(count, 384)).astype(np.float32) / np.sqrt(384).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def hub(count: int) -> None:
    vectors = spread(count, max(1, count // 500), 0.7)
    ids = [f"{k:08x}" for k in range(count)]
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    edges = compatible_forest(vectors, ids, 0.58)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime
    grown = (after.ru_maxrss - before.ru_maxrss) / 1024
    print(
        f"{count} distinct texts: {len(edges)} edges, {seconds:.1f} s ({cpu:.1f} s of CPU), {grown:.0f} MB more at most"
    )


def pair_recall(count: int) -> None:
    """Of the pairs that the exact forest joins, those that the bucketed forest joins too; and of its edges."""
    vectors = spread(count, max(1, count // 50), 0.8)
    ids = [f"{k:08x}" for k in range(count)]
    exact = compatible_forest(vectors, ids, 0.58, exact_max=count)
    for tables in (2, 4, 8, 16):
        found = compatible_forest(vectors, ids, 0.58, exact_max=2, tables=tables)
        kept, all_pairs = _pairs_joined(exact, found, count)
        common = len({edge[:2] for edge in exact} & {edge[:2] for edge in found}) / max(1, len(exact))
        print(f"{count} texts, {tables} tables: pair recall {kept / max(1, all_pairs):.4f}, same edges {common:.3f}")


def _pairs_joined(
    exact: Sequence[tuple[str, str, int]], found: Sequence[tuple[str, str, int]], count: int
) -> tuple[int, int]:
    from corpusmill.graph.components import component_labels

    def label(edges: Sequence[tuple[str, str, int]]) -> np.ndarray:
        a, b = (np.array([int(edge[k], 16) for edge in edges], dtype=np.int64) for k in (0, 1))
        return component_labels(a, b, count)

    def pairs(*labels: np.ndarray) -> int:
        _, sizes = np.unique(np.stack(labels), axis=1, return_counts=True)
        return int((sizes * (sizes - 1) // 2).sum())

    whole, part = label(exact), label(found)
    return pairs(whole, part), pairs(whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hub", type=int)
    parser.add_argument("--recall", type=int)
    args = parser.parse_args()
    if args.hub:
        hub(args.hub)
    elif args.recall:
        pair_recall(args.recall)
    else:
        rows = quality()
        print(json.dumps(rows)) if args.json else show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
