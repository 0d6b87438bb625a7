"""What hosts say of themselves, and which of it stops a run."""

import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill import __version__
from corpusmill.errors import RunFailedError
from corpusmill.host_probe import LEAST_FREE, Expected, complaints, look, refuse_unfit
from corpusmill.settings import StoreSettings

STORE = StoreSettings().model_dump_json()
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
EXPECTED = Expected(OWN, __version__, "/nowhere", STORE)


def row(**changes: object) -> dict[str, object]:
    fit = {"host": "a", "python": OWN, "corpusmill": __version__, "problem": None, "free": LEAST_FREE, "folder": "/tmp"}
    return {**fit, **changes}


def test_this_host_is_fit(tmp_path: Path) -> None:
    refuse_unfit("Spark", [look(str(tmp_path), STORE)], EXPECTED)


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    store = StoreSettings(endpoint_url="http://127.0.0.1:9", timeout_s=1, retries=0).model_dump_json()
    found = look("s3://nobody/there", store)
    assert "does not answer" in str(found["problem"])


def test_a_host_without_the_package() -> None:
    """By value, as it travels: the module itself cannot be imported there."""
    import cloudpickle

    from corpusmill import host_probe

    cloudpickle.register_pickle_by_value(host_probe)
    try:
        sent = cloudpickle.dumps(look)
    finally:
        cloudpickle.unregister_pickle_by_value(host_probe)
    there = (
        "import sys; sys.modules['corpusmill'] = None; import cloudpickle; "
        f"print(cloudpickle.loads(bytes.fromhex('{sent.hex()}'))('/x', '{{}}')['problem'])"
    )
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, timeout=60)
    assert "corpusmill cannot be imported by" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "3.9"}, f"Python 3.9, the driver has {OWN}"),
        ({"corpusmill": "0.0.1"}, f"corpusmill 0.0.1, the driver has {__version__}"),
        ({"problem": "the index's store does not answer: 403"}, "403"),
        ({"free": LEAST_FREE - 1}, "255 MiB are free in /tmp"),
    ],
)
def test_what_stops_a_run(changes: dict[str, object], said: str) -> None:
    (told,) = complaints([row(), row(host="b", **changes), row(host="b", **changes)], EXPECTED)
    assert told.startswith("b: ") and said in told
    with pytest.raises(RunFailedError, match="1 of Ray's hosts"):
        refuse_unfit("Ray", [row(host="b", **changes)], EXPECTED)
