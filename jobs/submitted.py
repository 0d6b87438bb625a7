"""A command inside a submitted job: `python -m corpusmill_jobs.submitted index ...`, run with --json and the settings
that travel in a variable.

Its JSON value goes to the job's log as one marked line. The settings are not a file of a folder that Ray copies: such a
folder may be removed while the job runs.
"""

import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from .results import SETTINGS, result_line


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
    print(result_line(code, _value(out.getvalue())), flush=True)
    return code


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


if __name__ == "__main__":
    sys.exit(main())
