"""The demo's corpus: the reference of the S3 API that botocore ships, one Markdown document an operation.

`python -m corpusmill_jobs.demo --out DIR` writes it; `--questions` prints three questions that it answers. The files
are the same for the same botocore. Passages that many operations repeat are left out, and parameters are capped, so
that the whole demo fits two cores and two minutes; `--max-parameters`, `--max-words` and `--max-repeats` say how much.
"""

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from corpusmill.errors import SourceError

MAX_PARAMETERS = 3
MAX_WORDS = 150  # of an operation's description
MAX_REPEATS = 6  # operations that may share a passage before it counts as boilerplate
MAX_FIELD_WORDS = 40  # of one parameter's or field's description
_SEE_ALSO = re.compile(
    r"\s*\b(?:For (?:more |additional )?(?:information|details)|To learn more)\b[^.]*?,? (?:see|go to) .*?\.(?=\s|$)"
)
_LABEL = re.compile(r"^(?:General purpose|Directory) buckets?(?: permissions)? +- +(?=For )")  # said again at once
_BLOCKS = {"p", "li", "dt", "dd", "note", "ul", "ol", "dl", "important", "tr", "table", "br", "h1", "h2", "h3"}


@dataclass(frozen=True)
class Question:
    """A question, words that a right answer or its quotes must hold, and the operation whose document has them."""

    text: str
    answer: str
    operation: str


QUESTIONS = (
    Question("How many objects does ListObjectsV2 return at most with each request?", "1,000", "ListObjectsV2"),
    Question("Part numbers can be any number up to what?", "10,000", "UploadPart"),
    Question(
        "What must the request include to permanently delete an object that has a versionId?",
        "versionId",
        "DeleteObject",
    ),
)


@dataclass(frozen=True)
class Limits:
    parameters: int = MAX_PARAMETERS
    words: int = MAX_WORDS
    repeats: int = MAX_REPEATS


class _Blocks(HTMLParser):
    """Splits an HTML fragment into plain paragraphs; an item of a list starts with "- "."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._text = ""
        self._item = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self.flush()
        if tag == "li":
            self._item = True

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.flush()

    def handle_data(self, data: str) -> None:
        self._text += data

    def flush(self) -> None:
        text = " ".join(self._text.split()).replace(" ,", ",").replace(" .", ".")
        text = _LABEL.sub("", _SEE_ALSO.sub("", text)).strip()  # a link's text without its link says nothing
        self._text = ""
        if text:
            self.blocks.append(f"- {text}" if self._item else text)
            self._item = False


def paragraphs(html: str) -> list[str]:
    """The plain paragraphs of an HTML fragment."""
    parser = _Blocks()
    parser.feed(html)
    parser.close()
    parser.flush()
    return parser.blocks


def service_model() -> dict[str, Any]:
    """The S3 service description of the installed botocore. Raises SourceError where there is none."""
    try:
        import botocore
    except ImportError as error:
        raise SourceError("the demo reads the S3 reference inside botocore: pip install 'corpusmill[s3]'") from error
    root = Path(botocore.__file__).parent / "data" / "s3"
    files = sorted(root.glob("*/service-2.json*"), reverse=True)
    if not files:
        raise SourceError(f"no S3 service description under {root}")
    raw = files[0].read_bytes()
    return json.loads(gzip.decompress(raw) if files[0].suffix == ".gz" else raw)


def documents(model: dict[str, Any], limits: Limits = Limits()) -> Iterator[tuple[str, str]]:
    """(operation, Markdown) of every operation, sorted by name."""
    repeats = _repeats(model)
    for name in sorted(model["operations"]):
        yield name, _document(model, name, repeats, limits)


def _repeats(model: dict[str, Any]) -> Counter[str]:
    """How many operations hold each passage, the operation's own name left out of account."""
    counts: Counter[str] = Counter()
    for name, operation in model["operations"].items():
        blocks = paragraphs(operation.get("documentation", ""))
        for member in _members(model, operation.get("input")).values():
            blocks += paragraphs(member.get("documentation", ""))
        counts.update({block.replace(name, "*") for block in blocks})
    return counts


def _document(model: dict[str, Any], name: str, repeats: Counter[str], limits: Limits) -> str:
    operation = model["operations"][name]

    def own(html: str) -> list[str]:
        return [block for block in paragraphs(html) if repeats[block.replace(name, "*")] <= limits.repeats]

    description = _within(_sections(own(operation.get("documentation", ""))), limits.words)
    if description and name not in description[0]:
        description[0] = f"{name}: {description[0]}"  # the reference says "Returns ...": a sentence needs its subject
    lines = [f"# {name}", "", *_spaced(description or [f"{name} is an operation of Amazon S3."])]
    http = operation["http"]
    lines += [f"{name} is called by HTTP {http['method']} {http['requestUri']}.", ""]
    lines += _parameters(model, operation, own, limits)
    lines += _fields(model, operation, own, limits)
    lines += _errors(model, operation)
    return "\n".join(lines).rstrip() + "\n"


