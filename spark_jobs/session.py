"""The Spark session of a stage."""

import os
import sys
from typing import TYPE_CHECKING

from corpusmill.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOCAL = {
    # Nothing outside this machine may connect.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A stage of seconds to minutes whose work is in Python: the optimising compiler and a parallel collector cost half
    # of a short stage's processor time and are never paid back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_session(settings: Settings, app: str, packages: str | None = None) -> "SparkSession":
    """A session for `settings.spark`; every non-default below says why. `packages`: Maven coordinates to resolve.

    `spark.conf` of the settings comes last and wins.
    """
    from pyspark.sql import SparkSession

    spark = settings.spark
    # The workers must run the driver's Python, with the packages that it sees.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(spark.master)
    options = {
        "spark.driver.memory": spark.driver_memory,
        "spark.executor.memory": spark.executor_memory,
        "spark.sql.shuffle.partitions": str(spark.partitions),
        "spark.sql.adaptive.enabled": "true",
        # Small shuffles become few tasks; reading documents names its number of partitions, which this leaves alone.
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Rows may hold whole texts: few of them travel together.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A converter's process outlives a task: workers that are kept keep it too.
        "spark.python.worker.reuse": "true",
        **(_LOCAL if spark.master.startswith("local") else {}),
        **({"spark.jars.packages": packages} if packages else {}),
        **spark.conf,
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
