"""Counts of one engine, kept for `stats` and sent to Ray's metrics as `corpusmill_llm_*`, by model and replica."""

from ray.util.metrics import Counter, Gauge

from corpusmill.models.vllm_calls import EngineClock, EngineStats, PoolAnswer


class EngineMetrics:
    """Belongs to one replica's event loop. vLLM's own metrics (`vllm:*`) go out beside these."""

    def __init__(self, model: str, replica: str) -> None:
        tags = {"model": model, "replica": replica}

        def counter(name: str, text: str, *keys: str) -> Counter:
            made = Counter(f"corpusmill_llm_{name}", text, tag_keys=("model", "replica", *keys))
            made.set_default_tags(tags)
            return made

        self._replica = replica
        self._requests = counter("requests", "Generations by finish reason, refusals by fault", "outcome")
        self._prompt = counter("prompt_tokens", "Prompt tokens of finished generations")
        self._cached = counter("cached_tokens", "Prompt tokens that the prefix cache gave")
        self._completion = counter("completion_tokens", "Tokens written by finished generations")
        self._idle = counter("idle_seconds", "Time without a request, between requests")
        self._busy = counter("busy_seconds", "Time with at least one request")
        self._load = Gauge("corpusmill_llm_in_engine", "Requests that the engine has", tag_keys=("model", "replica"))
        self._load.set_default_tags(tags)
        self._finished = 0
        self._tokens = (0, 0, 0)  # prompt, of these cached, completion
        self._told = (0.0, 0.0)  # idle and busy seconds sent

    def finished(self, answer: PoolAnswer) -> None:
        own = (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens)
        self._requests.inc(tags={"outcome": answer.finish_reason})
        for counter, amount in zip((self._prompt, self._cached, self._completion), own, strict=True):
            if amount:
                counter.inc(amount)
        self._finished += 1
        prompt, cached, completion = self._tokens
        self._tokens = (prompt + own[0], cached + own[1], completion + own[2])

    def refused(self, fault: str) -> None:
        self._requests.inc(tags={"outcome": fault})

    def load(self, clock: EngineClock) -> None:
        """Called when a request came or went."""
        self._load.set(clock.in_engine)
        idle, busy = clock.idle_s - self._told[0], clock.busy_s - self._told[1]
        for counter, seconds in ((self._idle, idle), (self._busy, busy)):
            if seconds > 0:
                counter.inc(seconds)
        self._told = (clock.idle_s, clock.busy_s)

    def stats(self, pid: int, clock: EngineClock) -> EngineStats:
        prompt, cached, completion = self._tokens
        return EngineStats(
            replica=self._replica,
            pid=pid,
            requests=self._finished,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            in_engine=clock.in_engine,
            busy_s=clock.busy_s,
            idle_s=clock.idle_s,
        )
