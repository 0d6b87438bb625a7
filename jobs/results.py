"""How a command inside a job tells its result: one marked line of the job's log, found between the other lines."""

import json

MARK = "corpusmill-result "
SETTINGS = "CORPUSMILL_SUBMITTED_SETTINGS"  # the variable that the settings travel in, as JSON


def result_line(code: int, value: object) -> str:
    return MARK + json.dumps({"exit_code": code, "value": value})


def result_of(line: str) -> tuple[int, object] | None:
    """(exit code, JSON value or None) of a marked line; None for any other line."""
    if not line.startswith(MARK):
        return None
    told = json.loads(line.removeprefix(MARK))
    return int(told["exit_code"]), told["value"]
