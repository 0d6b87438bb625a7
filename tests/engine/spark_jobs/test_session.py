"""A real session: what it lets others see, frames kept in the store, the look at executors, a full disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from corpusmill import __version__
from corpusmill.run import RunSpec
from corpusmill.settings import Settings, SparkSettings
from corpusmill.store.objects import open_store
from spark_jobs import probe
from spark_jobs.failures import cause, full_host
from spark_jobs.kept import KeptFrames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.engine
SETTINGS = Settings(spark=SparkSettings(partitions=3, conf={"spark.executorEnv.A_SECRET": "hush", "spark.my": "a=b c"}))


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    from spark_jobs.session import spark_session

    session = spark_session(SETTINGS, "test session")
    yield session
    session.stop()


def test_options_arrive_and_no_command_line_has_them(spark: "SparkSession") -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.executorEnv.A_SECRET") == "hush" and conf.get("spark.my") == "a=b c"
    lines = []
    for process in psutil.Process().children(recursive=True):
        try:
            lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    assert any("SparkSubmit" in line for line in lines)
    assert not any("hush" in line for line in lines)


def test_a_frame_kept_in_the_store_is_computed_once(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    store = open_store(str(tmp_path))
    kept = KeptFrames(spark, SETTINGS.spark, store, "r", in_store=True)
    frame = spark.range(0, 5000, numPartitions=7).select(
        "id",
        f.rand().alias("drawn"),
        f.array(f.col("id").cast("float"), f.lit(None).cast("float")).alias("vector"),
        f.struct(f.col("id").cast("string").alias("name"), f.lit(True).alias("flag")).alias("box"),
        f.when(f.col("id") % 2 == 0, f.lit("x")).alias("odd"),
    )
    held = kept.keep(frame)
    assert held.schema.simpleString() == frame.schema.simpleString()
    first, again = (held.toArrow().sort_by("id") for _ in range(2))
    assert first.equals(again) and first.num_rows == 5000
    assert first.column("odd").null_count == 2500
    assert len(list(store.list("runs/r/frames/"))) == 7
    kept.drop()
    assert not list(store.list("runs/r/"))


def test_a_frame_without_rows_is_kept(spark: "SparkSession", tmp_path: Path) -> None:
    kept = KeptFrames(spark, SETTINGS.spark, open_store(str(tmp_path)), "r", in_store=True)
    assert kept.keep(spark.range(3).where("id > 9")).toArrow().num_rows == 0


def test_the_look_at_executors_runs_in_each(spark: "SparkSession", tmp_path: Path) -> None:
    rows, failed = probe._looks(spark, str(tmp_path), SETTINGS.store.model_dump_json())
    assert len(rows) == 2 and failed == {}
    assert {row["corpusmill"] for row in rows} == {__version__}
    assert all(row["problem"] is None and row["free"] for row in rows)


def test_a_local_master_is_not_looked_at(spark: "SparkSession", tmp_path: Path) -> None:
    spec = RunSpec(run="r", index=str(tmp_path), source=None, source_id="s", settings=SETTINGS)
    assert list(probe.refuse_unfit_hosts(spark, spec)) == [""]


def test_a_full_disk_in_a_task_names_host_and_folder(spark: "SparkSession", tmp_path: Path) -> None:
    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open("/dev/full", "wb", buffering=0) as full:
                full.write(b"x")
            yield batch

    with pytest.raises(Exception, match="No space left") as raised:
        spark.range(3).mapInArrow(fill, "id long").toArrow()
    host = full_host(spark, raised.value)
    assert host is not None
    told = cause(raised.value, {host: "/where/scratch/is"}, host)
    assert told == ("RunFailedError", f"no space is left on {host} in /where/scratch/is")
    assert full_host(spark, ValueError("another")) is None
