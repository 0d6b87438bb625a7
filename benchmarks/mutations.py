"""What becomes of broken files and misbehaving converters in a whole run.

    python benchmarks/mutations.py [--count 200] [--seed 7] [--embedder minilm] [--keep FOLDER] [--json]

Makes `count` files out of the shared set `documents` (truncated, bytes flipped, random bytes under the name, extension
changed; a quarter each, seeded), adds documents on which the converter hangs, crashes, exits, eats memory or prints
noise, an office file that unpacks to 1.5 GiB, a deeply nested page, and sound files; then runs `corpusmill index` at
the default `run.max_failed_fraction` and once with 1, and prints the outcomes of the table `documents`.

Ends with 1 unless the first run exits with 3, names the limit and publishes nothing, and the second gives every file
exactly one outcome, with a reason where it is quarantined.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).resolve().parent
BAD_CONVERTER = HERE / "bad_converter"
WAYS = ("truncated", "flipped", "random", "renamed")
EXTENSIONS = (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".html", ".md", ".csv", ".txt", ".bin", "")
MARKS = ("hang", "crash", "exit", "memory", "noise")
OUTCOMES = {"indexed", "partial", "empty", "quarantined"}
BOMB_BYTES = 3 << 29
# Small limits, so that what hangs costs seconds; two tries show that a try is repeated.
LIMITS = {
    "CORPUSMILL__CONVERT__TIMEOUT_S": "15",
    "CORPUSMILL__CONVERT__MEMORY_MB": "700",
    "CORPUSMILL__CONVERT__ATTEMPTS": "2",
    "CORPUSMILL__SPARK__DRIVER_MEMORY": "768m",
    "CORPUSMILL__SPARK__PARTITIONS": "4",
}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    seconds: float


def shared_root() -> Path:
    return Path(os.environ.get("CORPUSMILL_SHARED", HERE.parent.parent / "shared" / "data"))


def write_mutations(originals: Path, folder: Path, count: int, seed: int) -> None:
    """`count` files named <number>-<way>-<name> under `folder`."""
    chance = random.Random(seed)
    paths = [path for path in sorted(originals.rglob("*")) if path.is_file()]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path, way = chance.choice(paths), WAYS[number % len(WAYS)]
        raw, extension = mutated(path.read_bytes(), way, chance), path.suffix
        if way == "renamed":
            extension = chance.choice([other for other in EXTENSIONS if other != path.suffix])
        (folder / f"{number:03d}-{way}-{path.stem}{extension}").write_bytes(raw)


def mutated(raw: bytes, way: str, chance: random.Random) -> bytes:
    """Truncated anywhere, one byte of 500 changed, as many random bytes, or as it is."""
    if way == "truncated":
        return raw[: chance.randrange(len(raw) + 1)]
    if way == "flipped":
        changed = bytearray(raw)
        for _ in range(max(1, len(raw) // 500)):
            changed[chance.randrange(len(raw))] = chance.randrange(256)
        return bytes(changed)
    return chance.randbytes(len(raw)) if way == "random" else raw


def write_hostile(folder: Path) -> None:
    """Documents on which the converter of benchmarks/bad_converter misbehaves, and two that are bad by themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    for mark in MARKS:
        page = f"<html><body><h1>Page</h1><p>The converter meets [{mark}] in this page.</p></body></html>"
        (folder / f"hostile-{mark}.html").write_text(page, "utf-8")
    nested = "<html><body>" + "<div>" * 200_000 + "deep" + "</div>" * 200_000 + "</body></html>"
    (folder / "hostile-nested.html").write_text(nested, "utf-8")
    paragraph = b"<w:p><w:r><w:t>" + b"again and again " * 4096 + b"</w:t></w:r></w:p>"
    with (
        zipfile.ZipFile(folder / "hostile-bomb.docx", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/document.xml", "w", force_zip64=True) as part,
    ):
        part.write(b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>')
        for _ in range(BOMB_BYTES // len(paragraph)):
            part.write(paragraph)
        part.write(b"</w:body></w:document>")


def write_sound(folder: Path) -> None:
    """Files that nothing is wrong with: the others must not take them along."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sound-note.md").write_text("# Telescopes\n\nThe Hubble Space Telescope was launched in 1990.", "utf-8")
    page = "<html><body><h1>Rivers</h1><p>The Danube flows through Vienna and Budapest.</p></body></html>"
    (folder / "sound-page.html").write_text(page, "utf-8")


def corpusmill(*arguments: str, environment: Mapping[str, str], timeout: float = 1800) -> Ran:
    begin = time.monotonic()
    command = [str(Path(sys.executable).parent / "corpusmill"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(environment))
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def environment(cache: Path) -> dict[str, str]:
    paths = os.pathsep.join(part for part in (str(BAD_CONVERTER), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **LIMITS, "PYTHONPATH": paths, "CORPUSMILL__CACHE__DIR": str(cache)}


def name_of(uri: str) -> str:
    return unquote(uri).rpartition("/")[2]


def way_of(path: str) -> str:
    """The kind of file, from its name."""
    first, _, rest = path.partition("-")
    return rest.partition("-")[0] if first.isdigit() else first


def problems(refused: Ran, allowed: Ran, published: bool, files: Sequence[str], rows: Sequence[dict]) -> list[str]:
    """What is not as it must be. `published`: whether the index had a snapshot after the first run."""
    found = []
    if refused.code != 3 or published:
        found.append(f"the run at the default limit exits with {refused.code}, published: {published}")
    for word in ("max_failed_fraction", "nothing was published"):
        if word not in " ".join(refused.err.split()):
            found.append(f"the run at the default limit does not say {word!r}: {refused.err[-600:]}")
    if allowed.code not in (0, 5):
        found.append(f"the run that allows failures exits with {allowed.code}: {allowed.err[-600:]}")
    seen = Counter(row["path"] for row in rows)
    found += [f"{path} stands {seen[path]} times in documents" for path in files if seen[path] != 1]
    for row in rows:
        if row["outcome"] not in OUTCOMES or (row["outcome"] in ("quarantined", "partial") and not row["reason"]):
            found.append(f"{row['path']}: outcome {row['outcome']!r}, reason {row['reason']!r}")
        if row["path"].startswith("sound-") and row["outcome"] != "indexed":
            found.append(f"{row['path']} is sound and {row['outcome']}: {row['reason']}")
    for what in ("Traceback (most recent call last)",):
        found += [f"{what} on the screen: {ran.err[-800:]}" for ran in (refused, allowed) if what in ran.err + ran.out]
    return found


def measure(folder: Path, count: int, seed: int, settings: Sequence[str]) -> dict[str, object]:
    docs, index = folder / "docs", folder / "index"
    write_mutations(shared_root() / "documents", docs, count, seed)
    write_hostile(docs)
    write_sound(docs)
    own = environment(folder / "cache")
    command = ["index", str(docs), "--to", str(index), *settings]
    refused = corpusmill(*command, environment=own)
    published = (index / "refs" / "main.json").exists()
    allowed = corpusmill(*command, environment={**own, "CORPUSMILL__RUN__MAX_FAILED_FRACTION": "1"})
    listed = corpusmill("documents", str(index), "--json", environment=own)
    rows = [{"path": name_of(row["uri"]), **row} for row in json.loads(listed.out)] if listed.code == 0 else []
    files = sorted(path.name for path in docs.iterdir())
    return {
        "files": len(files),
        "default": {"exit": refused.code, "seconds": refused.seconds, "said": " ".join(refused.err.split())[-700:]},
        "allowed": {"exit": allowed.code, "seconds": allowed.seconds},
        "documents": [{key: row[key] for key in ("path", "outcome", "reason")} for row in rows],
        "problems": problems(refused, allowed, published, files, rows),
    }


def show(report: dict) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in report["documents"]:
        counts[way_of(row["path"])][row["outcome"]] += 1
    outcomes = sorted({outcome for row in counts.values() for outcome in row})
    print(f"{report['files']} files\n{'':12}" + "".join(f"{outcome:>13}" for outcome in outcomes))
    for way, row in counts.items():
        print(f"{way:12}" + "".join(f"{row[outcome]:13}" for outcome in outcomes))
    print("\nwhy the hostile ones, and the commonest reasons of the others")
    reasons: Counter[str] = Counter()
    for row in report["documents"]:
        if row["path"].startswith("hostile"):
            print(f"  {row['path']:22} {row['outcome']}: {row['reason']}")
        elif row["reason"]:
            reasons[row["reason"].partition(":")[0][:90]] += 1
    for reason, number in reasons.most_common(12):
        print(f"  {number:4} {reason}")
    for name in ("default", "allowed"):
        print(f"run.max_failed_fraction {name}: exit {report[name]['exit']}, {report[name]['seconds']:.0f} s")
    print(f"  it said: {report['default']['said']}")
    for problem in report["problems"]:
        print(f"NOT AS IT MUST BE: {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--embedder", default="minilm", choices=("minilm", "hash"))
    parser.add_argument("--keep", type=Path, help="an empty folder for the files and the index, which stay there")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        report = measure(folder, args.count, args.seed, ("--set", f"embedder.backend={args.embedder}"))
    print(json.dumps(report, indent=2)) if args.json else show(report)
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
