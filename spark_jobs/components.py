"""Connected components of an edge table: scipy on the driver up to a bound, GraphFrames above; one result.

Nodes are numbered in the order of their strings, so the least number of a component is its least string. The driver
takes two int64 columns: 16 bytes an edge, and about three times that while Arrow copies them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from corpusmill.errors import GraphFramesNeededError
from corpusmill.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GRAPHFRAMES_CLASS = "org.graphframes.GraphFrame"


def connected_components(
    spark: "SparkSession",
    edges: "DataFrame",
    settings: SparkSettings,
    keep: "Callable[[DataFrame], DataFrame] | None" = None,
) -> "DataFrame":
    """(node string, component string) of the nodes of `edges` (a string, b string); component = its least node.

    `keep` computes a frame once and holds its rows; by default Spark's cache holds them.

    Raises GraphFramesNeededError when there are more than `settings.pair_bound` edges and this Spark application has
    no GraphFrames.
    """
    from pyspark.sql import functions as f

    edges = edges.select("a", "b").persist()
    count = edges.count()
    large = count > settings.pair_bound
    if large and not has_graphframes(spark):
        raise GraphFramesNeededError(
            f"{count} pair edges pass the bound spark.pair_bound = {settings.pair_bound}: their components need the "
            f"package {settings.graphframes}, which this Spark application does not have"
        )
    nodes = (keep or _cached)(_numbered(edges, settings))
    numbered = (
        edges.join(nodes.withColumnsRenamed({"node": "a", "id": "src"}), "a")
        .join(nodes.withColumnsRenamed({"node": "b", "id": "dst"}), "b")
        .select("src", "dst")
    )
    labels = _by_graphframes(spark, numbered, nodes, settings) if large else _by_scipy(spark, numbered, settings)
    names = nodes.select(f.col("id").alias("least"), f.col("node").alias("component"))
    return nodes.join(labels, "id").join(names, "least").select("node", "component")


def has_graphframes(spark: "SparkSession") -> bool:
    """Whether this application's JVM has the GraphFrames classes."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    try:
        loader.loadClass(GRAPHFRAMES_CLASS)
    except Py4JJavaError as error:
        if "ClassNotFoundException" in str(error.java_exception.toString()):
            return False
        raise
    return True


def _numbered(edges: "DataFrame", settings: SparkSettings) -> "DataFrame":
    """(node, id long): ids ascend with the strings, since partitions are ranges and each is sorted.

    The numbers depend on where the ranges were cut, so they must be kept: a lost executor must not bring others.
    """
    from pyspark.sql import functions as f

    ends = edges.select(f.col("a").alias("node")).union(edges.select("b")).distinct()
    ordered = ends.repartitionByRange(settings.partitions, "node").sortWithinPartitions("node")
    return ordered.withColumn("id", f.monotonically_increasing_id())


def _cached(frame: "DataFrame") -> "DataFrame":
    frame = frame.persist()
    frame.count()
    return frame


def _by_scipy(spark: "SparkSession", numbered: "DataFrame", settings: SparkSettings) -> "DataFrame":
    import pyarrow as pa

    from corpusmill.graph.components import components
    from spark_jobs.frames import local_frame

    table = numbered.toArrow()
    ids, least = components(table.column("src").to_numpy(), table.column("dst").to_numpy())
    labels = pa.table({"id": pa.array(ids, pa.int64()), "least": pa.array(least, pa.int64())})
    return local_frame(spark, labels, settings.partitions)


def _by_graphframes(
    spark: "SparkSession", numbered: "DataFrame", nodes: "DataFrame", settings: SparkSettings
) -> "DataFrame":
    from graphframes import GraphFrame
    from pyspark.sql import functions as f

    if settings.checkpoint_dir:
        spark.sparkContext.setCheckpointDir(settings.checkpoint_dir)
    graph = GraphFrame(nodes.select("id"), numbered)
    found = graph.connectedComponents(
        algorithm="two_phase",
        broadcastThreshold=-1,
        checkpointInterval=2,
        # Without shared storage an executor that is lost meanwhile ends the run; the same command resumes it.
        use_local_checkpoints=not settings.checkpoint_dir,
    )
    groups = found.groupBy("component").agg(f.min("id").alias("least"))
    return found.join(groups, "component").select("id", "least")
