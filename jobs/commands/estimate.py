"""`corpusmill estimate`: what indexing a source would take, without doing it."""

from typing import Annotated

import typer

from .common import ConfigOption, JsonOption, SetOption, emit, load, out


def command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As for `corpusmill index`.")],
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help="Indexing method; repeatable.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Documents to read; more tell better.")] = 100,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the source, read a seeded sample, and extrapolate: documents, chunks, calls, tokens, price, GPU hours."""
    from corpusmill.estimate import estimate_source

    settings = load(config, assignments, {"run.methods": method or None}).settings
    guess = estimate_source(settings, source, sample=sample)
    if json:
        emit(guess.model_dump(mode="json"))
        return
    console = out()
    for text in guess.lines():
        console.print(text)
