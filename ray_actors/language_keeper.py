"""Who starts a model's application for a run, and ends it when no run uses it any more, however those runs ended."""

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

import ray

from corpusmill.settings import ModelSettings

NAMESPACE = "corpusmill"
_POLL_S = 0.25
_STARTING = ("NOT_STARTED", "DEPLOYING")


@dataclass(frozen=True)
class Found:
    """An application's status ("not there" if it is none), its handle, and the names of all applications."""

    status: str
    handle: Any
    applications: list[str]


def look(name: str) -> Found:
    """What Ray Serve knows of an application."""
    from ray import serve

    applications = serve.status().applications
    if name not in applications:
        return Found("not there", None, sorted(applications))
    return Found(str(applications[name].status.value), serve.get_app_handle(name), sorted(applications))


class Lease:
    """An actor that lives as long as its session: it dies with its driver, by a kill too."""

    def until_lost(self) -> None:
        """Never returns; its caller hears of the end by the error."""
        threading.Event().wait()

    def ping(self) -> None:
        """Returns once the actor is there."""


def keeper_options(name: str) -> dict[str, Any]:
    """Options of the one keeper of an application in a cluster."""
    return {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_concurrency": 1000,
    }


class PoolKeeper:
    """The actor's class. Deletes the application `keep_s` seconds after its last lease was lost, and ends itself.

    GPUs would stay taken after a run that was killed if the run itself had to give them back.
    """

    def __init__(self, name: str, keep_s: float, mark: str) -> None:
        """`mark` precedes the reason in what a failed replica says."""
        self._name = name
        self._keep_s = keep_s
        self._mark = mark
        self._starting = threading.Lock()
        self._runs = False
        self._changed = threading.Condition()
        self._leases = 0

    def hold(self, lease: Any, settings: ModelSettings, cpus: float, local: bool) -> str:
        """Wait until the application runs, for as long as the lease lives; "" or why it does not run."""
        with self._changed:
            self._leases += 1
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=(lease,), daemon=True).start()
        with self._starting:
            if not self._runs:
                reason = self._start(settings, cpus, local)
                if reason:
                    self._delete()
                    return reason
                self._runs = True
        return ""

    def _start(self, settings: ModelSettings, cpus: float, local: bool) -> str:
        from ray import serve

        from ray_actors.language_pool import _application

        if local:  # on a cluster Serve keeps its own choice: what comes later may want to listen
            serve.start(proxy_location="Disabled")
        target = serve.RunTarget(_application(settings, cpus), name=self._name, route_prefix=None)
        serve.run_many([target], wait_for_applications_running=False)
        deadline = time.monotonic() + settings.vllm.start_timeout_s
        while True:
            found = serve.status().applications.get(self._name)
            status = "NOT_STARTED" if found is None else str(found.status.value)
            if status == "RUNNING":
                return ""
            said = "" if found is None else "; ".join(d.message for d in found.deployments.values() if d.message)
            if status not in _STARTING:
                return self._reason(f"{found.message if found else ''} {said}")
            if time.monotonic() > deadline:
                return f"it did not start within {settings.vllm.start_timeout_s:g} s; {self._reason(said)}"
            time.sleep(_POLL_S)

    def _reason(self, said: str) -> str:
        """What follows the mark up to the end of its line, or all that Serve says."""
        if self._mark in said:
            return said.rsplit(self._mark, 1)[1].splitlines()[0].strip()
        return " ".join(said.split())[:600] or "Ray Serve says nothing of it"

    def _watch(self, lease: Any) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # the end that is waited for
            ray.get(lease.until_lost.remote())
        with self._changed:
            self._leases -= 1
            self._changed.notify_all()
            if self._changed.wait_for(lambda: self._leases > 0, timeout=self._keep_s) or self._leases:
                return
        self._delete()
        ray.kill(ray.get_runtime_context().current_actor)

    def _delete(self) -> None:
        from ray import serve

        if self._name in serve.status().applications:
            serve.delete(self._name)
