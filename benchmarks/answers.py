"""How often the embedded answer holds the gold answer, and how often it keeps silent when it should.

    python benchmarks/answers.py [--questions 150] [--json]

For each question of XQuAD the evidence is its gold paragraph among four drawn at random; "silent, rightly" leaves the
gold paragraph out.
"""

import argparse
import csv
import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

from corpusmill.models.rules import answer

SETS = ("xquad_en", "xquad_zh", "xquad_hi")
SEED = 0


def shared_root() -> Path:
    return Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


def measure(name: str, count: int) -> dict[str, float]:
    folder = shared_root() / name
    corpus = {row["_id"]: row["text"] for row in map(json.loads, (folder / "corpus.jsonl").open(encoding="utf-8"))}
    queries = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    gold: dict[str, set[str]] = defaultdict(set)
    with (folder / "qrels.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            gold[row["query-id"]].add(row["corpus-id"])
    chance = random.Random(SEED)
    asked = chance.sample(queries, min(count, len(queries)))
    totals: dict[str, int] = defaultdict(int)
    for query in asked:
        wanted = gold[query["_id"]]
        others = [i for i in chance.sample(sorted(corpus), 4 + len(wanted)) if i not in wanted][:4]
        evidence = [corpus[i] for i in sorted(wanted)] + [corpus[i] for i in others]
        chance.shuffle(evidence)
        made = answer(query["text"], evidence).sentences
        holds = [any(g in sentence.text for g in query["answers"]) for sentence in made]
        totals["first sentence holds the answer"] += bool(holds) and holds[0]
        totals["a sentence holds the answer"] += any(holds)
        totals["silent, wrongly"] += not made
        totals["silent, rightly"] += not answer(query["text"], [corpus[i] for i in others]).answered
    return {key: value / len(asked) for key, value in totals.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = {name: measure(name, arguments.questions) for name in SETS}
    if arguments.json:
        print(json.dumps(report))
        return 0
    for name, figures in report.items():
        print(f"{name:10s} " + "  ".join(f"{key} {value:.2f}" for key, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
