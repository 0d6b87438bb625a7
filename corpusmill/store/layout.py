"""Where each thing lies under the index root. Only this module builds keys."""

from uuid import uuid4


def snapshot_key(number: int) -> str:
    return f"snapshots/{number:08d}.json"


def ref_key(name: str) -> str:
    return f"refs/{name}.json"


def segment_prefix(step_fingerprint: str) -> str:
    return f"segments/{step_fingerprint}/"


def segment_key(step_fingerprint: str, segment: str, table: str) -> str:
    return f"segments/{step_fingerprint}/{segment}/{table}.parquet"


def segment_index_key(step_fingerprint: str, segment: str) -> str:
    """Written last: a segment without it does not exist."""
    return f"segments/{step_fingerprint}/{segment}/_index.parquet"


def data_key(run: str, table: str) -> str:
    """A fresh, never reused key for one file of a snapshot table."""
    return f"data/{run}/{table}-{unique()}.parquet"


def index_file_key(run: str, step: str, name: str) -> str:
    return f"data/{run}/{step}-{unique()}/{name}"


def run_key(run: str, name: str) -> str:
    return f"runs/{run}/{name}"


def cache_key(model_fingerprint: str) -> str:
    return f"cache/{model_fingerprint}/{unique()}.parquet"


def cache_prefix(model_fingerprint: str) -> str:
    return f"cache/{model_fingerprint}/"


def unique() -> str:
    return uuid4().hex
