"""A command inside a submitted job: `python -m corpusmill_jobs.submitted index ...`, run with --json and the settings
that travel in a variable.

Its JSON value goes to the job's log as one marked line, which whoever follows the log finds between the other lines.
"""

import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

MARK = "corpusmill-result "
SETTINGS = "CORPUSMILL_SUBMITTED_SETTINGS"  # JSON, which is YAML; a folder that Ray copies is removed while a job runs


def main(arguments: list[str] | None = None) -> int:
    from .cli import app

    words = sys.argv[1:] if arguments is None else arguments
    out = io.StringIO()
    code = 0
    with tempfile.TemporaryDirectory(prefix="corpusmill-job-") as folder:
        config = Path(folder) / "settings.yaml"
        config.write_text(os.environ.get(SETTINGS, "{}"), "utf-8")
        try:
            with redirect_stdout(out):
                app([*words, "--config", str(config), "--json"], prog_name="corpusmill")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    print(MARK + json.dumps({"exit_code": code, "value": _value(out.getvalue())}), flush=True)
    return code


def result_of(line: str) -> tuple[int, object] | None:
    """(exit code, JSON value or None) of a marked line; None for any other line."""
    if not line.startswith(MARK):
        return None
    told = json.loads(line.removeprefix(MARK))
    return int(told["exit_code"]), told["value"]


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


if __name__ == "__main__":
    sys.exit(main())
