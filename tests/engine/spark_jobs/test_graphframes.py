"""Components by GraphFrames equal scipy's, in a Spark application of its own that has the package.

Runs where Spark can resolve the package's coordinates (a repository, or a local Maven folder).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.settings import SparkSettings
from tests.shared import REPOSITORY

pytestmark = pytest.mark.engine

PROGRAM = """
import json, sys
import numpy as np, pyarrow as pa
from corpusmill.graph.components import string_components
from corpusmill.settings import Settings, SparkSettings
from spark_jobs.components import connected_components
from spark_jobs.session import spark_session

conf = {"spark.jars.ivySettings": sys.argv[1]}
own = SparkSettings(partitions=2, pair_bound=0, checkpoint_dir=sys.argv[2], conf=conf)
spark = spark_session(Settings(spark=own), "graphframes", packages=own.graphframes)
rng = np.random.default_rng(3)
a, b = (np.char.zfill(rng.integers(0, 900, 500).astype(str), 5).tolist() for _ in range(2))
found = connected_components(spark, spark.createDataFrame(pa.table({"a": a, "b": b})), own).toArrow().sort_by("node")
expected = string_components(a, b)
print(json.dumps({"equal": found.select(["node", "component"]).to_pylist() == expected.to_pylist()}))
spark.stop()
"""

# Short time-outs: where no repository answers, the test must not wait for it.
IVY = """<ivysettings>
  <settings defaultResolver="all"/>
  <caches defaultCacheDir="{folder}"/>
  <timeout-constraints>
    <timeout-constraint name="short" connectionTimeout="3000" readTimeout="20000"/>
  </timeout-constraints>
  <resolvers>
    <chain name="all" returnFirst="true">
      <filesystem name="local" m2compatible="true">
        <ivy pattern="{m2}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
        <artifact pattern="{m2}/[organisation]/[module]/[revision]/[module]-[revision].[ext]"/>
      </filesystem>
      <ibiblio name="central" m2compatible="true" timeoutConstraint="short"/>
    </chain>
  </resolvers>
</ivysettings>
"""


def test_graphframes_gives_the_same_components_as_scipy(tmp_path: Path) -> None:
    ivy = tmp_path / "ivy.xml"
    ivy.write_text(IVY.format(folder=tmp_path / "cache", m2=Path.home() / ".m2" / "repository"))
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ivy), str(tmp_path / "checkpoints")],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=REPOSITORY,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    if "unresolved dependency" in ran.stderr:
        pytest.skip(f"Spark cannot resolve {SparkSettings().graphframes} here: no repository that it reaches has it")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {"equal": True}
