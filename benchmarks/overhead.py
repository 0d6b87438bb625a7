"""What the pipeline itself costs: real stages over real texts, a stub model of fixed latency and a stub embedder.

    python benchmarks/overhead.py --documents 500 1000 2000 4000 --calls 16 64 --latency 0.2
    python benchmarks/overhead.py --documents 500 1000 2000 4000 --calls 16 --latency 0 [--lightrag-python PATH]

Everything but the model and the embedder is what `corpusmill index` runs: Spark, builder actors on Ray, response cache,
segments, merge, indices, publish. Printed for each size: the time from the first model call to the last over its floor
calls * latency / calls in flight, and the time of every stage. `--build-only` leaves Spark out and stops after the
build. At latency 0: documents a second of the build, and the exponent of its growth over the sizes.
"""

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.stubs import read_log, stub_models
from corpusmill import __version__
from corpusmill.models.factory import embedder_dim, model_fingerprints
from corpusmill.planning import method_entries, resolved_plan, result_fingerprint, stages
from corpusmill.run import IngestResult, ProgressEvent, RunSpec
from corpusmill.settings import (
    CacheSettings,
    EmbedderSettings,
    ModelSettings,
    ModelsSettings,
    RaySettings,
    Settings,
    SparkSettings,
)
from corpusmill.steps import BuildStep, CorpusStep, MapStep
from corpusmill.store.draft import Draft
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles

if TYPE_CHECKING:
    from corpusmill_jobs.launch import SparkStages

DIM = 384
MIN_CHARS = 200  # the peer's measurement takes the same leads
DOCUMENTS_PER_CALL = 4  # in flight: while some wait for a model, others are parsed, embedded and sealed
PEER_DOCUMENTS = 400


@dataclass
class Timing:
    """One run. `first_call`/`last_call` are of the build stage, seconds since its start."""

    documents: int
    calls_in_flight: int
    latency_s: float
    stages: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    first_call: float = 0.0
    last_call: float = 0.0

    @property
    def floor(self) -> float:
        return self.calls * self.latency_s / self.calls_in_flight

    @property
    def over_floor(self) -> float:
        return (self.last_call - self.first_call) / self.floor if self.floor else math.nan

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = time.time()
        yield
        self.stages[name] = self.stages.get(name, 0.0) + time.time() - begin

    def row(self) -> dict[str, object]:
        inside = self.last_call - self.first_call
        return {
            "documents": self.documents,
            "calls_in_flight": self.calls_in_flight,
            "latency_s": self.latency_s,
            "calls": self.calls,
            "floor_s": round(self.floor, 2),
            "first_to_last_call_s": round(inside, 2),
            "over_floor": None if math.isnan(self.over_floor) else round(self.over_floor, 3),
            "documents_per_s": round(self.documents / inside, 1) if inside > 0 else None,
            "build_before_first_call_s": round(self.first_call, 2),
            "build_after_last_call_s": round(self.stages["build"] - self.last_call, 2),
            "stages_s": {name: round(seconds, 2) for name, seconds in self.stages.items()},
        }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--calls", type=int, nargs="+", default=[16, 64], help="model calls in flight")
    parser.add_argument("--latency", type=float, nargs="+", default=[0.2, 0.0], help="seconds a call")
    parser.add_argument("--builders", type=int, default=1)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--data", type=Path, help="JSON lines (gzip) with title and text; default: shared data")
    parser.add_argument("--lightrag-python", help="python of an environment with lightrag-hku, to measure beside ours")
    args = parser.parse_args(arguments)
    data = args.data or shared_folder() / "data" / "wikipedia_leads" / "en.jsonl.gz"
    for latency in args.latency:
        for calls in args.calls:
            timings = []
            for count in args.documents:
                timing = measure(read_leads(data, count), calls, latency, args.builders, args.build_only)
                timings.append(timing)
                print(json.dumps(timing.row()), flush=True)
            if latency == 0 and len(timings) > 1:
                print(json.dumps({"calls_in_flight": calls, "growth_exponent": round(growth_exponent(timings), 3)}))
    if args.lightrag_python:
        print(json.dumps(beside_lightrag(args.lightrag_python, data, args.builders, args.build_only)), flush=True)
    return 0


def shared_folder() -> Path:
    """The folder of shared data and tools: CORPUSMILL_SHARED names its `data`, else it lies beside the repository."""
    from tests.shared import shared_root

    return shared_root().parent


def read_leads(path: Path, count: int) -> list[dict[str, str]]:
    """The first `count` records of at least MIN_CHARS characters. Raises ValueError if there are fewer."""
    records: list[dict[str, str]] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if len(record["text"]) > MIN_CHARS:
                text = f"{record['title']}. {record['text']}"
                records.append({"id": str(len(records)), "title": record["title"], "text": text})
                if len(records) == count:
                    return records
    raise ValueError(f"{path} has {len(records)} records of more than {MIN_CHARS} characters, fewer than {count}")


