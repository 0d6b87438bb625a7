"""Looks at every node of a cluster before work is given to it: one small task each, pickled by value."""

import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from corpusmill import __version__, host_probe
from corpusmill.errors import RunFailedError
from corpusmill.run import RunSpec
from ray_actors.failures import root_cause

PROBE_S = 60.0


def refuse_unfit_nodes(spec: RunSpec) -> None:
    """Raises RunFailedError naming the nodes that lack our package or have another version, do not reach the index, or
    are full. A local Ray runs this process's own environment and is not asked."""
    if spec.settings.ray.address is None:
        return
    store = spec.settings.store.model_dump_json()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    expected = host_probe.Expected(python, __version__, spec.index, store)
    host_probe.refuse_unfit("Ray", _looks(spec.index, store), expected)


def _looks(index: str, store: str) -> list[dict[str, object]]:
    ray.cloudpickle.register_pickle_by_value(host_probe)
    try:
        task = ray.remote(num_cpus=0, max_retries=1)(host_probe.look)
        asked = {
            task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                index, store
            ): node["NodeManagerAddress"]
            for node in ray.nodes()
            if node["Alive"]
        }
    finally:
        ray.cloudpickle.unregister_pickle_by_value(host_probe)
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_S)
    if late:
        silent = sorted(asked[reference] for reference in late)
        raise RunFailedError(f"these nodes of Ray's cluster did not answer within {PROBE_S:.0f} s: {', '.join(silent)}")
    rows = []
    for reference in ready:
        try:
            rows.append({**ray.get(reference), "host": asked[reference]})
        except ray.exceptions.RayError as error:
            raise RunFailedError(f"node {asked[reference]} of Ray's cluster failed: {root_cause(error)}") from error
    return rows