def _sections(blocks: list[str]) -> list[str]:
    """Drop headings that lost their content, and the lists of related operations."""
    kept = [block for block in blocks if "are related to" not in block]
    return [block for i, block in enumerate(kept) if _is_text(block) or (i + 1 < len(kept) and _is_text(kept[i + 1]))]


def _is_text(block: str) -> bool:
    return len(block.split()) > 3


def _within(blocks: list[str], words: int) -> list[str]:
    """Whole blocks up to a number of words, the first one always."""
    out: list[str] = []
    for block in blocks:
        words -= len(block.split())
        if out and words < 0:
            break
        out.append(block)
    return out


def _spaced(blocks: list[str]) -> list[str]:
    return [line for block in blocks for line in (block, "")]


def _members(model: dict[str, Any], reference: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return model["shapes"][reference["shape"]].get("members", {}) if reference else {}


def _parameters(model: dict[str, Any], operation: dict[str, Any], own: Any, limits: Limits) -> list[str]:
    members = _members(model, operation.get("input"))
    required = set(model["shapes"][operation["input"]["shape"]].get("required", ())) if members else set()
    lines: list[str] = []
    described = [(key, _within(own(m.get("documentation", "")), MAX_FIELD_WORDS)) for key, m in members.items()]
    described.sort(key=lambda item: item[0] not in required)  # stable: required ones first, then as documented
    for key, blocks in [item for item in described if item[1]][: limits.parameters]:
        need = "required" if key in required else "optional"
        lines.append(f"- {key} ({need}, {_kind(model, members[key])}): {_joined(blocks)}")
    return ["## Parameters", "", *lines, ""] if lines else []


def _fields(model: dict[str, Any], operation: dict[str, Any], own: Any, limits: Limits) -> list[str]:
    members = _members(model, operation.get("output"))
    described = [(key, _within(own(m.get("documentation", "")), MAX_FIELD_WORDS)) for key, m in members.items()]
    chosen = [item for item in described if item[1]][: limits.parameters // 2]
    lines = [f"- {key} ({_kind(model, members[key])}): {_joined(blocks)}" for key, blocks in chosen]
    return ["## Response fields", "", *lines, ""] if lines else []


def _errors(model: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    lines = []
    for error in operation.get("errors", ()):
        said = _joined(paragraphs(model["shapes"][error["shape"]].get("documentation", "")))
        lines.append(f"- {error['shape']}: {said}" if said else f"- {error['shape']}")
    return ["## Errors", "", *lines, ""] if lines else []


def _joined(blocks: list[str]) -> str:
    return " ".join(block.removeprefix("- ") for block in blocks)


def _kind(model: dict[str, Any], member: dict[str, Any]) -> str:
    """Type and limits of a member, as text."""
    shape = model["shapes"][member["shape"]]
    parts = [str(shape["type"])]
    if "enum" in shape:
        values = shape["enum"]
        parts.append("one of " + ", ".join(values[:8]) + (", ..." if len(values) > 8 else ""))
    parts += [f"{label} {shape[key]}" for key, label in (("min", "at least"), ("max", "at most")) if key in shape]
    return ", ".join(parts)


def write_corpus(out: Path, limits: Limits = Limits()) -> int:
    """Write the documents into `out`, replacing those of an earlier call; returns how many."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = {f"{name}.md": text for name, text in documents(service_model(), limits)}
    for old in out.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        path = out / name
        if not path.exists() or path.read_text("utf-8") != text:  # an unchanged file keeps its time stamp
            path.write_text(text, "utf-8")
    return len(wanted)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m corpusmill_jobs.demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="folder to write the documents to")
    parser.add_argument("--questions", action="store_true", help="print the demo's questions, one a line")
    parser.add_argument("--max-parameters", type=int, default=MAX_PARAMETERS, help="parameters described an operation")
    parser.add_argument("--max-words", type=int, default=MAX_WORDS, help="words of an operation's description")
    parser.add_argument("--max-repeats", type=int, default=MAX_REPEATS, help="operations that may share a passage")
    args = parser.parse_args(arguments)
    if args.questions:
        print("\n".join(question.text for question in QUESTIONS))
    if args.out:
        count = write_corpus(args.out, Limits(args.max_parameters, args.max_words, args.max_repeats))
        print(f"{count} documents of the S3 API reference in {args.out}", file=sys.stderr)
    if not args.questions and not args.out:
        parser.error("give --out DIR or --questions")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SourceError as error:
        print(f"corpusmill: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
