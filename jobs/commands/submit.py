"""`corpusmill submit`: the same commands on a Ray cluster, as jobs; follow, inspect and stop them from outside."""

import os
from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpusmill.errors import RunFailedError, UsageError

from .common import ConfigOption, JsonOption, SetOption, emit, load, messages, number, out

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.settings_sources import LoadedSettings

    from ..ray_jobs import Job, JobEnd, JobServer

ADDRESS = "CORPUSMILL_RAY_ADDRESS"

AddressOption = Annotated[
    str,
    typer.Option(
        "--ray-address", envvar=ADDRESS, metavar="URL", help="The cluster's job server, http://HEAD:8265 as a rule."
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name, as `submit index` printed it.")]

app = typer.Typer(no_args_is_help=True, help="Run a command as a job of a Ray cluster, and follow, inspect or stop it.")


@app.command("index")
def index(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What the cluster can read: s3:// as a rule.")],
    to: Annotated[str, typer.Option("--to", metavar="INDEX", help="What the cluster can write: s3:// as a rule.")],
    ray_address: AddressOption,
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help="Indexing method; repeatable.")] = None,
    source_id: Annotated[str | None, typer.Option("--source-id", help="Name of this source in the index.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Most to spend; then exit 4.")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Train anew what an index keeps from run to run.")] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable for the job; without a value, this host's."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="The run's name (default: made up).")] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="How often the job is submitted where its host is lost.")
    ] = 3,
    cpus: Annotated[float | None, typer.Option("--driver-cpus", help="CPUs that the run's driver claims.")] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option("--driver-resource", metavar="NAME=AMOUNT", help="A resource that the driver claims."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the run to its end.")] = True,
    json: JsonOption = False,
) -> None:
    """Index SOURCE on the cluster: its log appears here, and the command ends as the run does.

    The settings are put together on this host and travel with the job; the cluster's nodes need the same corpusmill.
    """
    from corpusmill.methods.registry import get_method
    from corpusmill.run import run_name

    loaded = load(config, assignments, {"run.methods": method or None, "run.budget": budget})
    for known in loaded.settings.run.methods:
        get_method(known)
    console = messages()
    _warn_of_local_paths(console, source=source, to=to)
    name = run_name(run)
    command = ["index", source, "--to", to]
    command += ["--source-id", source_id] if source_id else []
    command += ["--refit"] if refit else []
    variables, claimed = environment(env or []), resources(resource or [])
    from ..ray_jobs import JobServer
    from ..results import SETTINGS

    request = _Request(name, command, {SETTINGS: settings_of_job(loaded), **variables}, cpus, claimed)
    server = JobServer(ray_address)
    if not wait:
        server.submit(request.attempt(1))
        _tell_submitted(name, ray_address, console, json)
        return
    console.print(f"run {name} at {ray_address}")
    code, value = run_to_end(server, request, attempts, console)
    if json:
        emit(value)
    else:
        _summary(value, out())
    if code:
        raise typer.Exit(code)


@app.command("status")
def status(run: RunArgument, ray_address: AddressOption, json: JsonOption = False) -> None:
    """Show how a submitted run stands, by Ray's job server."""
    from ..ray_jobs import JobServer

    server = JobServer(ray_address)
    job = _last_attempt(server, run)
    details = server.details(job)
    result = last_result(server.log(job))
    value = {
        "run": run,
        "job": job,
        "status": details.status.value,
        "message": details.message,
        "exit_code": result[0] if result else details.driver_exit_code,
        "result": result[1] if result else None,
    }
    if json:
        emit(value)
        return
    out().print(f"run {run} (job {job}): {details.status.value}; {details.message or 'no message'}")
    if result:
        _summary(result[1], out())


@app.command("logs")
def logs(run: RunArgument, ray_address: AddressOption) -> None:
    """Follow the log of a submitted run to its end."""
    from ..ray_jobs import JobServer

    server = JobServer(ray_address)
    end = server.follow(_last_attempt(server, run), out().print)
    messages().print(f"run {run}: {end.status}; {end.message}")


@app.command("stop")
def stop(run: RunArgument, ray_address: AddressOption) -> None:
    """Stop a submitted run. What it sealed is kept: the same `submit index` goes on from there."""
    from ..ray_jobs import JobServer

    server = JobServer(ray_address)
    job = _last_attempt(server, run)
    server.stop(job)
    out().print(f"asked job {job} to stop; nothing is published, and the same command resumes")


