"""Conversion: kinds by content, the sandbox's limits, and real odd files."""

import io
import random
import sys
import time
import zipfile

import psutil
import pytest

from corpusmill.settings import ConvertSettings, Settings, SourceSettings
from corpusmill.sources.convert import convert
from corpusmill.sources.listing import Source
from corpusmill.sources.outcomes import (
    ConversionCrashed,
    ConversionError,
    ConversionOutOfMemory,
    ConversionRefused,
    ConversionTimedOut,
)
from corpusmill.sources.reading import DocumentReader
from corpusmill.sources.sandbox import Sandbox
from tests.shared import REPOSITORY, shared_data

MISBEHAVING = (sys.executable, str(REPOSITORY / "tests" / "convert_workers.py"))
HTML = b"<html><body><p>[%s]</p></body></html>"
SETTINGS = Settings()


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(SETTINGS.convert) as made:
        yield made


@pytest.fixture
def misbehaving(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    with Sandbox(ConvertSettings(timeout_s=2, memory_mb=400, attempts=2), MISBEHAVING) as made:
        yield made


@pytest.mark.parametrize(
    ("what", "error"),
    [(b"crash", ConversionCrashed), (b"exit", ConversionCrashed), (b"memory", ConversionOutOfMemory)],
)
def test_a_bad_document_costs_itself_and_the_next_one_is_served(misbehaving, what, error):
    with pytest.raises(error):
        misbehaving.convert(HTML % what, "text/html")
    assert "echo" in misbehaving.convert(HTML % b"echo", "text/html").text


def test_a_hanging_converter_is_ended_in_time_and_leaves_no_process(misbehaving):
    misbehaving.convert(HTML % b"echo", "text/html")
    begun = time.monotonic()
    with pytest.raises(ConversionTimedOut, match="2 s"):
        misbehaving.convert(HTML % b"hang", "text/html")
    assert time.monotonic() - begun < 20
    assert not [child for child in psutil.Process().children() if "convert_workers" in " ".join(child.cmdline())]


def test_what_a_library_prints_does_not_break_the_protocol(misbehaving):
    misbehaving.convert(HTML % b"print", "text/html")
    assert "echo" in misbehaving.convert(HTML % b"echo", "text/html").text


def test_a_large_document_passes_the_pipes(misbehaving):
    body = HTML % b"echo" + b"x" * (8 << 20)
    assert len(misbehaving.convert(body, "text/html").text) == len(body)


def test_attempts_are_counted_and_refusals_are_final(misbehaving):
    settings = Settings(convert=ConvertSettings(timeout_s=2, memory_mb=400, attempts=2))
    with pytest.raises(ConversionCrashed, match="2 attempts") as found:
        convert(HTML % b"crash", "x.html", settings, misbehaving)
    assert found.value.attempts == 2


def test_text_kinds_are_decoded_without_a_converter(sandbox):
    assert convert(b"# Head\r\n\r\nText", "a.md", SETTINGS, sandbox).text == "# Head\n\nText"
    assert convert(b"# Head\n", "a.md", SETTINGS, sandbox).title == "Head"
    assert convert(b"a;b\n1;x, y\n", "a.csv", SETTINGS, sandbox).text == "| a | b |\n| 1 | x, y |"
    assert convert(b"", "a.pdf", SETTINGS, sandbox).text == ""


def test_the_extension_does_not_decide(sandbox):
    pdf = (shared_data("documents") / "pdf" / "skipped_1page.pdf").read_bytes()
    assert convert(pdf, "x.docx", SETTINGS, sandbox).media_type == "application/pdf"
    docx = (shared_data("documents") / "docx" / "lorem_ipsum.docx").read_bytes()
    assert "Lorem" in convert(docx, "x.txt", SETTINGS, sandbox).text


def test_html_in_its_declared_encoding(sandbox):
    page = '<html><head><meta charset="windows-1251"></head><body><p>Привет, мир</p></body></html>'
    assert "Привет, мир" in convert(page.encode("cp1251"), "x.html", SETTINGS, sandbox).text


def test_refusals_say_why(sandbox):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a.txt", "x")
    protected = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    for raw, path, reason in (
        (archive.getvalue(), "x.zip", "zip archive"),
        (protected, "x.docx", "password"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "x.png", "picture"),
        (bytes(range(256)) * 8, "x.bin", "binary"),
        (b"%PDF-1.7 broken", "x.pdf", "cannot be converted"),
    ):
        with pytest.raises(ConversionRefused, match=reason):
            convert(raw, path, SETTINGS, sandbox)
    with pytest.raises(ConversionRefused, match="max_bytes"):
        convert(b"xxxx", "x.txt", Settings(source=SourceSettings(max_bytes=3)), sandbox)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"%PDF-1.7 nothing else", "x.pdf"),
        (b"%PDF nothing else", "x.pdf"),
        (b"%PDF-1.7 nothing else", "x.txt"),
        (b"%PDF-1.7\n1 0 obj << /Type /Catalog >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF", "x.pdf"),
        (b"nothing else", "x.pdf"),
        (b"nothing else", "x.docx"),
        (b"PK\x03\x04 nothing else", "x.docx"),
        (b"PK nothing else", "x.xlsx"),
    ],
)
def test_a_broken_document_is_refused_and_not_read_as_a_text(sandbox, raw, path):
    with pytest.raises(ConversionRefused, match=r"cannot be converted|broken"):
        convert(raw, path, SETTINGS, sandbox)


