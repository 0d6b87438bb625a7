"""One replica of a language model: vLLM's asynchronous engine in a Ray Serve deployment.

The same class serves builders and online generation. The engine runs in processes of its own below this one; it is
given every request at once and batches them continuously.
"""

import asyncio
import contextlib
import copy
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psutil

from corpusmill.models.structured import Message
from corpusmill.models.vllm_calls import (
    EngineClock,
    EngineStats,
    PoolAnswer,
    PoolCall,
    PoolRefusal,
    last_words,
    room_for,
    without_system,
)
from corpusmill.settings import ModelSettings
from ray_actors.language_metrics import EngineMetrics

LOG_LINES = 400  # of the engine, kept to say why it failed
FAILED = "corpusmill-engine-failed: "  # before the reason, in the error that Serve hands on
_EXIT_AFTER_S = 0.5  # answers of a dead engine reach their callers first
# Ends what is left of an engine when its starter is gone without a word; ends itself where there was a word.
_WATCHER = """
import sys, psutil
if not sys.stdin.buffer.read():
    for pid, born in (arg.split(":") for arg in sys.argv[1:]):
        try:
            process = psutil.Process(int(pid))
            if process.create_time() == float(born):
                process.kill()
        except psutil.Error:
            pass
"""


class LanguageReplica:
    """The deployment's class. Its constructor loads the model and raises RuntimeError with the engine's own words."""

    def __init__(self, settings: ModelSettings) -> None:
        for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
            os.environ.setdefault(name, "1")
        self._settings = settings
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        try:
            with _overheard(self._log):
                self._engine = _start_engine(settings)
        except Exception as error:  # noqa: BLE001 - any failure to load is told in one line
            raise RuntimeError(f"{FAILED}{_why_not(settings, self._log, error)}") from None
        self._watcher = _watch_children()
        self._max_model_len = int(self._engine.model_config.max_model_len)
        self._tokenizer = copy.deepcopy(self._engine.get_tokenizer())  # used in the thread below alone
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="chat-template")
        self._replica = uuid4().hex[:12]
        self._clock = EngineClock()
        self._metrics = EngineMetrics(str(settings.model), self._replica)

    async def complete(self, call: PoolCall) -> PoolAnswer | PoolRefusal:
        """One generation. What goes wrong with it is a refusal; only the loss of the process raises."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        model = str(self._settings.model)
        loop = asyncio.get_running_loop()
        try:
            prompt = await loop.run_in_executor(self._renderer, self._render, call.messages)
        except ValueError as error:
            return PoolRefusal("rejected", f"no prompt can be made for {model!r}: {error}")
        room = room_for(model, len(prompt), call.max_tokens, self._max_model_len)
        if isinstance(room, PoolRefusal):
            self._metrics.refused(room.fault)
            return room
        answer: PoolAnswer | PoolRefusal
        with self._counted():
            try:
                answer = await self._generate(prompt, call, room)
            except VLLMClientError as error:
                answer = PoolRefusal("rejected", f"the engine of {model!r} refuses the request: {error}")
            except EngineDeadError:
                answer = PoolRefusal("unavailable", f"the engine of {model!r} died: {last_words(self._log)}")
                self._leave()
            except (GracefulHTTPError, EngineGenerateError) as error:
                cause = error.__cause__ or error
                answer = PoolRefusal("unavailable", f"the engine of {model!r} failed on a request: {cause}")
        if isinstance(answer, PoolAnswer):
            self._metrics.finished(answer)
        else:
            self._metrics.refused(answer.fault)
        return answer

    async def check_health(self) -> None:
        """Raises where the engine is dead, and ends this process, which Serve replaces at once: it would let a replica
        that is only unhealthy fail several checks first, and its documents' calls with them."""
        try:
            await self._engine.check_health()
        except Exception:
            self._leave()
            raise

    async def stats(self) -> EngineStats:
        return self._metrics.stats(os.getpid(), self._clock)

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self._engine.shutdown()
        if hasattr(self, "_watcher"):  # not before: it ends what a shutdown that hangs or fails leaves
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                self._watcher.communicate(b"ended", timeout=5)

    @staticmethod
    def _leave() -> None:
        asyncio.get_running_loop().call_later(_EXIT_AFTER_S, os._exit, 1)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._clock.enter(time.monotonic())
        self._metrics.load(self._clock)
        try:
            yield
        finally:
            self._clock.leave(time.monotonic())
            self._metrics.load(self._clock)

    async def _generate(self, prompt: list[int], call: PoolCall, room: int) -> PoolAnswer:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        sampling = SamplingParams(
            max_tokens=room,
            temperature=call.temperature,
            seed=call.seed,
            structured_outputs=StructuredOutputsParams(json=call.schema),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        last = None
        async for output in self._engine.generate(TokensPrompt(prompt_token_ids=prompt), sampling, uuid4().hex):
            last = output
        if last is None or not last.outputs:
            return PoolAnswer("", "abort", len(prompt), 0, 0, self._replica)
        written = last.outputs[0]
        return PoolAnswer(
            written.text,
            str(written.finish_reason or "stop"),
            len(prompt),
            len(written.token_ids),
            int(last.num_cached_tokens or 0),
            self._replica,
        )

    def _render(self, messages: Sequence[Message]) -> list[int]:
        """Token ids by the model's own chat template. Raises ValueError where it has none or refuses the messages."""
        from jinja2 import TemplateError

        try:
            return self._templated(messages)
        except TemplateError as error:
            told = without_system(messages)
            if told == tuple(messages):
                raise ValueError(str(error)) from error
        try:
            return self._templated(told)
        except TemplateError as error:
            raise ValueError(str(error)) from error

    def _templated(self, messages: Sequence[Message]) -> list[int]:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        ids = self._tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
        return list(ids)


def _start_engine(settings: ModelSettings) -> Any:
    """vLLM's AsyncLLM. Its metrics go out through Ray, beside ours."""
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

    arguments = AsyncEngineArgs(**engine_arguments(settings))
    return AsyncLLM.from_engine_args(arguments, stat_loggers=[RayPrometheusStatLogger])


def engine_arguments(settings: ModelSettings) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs; what is not set is left to vLLM.

    A model on several GPUs of a node runs in processes of this replica, which Ray has given all of them. JSON is
    written without free white space, in which small models lose themselves.
    """
    own = settings.vllm
    given = own.model_dump(
        include={"max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "quantization", "revision"}
    )
    if own.kv_cache_gb is not None:
        given["kv_cache_memory_bytes"] = int(own.kv_cache_gb * 2**30)
    return {name: value for name, value in given.items() if value is not None} | {
        "model": settings.model,
        "dtype": own.dtype,
        "tensor_parallel_size": own.tensor_parallel_size,
        "gpu_memory_utilization": own.gpu_memory_utilization,
        "enable_prefix_caching": own.enable_prefix_caching,
        "enforce_eager": own.enforce_eager,
        "distributed_executor_backend": "mp" if own.tensor_parallel_size > 1 else "uni",
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }


def _why_not(settings: ModelSettings, log: Sequence[str], error: Exception) -> str:
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] == "vllm":
        return "vllm is not installed where the replica runs: pip install 'corpusmill[gpu]'"
    return f"the engine of model {settings.model!r} did not start: {last_words(log, error)}"


@contextmanager
def _overheard(log: deque[str]) -> Iterator[None]:
    """Lines that this process, and those started within the block for as long as they live, write to stdout and stderr
    are kept in `log` and passed on."""
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    reading, writing = os.pipe()
    for fd in kept:
        os.dup2(writing, fd)
    os.close(writing)
    passed = os.dup(kept[2])
    listener = threading.Thread(target=_listen, args=(reading, passed, log), name="engine-log", daemon=True)
    listener.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, original in kept.items():
            os.dup2(original, fd)
            os.close(original)
        listener.join(timeout=0.5)  # the rest of what was written; it goes on while the engine's processes live


def _listen(reading: int, passed: int, log: deque[str]) -> None:
    with os.fdopen(reading, "rb") as pipe, os.fdopen(passed, "wb", buffering=0) as out:
        for line in pipe:
            log.append(line.decode("utf-8", "replace").rstrip())
            with contextlib.suppress(OSError):
                out.write(line)


def _watch_children() -> "subprocess.Popen[bytes]":
    """A small process that kills this one's children when this one is killed: an engine left alone keeps its GPU."""
    children = [f"{child.pid}:{child.create_time()!r}" for child in psutil.Process().children(recursive=True)]
    return subprocess.Popen([sys.executable, "-c", _WATCHER, *children], stdin=subprocess.PIPE, start_new_session=True)
