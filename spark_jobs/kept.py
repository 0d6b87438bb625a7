"""Frames that several operations read: computed once, their plans forgotten.

On a cluster without a checkpoint folder their rows are files in the index's store, for the length of a stage: an
executor that is lost then takes nothing with it, and no file system but the store's is needed.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.errors import StoreError
from corpusmill.run import RunSpec
from corpusmill.settings import SparkSettings
from corpusmill.store.layout import run_key, unique
from corpusmill.store.objects import ObjectStore
from corpusmill.store.tables import reading
from spark_jobs.frames import local_frame
from spark_jobs.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITTEN = pa.schema([pa.field("key", pa.string())])
_CODEC = "zstd"


@dataclass
class KeptFrames:
    """`keep` frames, `drop` what they left in the store when nothing reads them any more. `in_store`: their rows go
    there, where no checkpoint folder is set; else they stay with the executors."""

    spark: "SparkSession"
    settings: SparkSettings
    store: ObjectStore
    run: str
    in_store: bool
    _keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, spark: "SparkSession", spec: RunSpec, store: ObjectStore) -> "KeptFrames":
        return cls(spark, spec.settings.spark, store, spec.run, in_store=not is_local(spark))

    def keep(self, frame: "DataFrame") -> "DataFrame":
        if self.settings.checkpoint_dir:
            self.spark.sparkContext.setCheckpointDir(self.settings.checkpoint_dir)
            return frame.checkpoint(eager=True)
        if not self.in_store:
            return frame.localCheckpoint(eager=True)
        written = frame.mapInArrow(partial(_write, store=self.store, run=self.run), "key string").toArrow()
        keys = sorted(written.column("key").to_pylist())
        self._keys += keys
        return self._frame(keys, frame)

    def _frame(self, keys: Sequence[str], like: "DataFrame") -> "DataFrame":
        listing = local_frame(self.spark, pa.table({"key": keys}, schema=_WRITTEN), self.settings.partitions)
        return listing.mapInArrow(partial(_read, store=self.store), like.schema)

    def drop(self) -> None:
        for key in self._keys:
            with suppress(StoreError):  # garbage of a run, named like it; nothing reads it
                self.store.delete(key)
        self._keys.clear()


def _write(batches: Iterator[pa.RecordBatch], store: ObjectStore, run: str) -> Iterator[pa.RecordBatch]:
    """A partition's rows as one Arrow stream; its key, if it has rows."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    key = run_key(run, f"frames/{unique()}.arrow")
    options = pa.ipc.IpcWriteOptions(compression=_CODEC)
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        path = Path(folder) / "rows.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, first.schema, options=options) as writer:
            writer.write_batch(first)
            for batch in filled:
                writer.write_batch(batch)
        store.put_file(key, path)
    yield pa.RecordBatch.from_pydict({"key": [key]}, schema=_WRITTEN)


def _read(batches: Iterator[pa.RecordBatch], store: ObjectStore) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for key in batch.column("key").to_pylist():
            with reading(store, key), store.open(key) as source, pa.ipc.open_stream(source) as rows:
                yield from rows
