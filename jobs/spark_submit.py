"""A Spark stage by spark-submit: its driver a child of ours (client), or in the cluster (cluster), where the store is
all that is heard of it."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from corpusmill.errors import RunFailedError, StoreUnavailableError, UsageError
from corpusmill.processes import named_variables
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles, StageReport

from .launch import (
    as_exception,
    follow,
    kept_on_error,
    new_log,
    stage_environment,
    stop,
    store_environment,
    told_or_died,
)

LOOK_S = 2.0
SILENT_S = 300.0  # a driver in the cluster that has not renewed its report for so long is given up


@dataclass(frozen=True)
class StageCall:
    """One stage and the name of its report in the store."""

    name: str
    stage: str
    steps: tuple[str, ...] = ()
    packages: str | None = None


def submit_stage(spec: RunSpec, call: StageCall, progress: Progress) -> None:
    """Run a stage to its end. Raises the error that it raised; RunFailedError where it died without one."""
    from spark_jobs.session import properties_file, refuse_no_java, refuse_no_master

    spark = spec.settings.spark
    refuse_no_java()
    refuse_no_master(spark)
    log = new_log()
    with kept_on_error(log), properties_file(submit_options(spec, call)) as options:
        process = subprocess.Popen(
            submit_command(spec, call, options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if spark.deploy_mode == "client" else log,
            stderr=log,
            text=True,
            env=stage_environment(spec),
        )
        with _ended_with_us(spec, call, process):
            if spark.deploy_mode == "client":
                _follow_client(spec, call, process, log, progress)
            else:
                _Watch(spec, call, process, log, progress).run()


def submit_options(spec: RunSpec, call: StageCall) -> dict[str, str]:
    """All of Spark's options, secrets among them: for a file, not for the command line."""
    from spark_jobs.options import driver_variables, start_options

    spark = spec.settings.spark
    options = start_options(spec.settings, f"corpusmill {spec.run} {call.name}", call.packages)
    options["spark.submit.deployMode"] = spark.deploy_mode
    if spark.workers_python is not None:
        options["spark.pyspark.python"] = spark.workers_python
    if spark.deploy_mode == "client":
        options.setdefault("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", sys.executable))
        options.setdefault("spark.pyspark.driver.python", os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable))
    else:
        variables = {**store_environment(spec), **named_variables(spark.env)}
        options = {**driver_variables(spark, variables), **options}
        if spark.master.startswith("k8s://"):
            options.setdefault("spark.kubernetes.driver.pod.name", _pod(spec, call))
    return options


def submit_command(spec: RunSpec, call: StageCall, options: Path) -> list[str]:
    """The command; `options` is the file of its options."""
    command = [spark_program(), "--load-spark-defaults", "--properties-file", str(options), _program(spec)]
    command += [call.stage, "--index", spec.index, "--run", spec.run, "--name", call.name]
    return command + (["--steps", ",".join(call.steps)] if call.steps else [])


def spark_program() -> str:
    """The spark-submit of SPARK_HOME, else that of the installed pyspark. Raises UsageError where there is none."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        found = importlib.util.find_spec("pyspark")
        home = str(Path(found.origin).parent) if found is not None and found.origin else ""
    program = Path(home) / "bin" / "spark-submit"
    if not program.is_file():
        raise UsageError(f"there is no spark-submit at {program}: set SPARK_HOME, or install pyspark")
    return str(program)


def _program(spec: RunSpec) -> str:
    spark = spec.settings.spark
    here = str(Path(__file__).with_name("stage.py"))
    if spark.deploy_mode == "client":
        return here
    return spark.program or f"local://{here}"


def _follow_client(
    spec: RunSpec, call: StageCall, process: "subprocess.Popen[str]", log: IO[str], progress: Progress
) -> None:
    assert process.stdout is not None
    end = follow(process.stdout, call.stage, progress)
    error = told_or_died(spec, call.name, call.stage, process.wait(), log) if end is None else end.error
    if error is not None:
        raise as_exception(error, call.stage, log.name)
    for _ in process.stdout:  # whatever comes after the result must not fill the pipe
        continue
    process.wait()


@dataclass
class _Watch:
    """Looks at the store until a driver in the cluster has told its end there."""

    spec: RunSpec
    call: StageCall
    process: "subprocess.Popen[str]"
    log: IO[str]
    progress: Progress

    def run(self) -> None:
        files = RunFiles(open_store(self.spec.index, self.spec.settings.store), self.spec.run)
        heard, last = time.monotonic(), ""
        while True:
            code = self.process.poll()  # before the look: who has ended has told its end
            report = self._look(files)
            if report is not None and report.ended:
                if report.error is not None:
                    raise as_exception(report.error, self.call.stage, self.log.name)
                return
            if report is not None and report.at != last:
                heard, last = time.monotonic(), report.at
                self._pass_on(report)
            if code:
                raise self._died(code)
            if code is not None and time.monotonic() - heard > SILENT_S:
                raise RunFailedError(
                    f"the driver of stage {self.call.stage} in the cluster has not been heard of for {SILENT_S:.0f} s "
                    f"and has told no end (log of the submission: {self.log.name})"
                )
            time.sleep(LOOK_S)

    def _look(self, files: RunFiles) -> StageReport | None:
        try:
            return files.stage(self.call.name)
        except StoreUnavailableError:
            return None  # if it lasts, the run's own heartbeat ends it

    def _pass_on(self, report: StageReport) -> None:
        if report.progress is not None:
            p = report.progress
            self.progress(ProgressEvent(self.call.stage, p.done, p.total, p.unit))

    def _died(self, code: int) -> Exception:
        error = told_or_died(self.spec, self.call.name, self.call.stage, code, self.log)
        return as_exception(error, self.call.stage, self.log.name)


@contextmanager
def _ended_with_us(spec: RunSpec, call: StageCall, process: "subprocess.Popen[str]") -> Iterator[None]:
    """An application must not outlive who waits for it."""
    try:
        yield
    except BaseException:
        stop(process, at_once=True)
        if spec.settings.spark.deploy_mode == "cluster" and spec.settings.spark.master.startswith("k8s://"):
            subprocess.run(kill_command(spec, call), capture_output=True, timeout=60, check=False)
        raise
    stop(process, at_once=False)


def kill_command(spec: RunSpec, call: StageCall) -> list[str]:
    """Ends a driver's pod, and with it its executors."""
    spark = spec.settings.spark
    space = spark.conf.get("spark.kubernetes.namespace", "default")
    pod = spark.conf.get("spark.kubernetes.driver.pod.name", _pod(spec, call))
    return [spark_program(), "--kill", f"{space}:{pod}", "--master", spark.master]


def _pod(spec: RunSpec, call: StageCall) -> str:
    """A pod's name holds lower-case letters, digits and dashes."""
    plain = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in spec.run.lower()).strip("-")
    return f"corpusmill-{plain[:30]}-{call.name}-driver"
