"""The command line. Results go to stdout, progress and messages to stderr. With --json a command prints one JSON value
on stdout however it ends: its result, or {"error": {type, message, exit_code}}.

Exit codes: 0 done, 1 a check found a problem, 2 usage or configuration, 3 a run failed and nothing was published,
4 budget reached (the same command resumes), 5 published with partial or quarantined documents, 130 interrupted.
"""

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from corpusmill import __version__
from corpusmill.errors import CorpusmillError, UsageError

from .commands import (
    config,
    doctor,
    documents,
    estimate,
    evaluate,
    index,
    methods,
    query,
    show,
    snapshots,
    status,
    submit,
    verify,
)
from .commands.common import emit

INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended
UNEXPECTED = 3
_JSON = "corpusmill.json"  # in a context's meta: whether the command was asked for JSON


class _Commands(TyperGroup):
    """Turns every way a command can end into a message and an exit code; tracebacks only with --debug."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before_end = args[: args.index("--")] if "--" in args else args
        ctx.meta[_JSON] = "--json" in before_end
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _tell_misuse(ctx, error)
            raise

    def invoke(self, ctx: Any) -> Any:
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except CorpusmillError as error:
            if debug:
                traceback.print_exc()
            _say(f"error: {error}")
            _tell(ctx, type(error).__name__, str(error), error.exit_code)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            _close_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt:
            message = "interrupted; sealed work is kept, the same command resumes"
            _say(message)
            _tell(ctx, "Interrupted", message, INTERRUPTED)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if _belongs_to_typer(error):
                _tell_misuse(ctx, error)
                raise
            if debug:
                traceback.print_exc()
            message = _unexpected(error, debug)
            _say(f"error: {message}")
            _tell(ctx, type(error).__name__, message, UNEXPECTED)
            raise typer.Exit(UNEXPECTED) from None


def _tell(ctx: Any, kind: str, message: str, code: int) -> None:
    """The error as the command's one JSON value, where one was asked for."""
    if ctx.meta.get(_JSON):
        try:
            emit({"error": {"type": kind, "message": message, "exit_code": code}})
        except BrokenPipeError:  # nobody reads it; the message is on stderr
            _close_stdout()


def _close_stdout() -> None:
    """After its reader has gone, or the flush at exit raises again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_misuse(ctx: Any, error: Exception) -> None:
    """A usage error of typer's, which prints it for people itself; not an exit."""
    text = getattr(error, "format_message", None)
    if text is not None:
        _tell(ctx, UsageError.__name__, text(), getattr(error, "exit_code", UsageError.exit_code))


def _belongs_to_typer(error: Exception) -> bool:
    """Usage errors and exits, which typer prints itself."""
    return type(error).__module__.split(".")[0] in {"typer", "click"}


def _unexpected(error: Exception, debug: bool) -> str:
    line = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    if debug:
        return line
    name = f"corpusmill-error-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    path = Path(tempfile.gettempdir()) / name
    try:
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
    except OSError as second:
        return f"{line} (the traceback could not be written to {path}: {second}; run again with --debug)"
    return f"{line} (traceback: {path})"


def _say(message: str) -> None:
    print(f"corpusmill: {message}", file=sys.stderr, flush=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"corpusmill {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    name="corpusmill",
    help="Mill a corpus into structured retrieval indices, and ask them questions with citations.",
    epilog="Exit codes: 0 done, 1 a check found a problem, 2 usage or configuration, 3 failed with nothing published, "
    "4 budget reached (the same command resumes), 5 published with partial or quarantined documents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("index")(index.command)
app.command("query")(query.command)
app.command("documents")(documents.command)
app.command("show")(show.command)
app.command("estimate")(estimate.command)
app.command("evaluate")(evaluate.command)
app.command("status")(status.command)
app.command("snapshots")(snapshots.command)
app.command("verify")(verify.command)
app.command("methods")(methods.command)
app.command("doctor")(doctor.command)
app.add_typer(submit.app, name="submit")
app.add_typer(config.app, name="config")


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # text of any script, whatever the terminal's encoding
    app(prog_name="corpusmill")


if __name__ == "__main__":
    main()
