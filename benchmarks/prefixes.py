"""How much of a document's extraction prompts an engine's prefix cache can serve, for the window settings.

    python benchmarks/prefixes.py [FILE ...]

For each window (g_max 3; g_overlap 0, 1, 2) the prompts of a document's chunks are compared with the prompt before
them: the share of all prompt tokens that stand in a common prefix (`all`), the same without the instruction that every
call shares (`passages`), and how many tokens the prompts have for each token of the document (`read`). Texts are
plain text files; by default the Debian policy manual of the shared data.
"""

import argparse
import gzip
import os
import sys
from pathlib import Path

from corpusmill.methods.flexstructrag.tasks import EXTRACT, ExtractInput
from corpusmill.methods.flexstructrag.windows import prefix
from corpusmill.models.prompts import render_prompt
from corpusmill.segmentation.partition import partition
from corpusmill.segmentation.tokens import get_tokenizer

SHARED = Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data"))
G_MAX = 3


def shares(text: str, g_overlap: int) -> tuple[int, float, float, float]:
    """(chunks, share of all tokens, share without the instruction, prompt tokens for a token of the document)."""
    tokenizer = get_tokenizer("words")
    chunks = [text[p.span.start : p.span.end] for p in partition(text, tokenizer, 500, 600)]
    total = shared = instruction = 0
    before = ""
    for number, chunk in enumerate(chunks, 1):
        context = tuple(chunks[at - 1] for at in prefix(number, G_MAX, g_overlap))
        system, user = render_prompt(EXTRACT.prompt, EXTRACT.render(ExtractInput(prefix=context, chunk=chunk)))
        common = user[: common_length(before, user)]
        total += tokenizer.count(system) + tokenizer.count(user)
        instruction += tokenizer.count(system)
        shared += tokenizer.count(common) + (tokenizer.count(system) if number > 1 else 0)
        before = user
    own = max(1, total - instruction)
    passages = shared - instruction + tokenizer.count(EXTRACT.prompt.system)
    return len(chunks), shared / total, passages / own, own / max(1, tokenizer.count(text))


def common_length(a: str, b: str) -> int:
    """How many characters `a` and `b` begin with alike."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=[SHARED / "debian_policy" / "policy.txt.gz"])
    for path in parser.parse_args().files:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8", "replace")
        print(f"{path.name}\ng_max  g_overlap  chunks    all  passages   read")
        for g_overlap in range(G_MAX):
            chunks, every, passages, read = shares(text, g_overlap)
            print(f"{G_MAX:5}  {g_overlap:9}  {chunks:6}  {every:5.2f}  {passages:8.2f}  {read:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
