"""One Ray stage as a program: `python -m ray_actors.stage --index URI --run ID --stage build|map:NAME|index:NAME`.

It reads runs/<run>/spec.json and draft.json, for build also ingest.json, and writes runs/<run>/draft.json.
It prints JSON lines: {"progress": …}, then {"done": true} or {"error": {type, message}}, and ends with the error's
exit code.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TextIO

from corpusmill.errors import CorpusmillError, UsageError
from corpusmill.run import Progress, RunSpec
from corpusmill.settings import Settings, StoreSettings
from corpusmill.store.draft import Draft
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ray_actors.stage", description=__doc__)
    parser.add_argument("--index", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--stage", required=True, help="build, map:NAME or index:NAME")
    args = parser.parse_args(arguments)
    out = os.fdopen(os.dup(1), "w", buffering=1)  # our own lines; libraries may print what they like to stdout
    os.dup2(2, 1)
    try:
        run_stage(args.index, args.run, args.stage, lambda event: _say(out, {"progress": asdict(event)}))
    except CorpusmillError as error:
        _say(out, {"error": {"type": type(error).__name__, "message": str(error)}})
        return error.exit_code
    _say(out, {"done": True})
    return 0


def run_stage(index: str, run: str, stage: str, progress: Progress) -> None:
    """Run one stage from and to the files of its run. Raises UsageError on an unknown stage."""
    raw = os.environ.get("CORPUSMILL_STAGE_STORE")
    files = RunFiles(open_store(index, StoreSettings.model_validate_json(raw) if raw else None), run)
    kind, _, name = stage.partition(":")
    if (kind, bool(name)) not in {("build", False), ("map", True), ("index", True)}:
        raise UsageError(f"unknown stage {stage!r}; choices: build, map:NAME, index:NAME")
    files.put_draft(_run(files.spec(), files, kind, name, progress))


def _run(spec: RunSpec, files: RunFiles, kind: str, name: str, progress: Progress) -> Draft:
    from ray_actors.cluster import ray_session
    from ray_actors.probe import refuse_unfit_nodes

    with ray_session(_here(spec.settings)):
        refuse_unfit_nodes(spec)
        if kind == "build":
            from ray_actors.builder import build

            ingest = files.ingest()
            return build(spec, files.draft(), ingest.todo, ingest.todo_texts, progress)
        if kind == "map":
            from ray_actors.mapping import run_map

            return run_map(spec, files.draft(), name, progress)
        from ray_actors.indexing import run_build

        return run_build(spec, files.draft(), name, progress)


def _here(settings: Settings) -> Settings:
    """A job server's address, as the driver elsewhere knows it, is this cluster's own: the stage joins it."""
    address = settings.ray.address
    if address is None or not address.startswith(("http://", "https://")):
        return settings
    return settings.model_copy(update={"ray": settings.ray.model_copy(update={"address": "auto"})})


def _say(out: TextIO, message: object) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
