"""Wikipedia leads indexed from the shell to the end: time by stage, peak memory of all processes, size of the index.

    python benchmarks/leads.py --documents 1000 3000 10000 26000 --method contextrag [--data LEADS.jsonl.gz ...]

26,000 takes the leads of all languages. Each size starts from an empty index and an empty cache. The last line has the
exponents of growth over the sizes, of the whole run and of each stage that takes half a second at least.
"""

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.overhead import shared_folder

SAMPLE_S = 1.0


@dataclass(frozen=True)
class Row:
    """One size. `peak_mb`: the greatest sum of proportional set sizes seen of the command and all its children."""

    documents: int
    seconds: float
    stages: dict[str, float]
    peak_mb: int
    index_mb: float
    calls: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[1000, 3000, 10_000, 26_000])
    parser.add_argument("--method", default="contextrag")
    parser.add_argument("--data", type=Path, nargs="+", help="JSON lines (gzip); default: the shared leads")
    args = parser.parse_args(arguments)
    folder = shared_folder() / "data" / "wikipedia_leads"
    files = args.data or [folder / f"{language}.jsonl.gz" for language in ("en", "fr", "es")]
    rows = []
    for count in args.documents:
        rows.append(measure(files, count, args.method))
        print(json.dumps(asdict(rows[-1])), flush=True)
    if len(rows) > 1:
        print(
            json.dumps({"growth_exponent": {name: round(exponent(rows, name), 3) for name in ("run", *_common(rows))}})
        )
    return 0


def records(files: Sequence[Path], count: int) -> Iterator[dict[str, str]]:
    """The first `count` records of the files, one after the other. Raises ValueError if there are fewer."""
    left = count
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if not left:
                    return
                left -= 1
                own = json.loads(line)
                yield {"id": f"{path.name.split('.')[0]}/{number}", "title": own["title"], "text": own["text"]}
    if left:
        raise ValueError(f"{', '.join(map(str, files))} have {count - left} records, fewer than {count}")


def measure(files: Sequence[Path], count: int, method: str) -> Row:
    """One run of the command line in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-leads-") as name:
        scratch = Path(name)
        source, index = scratch / "leads.jsonl", scratch / "index"
        with source.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in records(files, count))
        command = ["-m", "corpusmill_jobs.cli", "index", str(source), "--to", str(index), "--method", method, "--json"]
        environment = os.environ | {"XDG_CACHE_HOME": str(scratch / "cache")}
        begin = time.monotonic()
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, env=environment, text=True)
        peak = _Peak(process.pid)
        out_text, _ = process.communicate()
        seconds = time.monotonic() - begin
        peak.stop()
        if process.returncode not in (0, 5):
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        told = json.loads(out_text)
        size = sum(file.stat().st_size for file in index.rglob("*") if file.is_file())
        return Row(count, round(seconds, 1), told["stages"], peak.megabytes, round(size / 2**20, 1), told["calls"])


class _Peak:
    """Samples the memory of a process and all its descendants in a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self.megabytes = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            try:
                root = psutil.Process(self._pid)
                family = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.megabytes = max(self.megabytes, sum(map(_pss, family)) >> 20)


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return 0


def _common(rows: Sequence[Row]) -> list[str]:
    return [name for name in rows[0].stages if all(row.stages.get(name, 0) > 0.5 for row in rows)]


def exponent(rows: Sequence[Row], stage: str) -> float:
    """Slope of log(seconds) over log(documents) by least squares, of a stage or of the whole `run`."""
    seconds = [row.seconds if stage == "run" else row.stages[stage] for row in rows]
    points = [(math.log(row.documents), math.log(value)) for row, value in zip(rows, seconds, strict=True)]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


if __name__ == "__main__":
    sys.exit(main())
