"""A whole method through the public seam: chunks found by a vocabulary that is fitted once; rare terms weigh more."""

import re

import pyarrow as pa

from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.protocol import Evidence, Retrieval, Source
from corpusmill.schemas import CHUNKS, TableSpec, required
from corpusmill.spans import Span
from corpusmill.steps import BuildStep, CorpusStep, DocumentStep, MapStep, Sql, StepOutput

from .settings import SETTINGS

TERM, COUNT, WEIGHT = required("term", pa.string()), required("chunks", pa.int64()), required("weight", pa.int64())
TERMS = TableSpec("toy_terms", CHUNKS.schema.append(TERM), (*CHUNKS.key, "term"))
COUNTS = TableSpec("toy_counts", pa.schema([TERM, COUNT]), ("term",))
VOCABULARY = TableSpec("toy_vocabulary", pa.schema([TERM]), ("term",))
WEIGHTS = TableSpec("toy_weights", pa.schema([TERM, WEIGHT]), ("term",))
COUNTING = Sql(COUNTS.name, "SELECT term, COUNT(*) AS chunks FROM toy_terms GROUP BY term")


async def find_terms(text, tables, context):
    chunks = [(row, text.text[row["start"] : row["end"]].casefold()) for row in tables["chunks"].to_pylist()]
    rows = [{**row, "term": term} for row, body in chunks for term in sorted(set(re.findall(r"\w+", body)))]
    return StepOutput({"toy_terms": TERMS.table(rows)})


def fit(context):
    rows = [row for batch in context.batches("toy_counts") for row in batch.to_pylist()]
    best = sorted(rows, key=lambda row: (-row["chunks"], row["term"]))[: context.settings.most_terms]
    context.put("toy_vocabulary", VOCABULARY.table([{"term": row["term"]} for row in best]))


async def weigh(rows, context):
    known = {row["term"] for row in context.sides["toy_vocabulary"].to_pylist()}
    weights = {row["term"]: 1_000 // row["chunks"] for row in rows.to_pylist() if row["term"] in known}
    return StepOutput({"toy_weights": WEIGHTS.table([{"term": term, "weight": weights[term]} for term in weights])})


class Toy:
    name, summary, modes, settings_type = "toy", "chunks by the terms of a vocabulary", ("terms",), SETTINGS

    def plan(self, settings, dim):
        own = settings.method("toy")
        a = DocumentStep(name="toy_terms", inputs=("chunks",), outputs=(TERMS,), run=find_terms)
        b = CorpusStep(name="toy_count", inputs=("toy_terms",), outputs=(COUNTS,), ops=(COUNTING,))
        c = BuildStep(name="toy_fit", settings=own, inputs=("toy_counts",), outputs=(VOCABULARY,), pinned=True, run=fit)
        d = MapStep(name="toy_weigh", inputs=("toy_counts", "toy_vocabulary"), outputs=(WEIGHTS,), by="term", run=weigh)
        return chunk_step(settings), a, b, c, d

    def retriever(self, settings, snapshot, models):
        return Retriever(snapshot)


class Retriever:
    def __init__(self, snapshot):
        self.modes, self.default_mode, self.text = ("terms",), "terms", snapshot.text
        self.terms, self.weights = (snapshot.table(name).to_pylist() for name in ("toy_terms", "toy_weights"))

    async def retrieve(self, question, mode, scope=None):
        asked = re.findall(r"\w+", question.casefold())
        weights = {row["term"]: row["weight"] / 1_000 for row in self.weights if row["term"] in asked}
        rows = [row for row in self.terms if row["term"] in weights and (scope is None or row["text_hash"] in scope)]
        found = {row["chunk_id"]: (Source(row["text_hash"], Span(row["start"], row["end"])), []) for row in rows}
        for row in rows:
            found[row["chunk_id"]][1].append(weights[row["term"]])
        best = sorted((-sum(scores), chunk, source) for chunk, (source, scores) in found.items())[:5]
        evidence = [Evidence("passage", c, -s, of.span.of(self.text(of.text_hash)), (of,)) for s, c, of in best]
        return Retrieval(tuple(evidence))


METHOD = Toy()
