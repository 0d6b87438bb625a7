"""Enforce the rooms of docs/architecture.md: who may import what, and how long `import corpusmill` may take."""

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINES = {"pyspark", "ray", "vllm", "torch", "graphframes"}
HEAVY = ENGINES | {
    "faiss",
    "onnxruntime",
    "hdbscan",
    "scipy",
    "sklearn",
    "matplotlib",
    "boto3",
    "botocore",
    "kreuzberg",
    "markitdown",
    "pandas",
}
OUR_ROOMS = {"spark_jobs", "ray_actors", "jobs", "corpusmill_jobs"}
IMPORT_BUDGET_S = 0.5

# room -> modules that it must never import, at any depth of the code
FORBIDDEN = {
    "corpusmill": OUR_ROOMS | {"pyspark", "ray", "vllm", "graphframes"},
    "spark_jobs": {"ray", "ray_actors", "jobs", "corpusmill_jobs", "vllm", "torch"},
    "ray_actors": {"pyspark", "spark_jobs", "jobs", "corpusmill_jobs", "graphframes"},
}


def imports(tree: ast.AST, top_level: bool) -> Iterator[tuple[int, str]]:
    nodes = top_level_nodes(tree) if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def top_level_nodes(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements run at import; the body of `if TYPE_CHECKING` is not."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.dump(node.test):
                yield from top_level_nodes(node)
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            yield from top_level_nodes(node)
        else:
            yield node


def method_of(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    return parts[2] if parts[:2] == ("corpusmill", "methods") and len(parts) > 3 else None


def problems() -> Iterator[str]:
    for room, forbidden in FORBIDDEN.items():
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            where = path.relative_to(ROOT)
            for line, module in imports(tree, top_level=False):
                if module.split(".")[0] in forbidden:
                    yield f"{where}:{line}: {room}/ must not import {module}"
                yield from method_rules(path, line, module)
            if room == "corpusmill":
                for line, module in imports(tree, top_level=True):
                    if module.split(".")[0] in ENGINES:
                        yield f"{where}:{line}: engine {module} imported at the top of the engine-free library"


def method_rules(path: Path, line: int, module: str) -> Iterator[str]:
    own = method_of(path)
    parts = module.split(".")
    if parts[:2] != ["corpusmill", "methods"] or len(parts) < 3:
        return
    target = parts[2]
    packages = {p.name for p in (ROOT / "corpusmill" / "methods").iterdir() if p.is_dir() and p.name != "common"}
    if target in packages and target != own:
        yield f"{path.relative_to(ROOT)}:{line}: only the registry reaches into method {target!r}"


def import_time() -> Iterator[str]:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare = time.perf_counter() - start
    start = time.perf_counter()
    code = "import sys, corpusmill, corpusmill.settings; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    took = time.perf_counter() - start - bare
    if loaded := sorted(HEAVY & {name.split(".")[0] for name in done.stdout.split()}):
        yield f"importing corpusmill loads {', '.join(loaded)}"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import corpusmill"], check=True)
    took = time.perf_counter() - start - bare
    if took > IMPORT_BUDGET_S:
        yield f"import corpusmill takes {took:.2f} s, budget {IMPORT_BUDGET_S} s"


def main() -> int:
    found = [*problems(), *import_time()]
    print("\n".join(found) if found else "import rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