def measure(records: Sequence[dict[str, str]], calls: int, latency_s: float, builders: int, build_only: bool) -> Timing:
    """One run in an empty index with an empty cache."""
    timing = Timing(len(records), calls, latency_s)
    with tempfile.TemporaryDirectory(prefix="corpusmill-overhead-") as folder:
        scratch = Path(folder)
        settings = Settings(
            models=ModelsSettings(default=ModelSettings(backend="openai", model="stub", retries=0)),
            embedder=EmbedderSettings(backend="hash", dim=DIM),
            cache=CacheSettings(dir=str(scratch / "cache")),
            spark=SparkSettings(partitions=4),
            ray=RaySettings(
                builders=builders,
                calls_in_flight=calls,
                documents_in_flight=max(1, DOCUMENTS_PER_CALL * calls // builders),
            ),
        )
        source = scratch / "leads.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        spec = RunSpec(
            run="overhead", index=str(scratch / "index"), source=str(source), source_id="leads", settings=settings
        )
        run_all(spec, records, timing, scratch, build_only)
    return timing


def run_all(spec: RunSpec, records: Sequence[dict[str, str]], timing: Timing, scratch: Path, build_only: bool) -> None:
    """The stages of a run, each timed."""
    from corpusmill_jobs.launch import SparkStages

    from ray_actors.builder import build
    from ray_actors.cluster import ray_session

    log = scratch / "build-calls"
    log.mkdir()
    with ExitStack() as opened:
        spark = opened.enter_context(SparkStages(spec, show))
        with timing.stage("ingest"):
            ingest = ingest_without_spark(spec, records) if build_only else ingest_with_spark(spec, spark)
        with timing.stage("ray start"):
            opened.enter_context(ray_session(spec.settings))
        begin = time.time()
        factory = stub_models(timing.latency_s, log_dir=str(log))
        with timing.stage("build"):
            draft = build(spec, ingest.draft, ingest.todo, ingest.todo_texts, show, models_factory=factory)
        first, last, timing.calls = read_log(str(log))
        timing.first_call, timing.last_call = first - begin, last - begin
        if not build_only:
            finish(spec, draft, timing, spark)


def ingest_without_spark(spec: RunSpec, records: Sequence[dict[str, str]]) -> IngestResult:
    from tests.drafts import ingested

    return ingested(spec, [record["text"] for record in records], segments=4)


def ingest_with_spark(spec: RunSpec, spark: "SparkStages") -> IngestResult:
    files = RunFiles(open_store(spec.index, spec.settings.store), spec.run)
    files.put_spec(spec)
    spark.run("ingest")
    return files.ingest()


def finish(spec: RunSpec, draft: Draft, timing: Timing, spark: "SparkStages") -> None:
    """Merge, map, index, publish."""
    from corpusmill.store.commit import publish
    from ray_actors.indexing import run_build
    from ray_actors.mapping import run_map

    store = open_store(spec.index, spec.settings.store)
    files = RunFiles(store, spec.run)
    plan = resolved_plan(spec.settings)
    for group in stages(plan):
        if not group or isinstance(group[0], CorpusStep):
            with timing.stage("merge"):
                files.put_draft(draft)
                spark.run("corpus", tuple(step.name for step in group))
                draft = files.draft()
        elif isinstance(group[0], MapStep):
            with timing.stage("map"):
                draft = run_map(spec, draft, group[0].name, show, models_factory=stub_models(timing.latency_s))
        elif isinstance(group[0], BuildStep):
            with timing.stage("index"):
                draft = run_build(spec, draft, group[0].name, show)
    models = model_fingerprints(spec.settings)
    with timing.stage("publish"):
        publish(
            store,
            draft,
            run=spec.run,
            parent=None,
            config=spec.settings.model_dump(mode="json"),
            config_fingerprint=result_fingerprint(spec.settings, plan),
            methods=method_entries(spec.settings, plan),
            models=dict(models.roles),
            embedder=models.embedder,
            dim=embedder_dim(spec.settings),
            corpusmill_version=__version__,
        )


def growth_exponent(timings: Sequence[Timing]) -> float:
    """Slope of log(seconds between first and last call) over log(documents), by least squares."""
    points = [(math.log(t.documents), math.log(t.last_call - t.first_call)) for t in timings]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def beside_lightrag(python: str, data: Path, builders: int, build_only: bool) -> dict[str, object]:
    """Documents a second of both on PEER_DOCUMENTS leads, no latency, 16 calls in flight."""
    script = shared_folder() / "tools" / "peers" / "lightrag_bench.py"
    with tempfile.TemporaryDirectory(prefix="lightrag-") as folder:
        command = [python, str(script), str(PEER_DOCUMENTS), "0", "16", str(data), folder]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peer = PEER_DOCUMENTS / float(json.loads(out.strip().splitlines()[-1])["index_s"])
    ours = measure(read_leads(data, PEER_DOCUMENTS), 16, 0.0, builders, build_only)
    spent = sum(seconds for name, seconds in ours.stages.items() if name not in ("ray start", "ingest", "merge"))
    return {
        "documents": PEER_DOCUMENTS,
        "lightrag_documents_per_s": round(peer, 2),
        "corpusmill_documents_per_s": round(PEER_DOCUMENTS / (ours.last_call - ours.first_call), 2),
        "ratio": round(PEER_DOCUMENTS / (ours.last_call - ours.first_call) / peer, 1),
        "ratio_over_ray_stages": round(PEER_DOCUMENTS / spent / peer, 1),
    }


def show(event: ProgressEvent) -> None:
    if event.message:
        print(event.message, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
