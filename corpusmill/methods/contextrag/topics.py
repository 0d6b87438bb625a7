"""Cluster summaries as virtual chunks (step 6), and the sentences that stand for questions in calibration (step 7)."""

from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.errors import ModelOutputError
from corpusmill.frozen import Frozen
from corpusmill.hashing import content_id
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.contextrag.tables import (
    MEMBERSHIPS,
    PROBES,
    TOPICS,
    probe_vectors_table,
    summaries_table,
)
from corpusmill.methods.contextrag.tasks import SUMMARISE_TOPIC, TopicInput
from corpusmill.models.tokens import estimate_tokens
from corpusmill.segmentation.sentences import sentences
from corpusmill.steps import CorpusStep, MapStep, Sql, StepContext, StepOutput

if TYPE_CHECKING:
    from corpusmill.settings import Settings

MEMBERS_MAX = 24  # chunks of a cluster that may reach the model; the token limit usually stops earlier
LEAST_MEMBERS = 2  # a cluster of one chunk says what its chunk says
PROBE_CHARS = 300


class TopicSettings(Frozen):
    summaries: int
    probes: int


class SummarySettings(Frozen):
    tokens: int
    dim: int


class ProbeSettings(Frozen):
    dim: int


def topic_step(own: ContextSettings) -> CorpusStep:
    """`context_topics` and `context_probes`: what is read of texts, chosen by memberships and ids alone."""
    settings = TopicSettings(summaries=own.summaries, probes=own.probes)
    return CorpusStep(
        name="context_topics",
        version=1,
        settings=settings,
        inputs=(MEMBERSHIPS.name, "chunks", "texts"),
        outputs=(TOPICS, PROBES),
        ops=(*_topics(settings.summaries), _probes(settings.probes)),
    )


def _topics(most: int) -> tuple[Sql, ...]:
    return (
        Sql(
            "largest",
            f"""SELECT topic, members FROM (
                  SELECT topic, members, row_number() OVER (ORDER BY members DESC, topic) AS place FROM (
                    SELECT codes[0] AS topic, count(*) AS members FROM context_memberships GROUP BY codes[0]))
                WHERE place <= {most} AND members >= {LEAST_MEMBERS}""",
        ),
        Sql(
            "nearest",
            f"""SELECT topic, members, text_hash, chunk_id, place FROM (
                  SELECT l.topic, l.members, m.text_hash, m.chunk_id,
                         row_number() OVER (PARTITION BY l.topic ORDER BY m.distances_e4[0], m.chunk_id) AS place
                  FROM context_memberships m JOIN largest l ON m.codes[0] = l.topic)
                WHERE place <= {MEMBERS_MAX}""",
        ),
        Sql(
            "context_topics",
            """SELECT n.topic, CAST(n.place AS INT) AS place, n.members, n.text_hash, n.chunk_id, c.start, c.end,
                      substring(t.text, CAST(c.start + 1 AS INT), CAST(c.end - c.start AS INT)) AS text
               FROM nearest n
               JOIN chunks c ON c.text_hash = n.text_hash AND c.chunk_id = n.chunk_id
               JOIN texts t ON t.text_hash = n.text_hash""",
        ),
    )


def _probes(most: int) -> Sql:
    """Chunks with the least ids: hashes of contents, so a uniform sample."""
    return Sql(
        "context_probes",
        f"""SELECT c.chunk_id,
                   substring(t.text, CAST(c.start + 1 AS INT), CAST(c.end - c.start AS INT)) AS text
            FROM (SELECT text_hash, chunk_id, start, end FROM chunks ORDER BY chunk_id LIMIT {most}) c
            JOIN texts t ON t.text_hash = c.text_hash""",
    )