@pytest.mark.parametrize("part", ["word/document.xml", "ppt/presentation.xml", "xl/workbook.xml"])
def test_an_office_document_whose_parts_are_broken_is_refused(sandbox, part):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(part, "nothing else")
    with pytest.raises(ConversionRefused, match="cannot be converted"):
        convert(archive.getvalue(), "x.bin", SETTINGS, sandbox)


def test_a_text_that_mentions_the_mark_of_a_pdf_stays_a_text(sandbox):
    assert convert(b"A file begins with %PDF-1.7.", "x.md", SETTINGS, sandbox).media_type == "text/markdown"


def test_a_pdf_with_a_password_is_quarantined_with_that_reason(sandbox, tmp_path):
    (tmp_path / "x.pdf").write_bytes(encrypted_pdf())
    source = Source.parse(str(tmp_path), SETTINGS)
    listed = next(source.listing(SETTINGS))
    row = DocumentReader("s", SETTINGS, source.opener(SETTINGS), sandbox).read("d", listed).row
    assert (row["outcome"], row["attempts"]) == ("quarantined", 1)
    assert "password" in str(row["reason"])


def encrypted_pdf() -> bytes:
    """One page, whose /Encrypt dictionary holds the keys of an unknown password (RC4, 40 bits)."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R >>",
        b"<< /Length 32 >>\nstream\n" + bytes(range(100, 132)) + b"\nendstream",
        b"<< /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <" + b"41" * 32 + b"> /U <" + b"42" * 32 + b"> >>",
    ]
    made, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % at for at in offsets)
    identity = b"<" + b"ab" * 16 + b">"
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R /Encrypt 5 0 R /ID [" + identity * 2 + b"] >>\n"
    return made + table + trailer + b"startxref\n%d\n%%%%EOF\n" % len(made)


def test_at_least_60_of_the_odd_documents_have_a_text(sandbox):
    reasons = {}
    paths = [path for path in sorted(shared_data("documents").rglob("*")) if path.is_file()]
    for path in paths:
        try:
            found = convert(path.read_bytes(), path.name, SETTINGS, sandbox)
        except ConversionError as error:
            reasons[path.name] = str(error)
        else:
            assert found.text.strip(), path
    assert len(paths) == 62
    assert len(reasons) <= 2, reasons
    assert all(reasons.values())


def test_the_reading_order_of_a_right_to_left_pdf(sandbox):
    raw = (shared_data("documents") / "pdf" / "right_to_left_02.pdf").read_bytes()
    assert "الحكومة" in convert(raw, "x.pdf", SETTINGS, sandbox).text


def test_mutated_files_each_end_in_an_outcome(sandbox):
    chance = random.Random(7)
    paths = [
        path for path in sorted(shared_data("documents").rglob("*")) if path.is_file() and path.stat().st_size < 500_000
    ]
    outcomes = []
    for _ in range(40):
        path = chance.choice(paths)
        try:
            found = convert(mutated(path.read_bytes(), chance), _renamed(path.name, chance), SETTINGS, sandbox)
            outcomes.append(type(found.text).__name__)
        except ConversionError as error:
            assert str(error)
            outcomes.append(type(error).__name__)
    assert len(outcomes) == 40
    assert {"str", "ConversionRefused"} <= set(outcomes)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Cut, or with random bytes in it, or as it is."""
    way = chance.randrange(4)
    if way == 0:
        return raw[: chance.randrange(len(raw) + 1)]
    if way == 1 and raw:
        changed = bytearray(raw)
        for _ in range(max(1, len(raw) // 200)):
            changed[chance.randrange(len(raw))] = chance.randrange(256)
        return bytes(changed)
    if way == 2:
        at = chance.randrange(len(raw) + 1)
        return raw[:at] + chance.randbytes(64) + raw[at:]
    return raw


def _renamed(name: str, chance: random.Random) -> str:
    return name.rpartition(".")[0] + chance.choice([".pdf", ".docx", ".txt", ".html", ".xlsx", ""])
