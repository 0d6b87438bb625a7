"""`corpusmill query`: a cited answer in the terminal. Starts no engine."""

from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    ConfigOption,
    IndexArgument,
    JsonOption,
    SetOption,
    SnapshotOption,
    duration,
    emit,
    load,
    number,
    out,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from corpusmill.retrieval.engine import QueryResult
    from corpusmill.settings import Settings
    from corpusmill.store.view import SnapshotView

SHOWN_EVIDENCE = 400  # characters of one piece of evidence on the terminal


def command(
    index: IndexArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In quotation marks.")],
    method: Annotated[str | None, typer.Option("--method", "-m", help="One of the index's methods.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="A retrieval mode of the method.")] = None,
    documents: Annotated[
        list[str] | None,
        typer.Option(
            "--document",
            "-d",
            metavar="PATTERN",
            help="Only documents of this id, path or URI; * stands for anything. Repeatable.",
        ),
    ] = None,
    snapshot: SnapshotOption = None,
    evidence: Annotated[bool, typer.Option("--evidence", help="Also print what the answer was made from.")] = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question with citations: each is checked to be a quote of a stored document."""
    import asyncio

    from corpusmill.errors import UsageError
    from corpusmill.store import commit
    from corpusmill.store.objects import open_store
    from corpusmill.store.view import SnapshotView

    if not _is_text(question):
        raise UsageError(f"the question is not valid UTF-8: {question[:60]!r}")
    flags = {"query.method": method, "query.mode": mode}
    store = open_store(index, load(config, assignments, flags).settings.store)
    manifest = commit.open_index(store, snapshot)
    settings = load(config, assignments, flags, manifest).settings
    result = asyncio.run(_ask(SnapshotView(store, manifest), settings, question, documents or ()))
    if json:
        emit(result.to_json())
        return
    show(result, out(), evidence)


def _is_text(question: str) -> bool:
    """Bytes of a command line that are no UTF-8 come as lone surrogates."""
    return not any("\ud800" <= ch <= "\udfff" for ch in question)


async def _ask(view: "SnapshotView", settings: "Settings", question: str, documents: "Sequence[str]") -> "QueryResult":
    from corpusmill.models.factory import build_models
    from corpusmill.models.metered import Meter
    from corpusmill.retrieval.engine import QueryEngine

    models = build_models(settings, meter=Meter())
    try:
        engine = QueryEngine(view, settings, models)
        return await engine.query(question, settings.query.method, settings.query.mode, documents)
    finally:
        await models.aclose()


def _heading(title: str) -> str:
    """A title; of a document without one, whose URI stands in, the last part."""
    return title.rstrip("/").rsplit("/", 1)[-1] if "://" in title else title


def show(result: "QueryResult", console: "Console", evidence: bool) -> None:
    """The answer, its numbered citations with the quoted text, and what it took."""
    console.print(result.answer, markup=False)
    for place, citation in enumerate(result.citations, start=1):
        console.print()
        console.print(f"[{place}] {_heading(citation.title)}", style="bold", markup=False)
        console.print(f"    “{' '.join(citation.quote.split())}”")
        console.print(
            f"    {citation.uri}, characters {citation.start}–{citation.end}, document {citation.doc_id}", style="dim"
        )
    if evidence:
        console.print("\nEvidence", style="bold")
        for item in result.evidence:
            text = " ".join(item.text.split())
            cut = text if len(text) <= SHOWN_EVIDENCE else text[:SHOWN_EVIDENCE] + " …"
            console.print(f"  {item.kind} {item.score:.3f}  {cut}")
            for source in item.sources[:3]:
                console.print(f"    {source.uri} {source.start}–{source.end}", style="dim")
    console.print()
    for note in result.notes:
        console.print(note, style="dim")
    console.print(
        f"{result.method}, {result.mode} mode, snapshot {result.snapshot}, {number(result.context_tokens)} tokens of "
        f"context, {duration(result.seconds)}",
        style="dim",
    )
