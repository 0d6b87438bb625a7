"""What is asked of the engine, and that a killed starter takes its children with it; no engine runs."""

import os
import subprocess
import sys
import time
from collections import deque

import psutil

from corpusmill.settings import ModelSettings, VllmSettings
from ray_actors.language_engine import _overheard, engine_arguments


def arguments(**engine):
    return engine_arguments(ModelSettings(backend="vllm", model="acme/small", vllm=VllmSettings(**engine)))


def test_what_is_not_set_is_left_to_the_engine():
    given = arguments()
    assert given["model"] == "acme/small" and given["distributed_executor_backend"] == "uni"
    assert not {"max_model_len", "quantization", "block_size", "kv_cache_memory_bytes", "revision"} & set(given)


def test_settings_reach_the_engine_under_its_names():
    given = arguments(
        tensor_parallel_size=4, max_model_len=8192, quantization="awq", kv_cache_gb=1.5, gpu_memory_utilization=0.8
    )
    assert (given["tensor_parallel_size"], given["distributed_executor_backend"]) == (4, "mp")
    assert (given["max_model_len"], given["quantization"]) == (8192, "awq")
    assert (given["kv_cache_memory_bytes"], given["gpu_memory_utilization"]) == (3 * 2**29, 0.8)


def test_what_processes_say_is_kept_and_passed_on(capfd):
    log: deque[str] = deque(maxlen=10)
    with _overheard(log):
        os.write(1, b"from here\n")
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; print('at first', flush=True); time.sleep(0.5); print('later')"]
        )
        time.sleep(0.2)
    os.write(1, b"not heard\n")
    child.wait()
    deadline = time.monotonic() + 5
    while "later" not in log and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(log) == ["from here", "at first", "later"]
    assert "later" in "".join(capfd.readouterr())


STARTER = """
import subprocess, sys, time
from ray_actors.language_engine import _watch_children
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
watcher = _watch_children()
print(child.pid, flush=True)
{end}
"""


def run_starter(end):
    starter = subprocess.Popen([sys.executable, "-c", STARTER.format(end=end)], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    return starter, int(starter.stdout.readline())


def gone(pid, within_s):
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


def test_children_of_a_killed_starter_are_killed():
    starter, child = run_starter("time.sleep(60)")
    starter.kill()
    starter.wait()
    assert gone(child, 10)


def test_children_are_left_alone_where_the_starter_said_that_it_ends():
    starter, child = run_starter("watcher.communicate(b'ended')")
    starter.wait()
    try:
        assert not gone(child, 1)
    finally:
        psutil.Process(child).kill()
