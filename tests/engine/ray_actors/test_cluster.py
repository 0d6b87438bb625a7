"""A local Ray for the length of a block: what it must leave as it was."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

PROGRAM = """
import json, os, signal
from pathlib import Path
from corpusmill.settings import RaySettings, Settings
from corpusmill.temporary import OWNER, remove_orphans
from ray_actors.cluster import ray_session

seen = []
signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
def folders():
    marks = [path for path in Path("/tmp").glob("cm-ray-*/" + OWNER)]
    return [path.parent for path in marks if json.loads(path.read_text())["pid"] == os.getpid()]

with ray_session(Settings(ray=RaySettings(num_cpus=1, object_store_mb=100))):
    os.kill(os.getpid(), signal.SIGTERM)
    (folder,) = folders()
    assert folder not in remove_orphans(Path("/tmp"))
os.kill(os.getpid(), signal.SIGTERM)
assert seen == [signal.SIGTERM] * 2, seen
assert not folder.exists()
print("as it was")
"""


def test_the_handler_of_sigterm_and_the_folder_for_temporary_files_are_the_callers() -> None:
    """Ray takes the signal when it starts, and drops every handler when it ends."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "as it was\n"), done.stderr
