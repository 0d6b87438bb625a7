"""Ray stages of a run: in this process on a Ray that it joins or starts, or as jobs of a cluster elsewhere."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from corpusmill.errors import RunFailedError, UsageError
from corpusmill.processes import named_variables
from corpusmill.run import IngestResult, ProgressEvent
from corpusmill.steps import BuildStep, MapStep
from corpusmill.store.draft import Draft

from .launch import store_environment
from .ray_jobs import Job, JobServer
from .running import Run


class RayStages(Protocol):
    def build(self, draft: Draft, ingest: IngestResult) -> Draft:
        """The document steps that texts lack."""
        ...

    def step(self, draft: Draft, step: MapStep | BuildStep) -> Draft: ...


@contextmanager
def ray_stages(run: Run) -> Iterator[RayStages]:
    """By `ray.address`: with an http(s) address each stage is a job there, which needs no network to the cluster but
    this; else the stages run in this process."""
    address = run.spec.settings.ray.address
    if address is not None and address.startswith(("http://", "https://")):
        yield _Jobs(run, JobServer(address))
        return
    from ray_actors.cluster import ray_session
    from ray_actors.probe import refuse_unfit_nodes

    with ray_session(run.spec.settings):
        refuse_unfit_nodes(run.spec)
        yield _Session(run)


class _Session:
    """In this process."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def build(self, draft: Draft, ingest: IngestResult) -> Draft:
        from ray_actors.builder import build

        return build(self._run.spec, draft, ingest.todo, ingest.todo_texts, self._run.report)

    def step(self, draft: Draft, step: MapStep | BuildStep) -> Draft:
        from ray_actors.indexing import run_build
        from ray_actors.mapping import run_map

        runner = run_map if isinstance(step, MapStep) else run_build
        return runner(self._run.spec, draft, step.name, self._run.report)


class _Jobs:
    """Each stage a job; what goes in and comes out are the run's files in the store."""

    def __init__(self, run: Run, server: JobServer) -> None:
        self._run = run
        self._server = server
        self._count = 0

    def build(self, draft: Draft, ingest: IngestResult) -> Draft:
        return self._stage(draft, "build")

    def step(self, draft: Draft, step: MapStep | BuildStep) -> Draft:
        return self._stage(draft, f"{'map' if isinstance(step, MapStep) else 'index'}:{step.name}")

    def _stage(self, draft: Draft, stage: str) -> Draft:
        spec = self._run.spec
        self._run.files.put_draft(draft)
        self._count += 1
        command = ["python", "-m", "ray_actors.stage", "--index", spec.index, "--run", spec.run, "--stage", stage]
        environment = {**store_environment(spec), **named_variables(spec.settings.ray.env)}
        job = Job(f"{spec.run}-{self._count}-{stage.replace(':', '-')}", command, environment)
        self._server.submit(job)
        ends: list[dict[str, object]] = []
        try:
            end = self._server.follow(job.id, lambda line: self._hear(stage, line, ends))
        except BaseException:
            _stop(self._server, job.id)
            raise
        _raise_failure(ends, f"Ray job {job.id} ended as {end.status} without a result: {end.message}")
        return self._run.files.draft()

    def _hear(self, stage: str, line: str, ends: list[dict[str, object]]) -> None:
        if not line.startswith("{"):
            return
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            return  # a library's own print
        if "progress" in said:
            self._run.report(ProgressEvent.of(said["progress"]))
        elif "done" in said or "error" in said:
            ends.append(said)


def _raise_failure(ends: list[dict[str, object]], otherwise: str) -> None:
    from ray_actors.failures import as_error

    if not ends:
        raise RunFailedError(otherwise)
    error = ends[-1].get("error")
    if isinstance(error, dict):
        raise as_error(str(error.get("type")), str(error.get("message")))


def _stop(server: JobServer, job: str) -> None:
    """Nobody waits for the job any more. One that cannot be told runs to its end; the next run takes what it sealed."""
    try:
        server.stop(job)
    except UsageError:
        return
