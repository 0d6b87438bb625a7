"""Clusters of the statements of one long document: time, memory and growth, and equality with the dense form.

    python benchmarks/ssc.py [--dim 384] [--sizes 2000 5000 10000 20000 32000]

Statements are drawn in runs of like ones, as a document's are. Each size runs in a process of its own, which prints
its seconds (distances and tree, clusters of the tree, all on the processor) and how much its peak memory grew over the
vectors themselves.
Exit code 1 if a band and a dense form differ, or if the growth exponent of processor time or memory exceeds 1.2.
"""

import argparse
import json
import math
import subprocess
import sys
import threading
import time

import numpy as np

KINDS = ("topical", "random", "repeated")
MAX_EXPONENT = 1.2


def statements(n: int, dim: int, kind: str, seed: int = 0) -> np.ndarray:
    """float32 [n, dim] unit vectors in document order."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        vectors = rng.normal(size=(n, dim))
    else:
        topics = rng.normal(size=(n // 9 + 1, dim))
        if kind == "repeated":
            vectors = topics[rng.integers(0, 9, size=n)]
        else:
            vectors = np.repeat(topics, 9, axis=0)[:n] + rng.normal(size=(n, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def measure(n: int, dim: int) -> dict[str, float]:
    """Seconds and bytes of one size; imports and first-use costs are paid before the clock starts."""
    import psutil

    from corpusmill.graph.tree_clustering import cluster_sequence, number_by_first_member, sequence_tree, tree_labels

    cluster_sequence(statements(200, dim, "topical"), 0.1)
    vectors = statements(n, dim, "topical")
    process = psutil.Process()
    base, peak, stop = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started, cpu = time.perf_counter(), time.process_time()
    tree = sequence_tree(vectors, 0.1)
    between = time.perf_counter()
    labels = number_by_first_member(tree_labels(tree, 2, False))
    ended, cpu = time.perf_counter(), time.process_time() - cpu
    stop.set()
    watcher.join()
    return {
        "n": n,
        "tree_s": between - started,
        "labels_s": ended - between,
        "seconds": ended - started,
        "cpu_s": cpu,
        "grown_mb": max(0, peak[0] - base) / 1e6,
        "clusters": int(labels.max()) + 1,
        "noise": float((labels < 0).mean()),
    }


def equality(n: int, dim: int, seeds: int) -> int:
    """Prints, for each kind and seed, whether band and dense give the same clusters; the number that differ."""
    from corpusmill.graph.tree_clustering import cluster_sequence

    differ = 0
    for kind in KINDS:
        for seed in range(seeds):
            vectors = statements(n, dim, kind, seed)
            band, dense = cluster_sequence(vectors, 0.1), cluster_sequence(vectors, 0.1, width=n - 1)
            same = np.array_equal(band, dense)
            differ += not same
            print(f"n {n}  {kind:9} seed {seed}  clusters {band.max() + 1:5}  {'same' if same else 'DIFFERENT'}")
    return differ


def exponent(rows: list[dict[str, float]], key: str) -> float:
    """Slope of log(key) on log(n) by least squares."""
    return float(np.polyfit([math.log(r["n"]) for r in rows], [math.log(max(r[key], 1e-6)) for r in rows], 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000, 10_000, 20_000, 32_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.dim)))
        return 0
    rows = []
    print("statements  seconds   tree  labels  cpu s  peak MB over vectors  clusters  noise")
    for n in args.sizes:
        command = [sys.executable, __file__, "--one", str(n), "--dim", str(args.dim)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(row)
        print(
            f"{n:10}  {row['seconds']:7.2f}  {row['tree_s']:5.2f}  {row['labels_s']:6.2f}  {row['cpu_s']:5.2f}  "
            f"{row['grown_mb']:20.0f}  {row['clusters']:8}  {row['noise']:5.2f}"
        )
    time_growth, memory_growth = exponent(rows, "cpu_s"), exponent(rows, "grown_mb")
    print(f"growth exponent: cpu time {time_growth:.2f}, memory {memory_growth:.2f} (at most {MAX_EXPONENT})")
    differ = equality(2000, args.dim, args.seeds)
    print(f"band against dense at 2,000: {differ} of {len(KINDS) * args.seeds} differ")
    return int(bool(differ) or time_growth > MAX_EXPONENT or memory_growth > MAX_EXPONENT)


if __name__ == "__main__":
    sys.exit(main())
