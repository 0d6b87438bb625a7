"""Listing and reading documents under an `s3://` prefix."""

from collections.abc import Iterator
from contextlib import contextmanager

from corpusmill.errors import SourceError
from corpusmill.settings import Settings
from corpusmill.sources.files import taken
from corpusmill.sources.listing import Listed, Opener, Source
from corpusmill.store.s3 import S3Store
from corpusmill.store.s3_errors import describe, require_boto3


def is_object(uri: str, settings: Settings) -> bool:
    """Whether there is an object of exactly this URI. Raises SourceError if that cannot be told."""
    store, key = _store(uri, settings)
    with _reporting(uri):
        found = store.client.list_objects_v2(Bucket=store.bucket, Prefix=key, MaxKeys=1).get("Contents", [])
        return bool(found) and found[0]["Key"] == key


def list_objects(source: Source, settings: Settings) -> Iterator[Listed]:
    """Objects under the prefix by key; the version is the ETag. Raises SourceError if there is none."""
    store, key = _store(source.location, settings)
    prefix = key if source.kind == "object" or not key else key + "/"
    found = False
    with _reporting(source.uri):
        for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket, Prefix=prefix):
            for item in page.get("Contents", []):
                relative = item["Key"][len(prefix) :] or item["Key"].rpartition("/")[2]
                if item["Key"].endswith("/") or (source.kind == "prefix" and not taken(relative, settings.source)):
                    continue
                if source.kind == "object" and item["Key"] != key:
                    continue
                found = True
                uri = f"s3://{store.bucket}/{item['Key']}"
                yield Listed(relative, uri, item["ETag"].strip('"'), item["Size"], location=item["Key"])
    if not found:
        raise SourceError(f"no objects under {source.uri}")


def opener(source: Source, settings: Settings) -> Opener:
    """Reads objects by key. Raises FileNotFoundError, StoreUnavailableError."""
    store, _ = _store(source.location, settings)
    whole = S3Store(f"s3://{store.bucket}", settings.store)
    return whole.get


def _store(uri: str, settings: Settings) -> tuple[S3Store, str]:
    require_boto3(uri)
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return S3Store(f"s3://{bucket}", settings.store), key


@contextmanager
def _reporting(uri: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise SourceError(f"cannot list {uri}: {describe(error)}") from error