class _Request:
    """What is submitted, once or again: each attempt is a job of its own, since Ray keeps the ids of ended jobs."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        cpus: float | None,
        resources: dict[str, float],
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._cpus = cpus
        self._resources = resources

    def attempt(self, number: int) -> "Job":
        from ..ray_jobs import Job

        name = attempt_name(self.name, number)
        command = ["python", "-m", "corpusmill_jobs.submitted", *self._command, "--run", name]
        return Job(name, command, self._environment, self._cpus, self._resources)


def run_to_end(server: "JobServer", request: _Request, attempts: int, console: "Console") -> tuple[int, Any]:
    """Submit and follow until the command itself has ended; (its exit code, its JSON value).

    A job that ended without the command's own result lost its host or was killed: it is submitted again, and resumes
    from what was sealed. Raises RunFailedError after the last attempt, or where somebody stopped it.
    """
    for attempt in range(1, attempts + 1):
        job = request.attempt(attempt)
        server.submit(job)
        found: list[tuple[int, Any]] = []
        end = server.follow(job.id, lambda line, found=found: _show(line, console, found))  # type: ignore[misc]
        if found:
            return found[-1]
        if end.status == "STOPPED":
            raise RunFailedError(f"run {job.id} was stopped; nothing was published, the same command resumes")
        _refuse_what_will_not_change(job.id, end)
        console.print(f"job {job.id} was lost (attempt {attempt} of {attempts}): {end.message}")
    raise RunFailedError(
        f"run {request.name}: each of its {attempts} jobs was lost before it could end; nothing was published: "
        f"{end.message}"
    )


def _show(line: str, console: "Console", found: list[tuple[int, Any]]) -> None:
    from ..results import result_of

    result = result_of(line)
    if result is None:
        console.print(line)
    else:
        found.append(result)


def _refuse_what_will_not_change(job: str, end: "JobEnd") -> None:
    """A command that could not even start on the cluster would not the next time either."""
    if "runtime_env" in end.message or "Runtime env" in end.message:
        raise RunFailedError(f"job {job}: its environment could not be set up on the cluster: {end.message}")
    if end.exit_code in (1, 2, 126, 127):
        raise RunFailedError(
            f"job {job}: corpusmill did not start on the cluster (exit code {end.exit_code}); is it installed in the "
            f"cluster's Python? {end.message}"
        )


def last_result(log: str) -> tuple[int, Any] | None:
    from ..results import result_of

    results = [result for line in log.splitlines() if (result := result_of(line)) is not None]
    return results[-1] if results else None


def attempt_name(run: str, number: int) -> str:
    return run if number == 1 else f"{run}-attempt{number}"


def _last_attempt(server: "JobServer", run: str) -> str:
    """The job of the run's last attempt. Raises UsageError naming the jobs that there are."""
    taken = {details.submission_id: details.start_time or 0 for details in server.jobs() if details.submission_id}
    own = [name for name in taken if name == run or name.startswith(f"{run}-attempt")]
    if own:
        return max(own, key=lambda name: (taken[name], name))
    newest = sorted(taken, key=lambda name: -taken[name])[:5]
    raise UsageError(f"no run {run!r} at {server.address}; the latest: {', '.join(newest) or 'none'}")


def settings_of_job(loaded: "LoadedSettings") -> str:
    """The whole tree as JSON. On the cluster the run joins the Ray that runs it, unless another one is named; methods
    that nobody chose are left to the index."""
    tree = loaded.settings.model_dump(mode="json")
    if tree["ray"]["address"] is None:
        tree["ray"]["address"] = "auto"
    if loaded.origins.get("run.methods") == "default":
        del tree["run"]["methods"]
    return dumps(tree)


def environment(given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as given, NAME from this process's own environment. Raises UsageError where that lacks it."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: this host has no such variable; give --env {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def resources(given: Sequence[str]) -> dict[str, float]:
    """NAME=AMOUNT pairs. Raises UsageError on another form."""
    found: dict[str, float] = {}
    for text in given:
        name, _, amount = text.partition("=")
        try:
            found[name] = float(amount)
        except ValueError:
            raise UsageError(f"--driver-resource {text!r} is not NAME=AMOUNT") from None
    return found


def _warn_of_local_paths(console: "Console", **places: str) -> None:
    for option, place in places.items():
        if "://" not in place or place.startswith("file://"):
            console.print(f"note: {option} {place} is a path on the cluster's hosts, which must all see the same there")


def _tell_submitted(name: str, address: str, console: "Console", json: bool) -> None:
    if json:
        emit({"run": name, "status": "submitted", "ray_address": address})
        return
    out().print(name)
    console.print(f"follow it: corpusmill submit logs {name} --ray-address {address}")


def _summary(value: Any, console: "Console") -> None:
    """A run's outcome for people; an error has been printed with the log."""
    if not isinstance(value, dict) or "snapshot" not in value:
        return
    documents = value["documents"]
    said = ", ".join(f"{number(count)} {name}" for name, count in documents.items() if count)
    console.print(value["message"])
    console.print(f"  snapshot   {value['snapshot']}  digest {value['digest']}")
    console.print(f"  documents  {said or 'none'}")
    console.print(
        f"  spent      {number(value['calls'])} calls ({number(value['cached'])} cached), cost {value['cost']:,.4g}"
    )