def summary_step(own: ContextSettings, dim: int) -> MapStep:
    """`context_topics` -> `context_summaries`: one call for each cluster."""
    return MapStep(
        name="context_summaries",
        version=1,
        settings=SummarySettings(tokens=own.summary_tokens, dim=dim),
        inputs=(TOPICS.name,),
        outputs=(summaries_table(dim),),
        roles=(SUMMARISE_TOPIC.role,),
        task_fingerprints=(SUMMARISE_TOPIC.fingerprint,),
        embeds=True,
        by="topic",
        run=summarise,
    )


async def summarise(rows: pa.Table, ctx: StepContext) -> StepOutput:
    """`context_summaries` of the topics in `rows`. Where the model gives no valid summary the rule's stands in."""
    own = ctx.settings
    assert isinstance(own, SummarySettings)
    topics: dict[int, list[dict[str, object]]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: (row["topic"], row["place"])):
        topics.setdefault(row["topic"], []).append(row)
    model = ctx.models.language_model(SUMMARISE_TOPIC.role)
    failures: list[str] = []

    async def describe(topic: int) -> dict[str, object]:
        members = within(topics[topic], own.tokens)
        inputs = TopicInput(passages=tuple(str(row["text"]) for row in members))
        try:
            made = (await model.generate(SUMMARISE_TOPIC, inputs)).value
        except ModelOutputError as error:
            failures.append(f"cluster {topic}: {error}")
            made = SUMMARISE_TOPIC.rule(inputs)
        text = " ".join(made.summary.split())
        return {
            "summary_id": content_id("summary", text, *(str(row["chunk_id"]) for row in members)),
            "topic": topic,
            "members": members[0]["members"],
            "text": text,
            "sources": [{name: row[name] for name in ("text_hash", "chunk_id", "start", "end")} for row in members],
        }

    made = await ordered_map(describe, sorted(topics))
    table = summaries_table(own.dim)
    if not made:
        return StepOutput({table.name: table.empty()})
    vectors = await ctx.models.embedder.embed([str(row["text"]) for row in made], "passage")
    whole = table.table([row | {"vector": vector} for row, vector in zip(made, vectors, strict=True)])
    return StepOutput({table.name: whole}, tuple(sorted(failures)))


def within(members: list[dict[str, object]], tokens: int) -> list[dict[str, object]]:
    """The first members whose texts together have at most `tokens` tokens; the first one whatever it has."""
    kept, left = members[:1], tokens - estimate_tokens(str(members[0]["text"]))
    for row in members[1:]:
        left -= estimate_tokens(str(row["text"]))
        if left < 0:
            break
        kept.append(row)
    return kept


def probe_step(own: ContextSettings, dim: int) -> MapStep:
    """`context_probes` -> `context_probe_vectors`: a sentence of each, embedded as a question is."""
    return MapStep(
        name="context_probe_vectors",
        version=1,
        settings=ProbeSettings(dim=dim),
        inputs=(PROBES.name,),
        outputs=(probe_vectors_table(dim),),
        embeds=True,
        by="chunk_id",
        run=embed_probes,
    )


async def embed_probes(rows: pa.Table, ctx: StepContext) -> StepOutput:
    own = ctx.settings
    assert isinstance(own, ProbeSettings)
    table = probe_vectors_table(own.dim)
    found = [(str(row["chunk_id"]), probe_of(str(row["text"]))) for row in rows.to_pylist()]
    if not found:
        return StepOutput({table.name: table.empty()})
    vectors = await ctx.models.embedder.embed([text for _, text in found], "query")
    made: list[dict[str, object]] = [
        {"chunk_id": chunk_id, "text": text, "vector": vector}
        for (chunk_id, text), vector in zip(found, vectors, strict=True)
    ]
    return StepOutput({table.name: table.table(made)})


def probe_of(text: str) -> str:
    """The longest sentence of a chunk, cut to the length of a long question; the first of equals."""
    spans = sentences(text)
    longest = max(spans, key=lambda span: span.end - span.start, default=None)
    return (longest.of(text) if longest is not None else text)[:PROBE_CHARS]


def topic_settings(settings: "Settings") -> ContextSettings:
    own = settings.method("contextrag")
    assert isinstance(own, ContextSettings)
    return own
