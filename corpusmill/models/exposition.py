"""A meter's counts in Prometheus' form."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from corpusmill.models.metered import LATENCY_BUCKETS_S

if TYPE_CHECKING:
    from corpusmill.models.metered import Meter

_USAGE = {
    "calls": "Model calls answered by the back-end",
    "cached": "Generations served from the response cache",
    "prompt_tokens": "Tokens read by models",
    "completion_tokens": "Tokens written by models",
    "repairs": "Answers that had to be asked for again",
    "cost": "Money spent, in the currency of the configured prices",
}


class _MeterCollector(Collector):
    def __init__(self, meter: "Meter") -> None:
        self._meter = meter

    def collect(self) -> Iterable[Metric]:
        state = self._meter.snapshot()
        for name, text in _USAGE.items():
            family = CounterMetricFamily(f"corpusmill_model_{name}", text, labels=["role"])
            for role, usage in sorted(state.usage.items()):
                family.add_metric([role], float(getattr(usage, name)))
            yield family
        failures = CounterMetricFamily("corpusmill_model_failures", "Generations that failed", labels=["error"])
        for error, count in sorted(state.failures.items()):
            failures.add_metric([error], count)
        yield failures
        yield CounterMetricFamily("corpusmill_embedded_texts", "Texts embedded", value=state.embedded_texts)
        yield self._latency(state.latencies.items())

    def _latency(self, rows: Iterable[tuple[str, tuple[int, ...]]]) -> Metric:
        family = HistogramMetricFamily("corpusmill_model_wait_seconds", "Wait for one generation", labels=["role"])
        seconds = {role: usage.seconds for role, usage in self._meter.snapshot().usage.items()}
        for role, counts in sorted(rows):
            total, buckets = 0, []
            for edge, count in zip([*map(str, LATENCY_BUCKETS_S), "+Inf"], counts, strict=True):
                total += count
                buckets.append((edge, total))
            family.add_metric([role], buckets, sum_value=seconds.get(role, 0.0))
        return family


def meter_registry(meter: "Meter") -> CollectorRegistry:
    """A registry that holds this meter's counters and nothing else."""
    registry = CollectorRegistry()
    registry.register(_MeterCollector(meter))
    return registry
