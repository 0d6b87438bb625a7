"""A source under an s3:// prefix: listing, versions, reading, records, and what is said where it cannot be read."""

import json
from uuid import uuid4

import pytest

from corpusmill.errors import SourceError
from corpusmill.settings import Settings, SourceSettings, StoreSettings
from corpusmill.sources.listing import Source
from corpusmill.store.s3 import S3Store
from tests.integration.s3_server import S3Server

pytestmark = pytest.mark.integration
SETTINGS = Settings(store=StoreSettings(retries=0, timeout_s=5))


@pytest.fixture
def prefix(s3: S3Server) -> str:
    uri = f"s3://{s3.bucket}/{uuid4().hex}"
    store = S3Store(uri)
    store.put("docs/a.md", b"# One")
    store.put("docs/sub/a.md", b"# Two")
    store.put("docs/.hidden", b"x")
    store.put("docs-other/b.md", b"not under the prefix")
    store.put("records.jsonl", b"".join(json.dumps({"id": i, "text": f"text {i}"}).encode() + b"\n" for i in range(3)))
    return uri


def test_a_prefix_is_listed_like_a_folder_and_read(prefix: str) -> None:
    source = Source.parse(prefix + "/docs/", SETTINGS)
    found = list(source.listing(SETTINGS))
    assert [item.path for item in found] == ["a.md", "sub/a.md"]
    assert found[1].uri == prefix + "/docs/sub/a.md"
    assert source.opener(SETTINGS)(found[1].location or "") == b"# Two"
    assert Source.parse(source.uri, SETTINGS) == source


def test_the_version_follows_the_content(prefix: str) -> None:
    before = next(Source.parse(prefix + "/docs", SETTINGS).listing(SETTINGS))
    S3Store(prefix).put("docs/a.md", b"# 0ne")
    assert next(Source.parse(prefix + "/docs", SETTINGS).listing(SETTINGS)).version != before.version


def test_one_object_of_records(prefix: str) -> None:
    found = list(Source.parse(prefix + "/records.jsonl", SETTINGS).listing(SETTINGS))
    assert [(item.path, item.record.text if item.record else None) for item in found] == [
        (str(i), f"text {i}") for i in range(3)
    ]


def test_include_applies_to_keys(prefix: str) -> None:
    settings = Settings(source=SourceSettings(include=("sub/*",)))
    assert [item.path for item in Source.parse(prefix + "/docs", settings).listing(settings)] == ["sub/a.md"]


def test_what_cannot_be_listed_is_named(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="nothing-here"):
        list(Source.parse(prefix + "/nothing-here", SETTINGS).listing(SETTINGS))
    with pytest.raises(SourceError, match="no-such-bucket"):
        list(Source.parse("s3://no-such-bucket/x", SETTINGS).listing(SETTINGS))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(SourceError, match="secret key"):
        list(Source.parse(prefix + "/docs", SETTINGS).listing(SETTINGS))
