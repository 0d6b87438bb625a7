"""The shipped S3 policies on a real server: what each role may and may not do, and that it is enough for its work.

The server (SeaweedFS) takes users' policies through its IAM interface. It does not know `StringLikeIfExists`, for which
`StringLike` stands in, nor conditions on conditional writes, so s3-bucket.json is not tried here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corpusmill.errors import StoreUnavailableError
from corpusmill.settings import StoreSettings
from corpusmill.store.s3 import S3Store
from tests.integration.conftest import APPLE, corpusmill
from tests.integration.s3_server import S3Server, s3_server
from tests.shared import REPOSITORY

pytestmark = pytest.mark.integration
ROLES = ("indexer", "reader", "gc")


@dataclass(frozen=True)
class Roles:
    server: S3Server
    keys: dict[str, tuple[str, str]]

    def environment(self, role: str) -> dict[str, str]:
        access, secret = self.keys[role]
        return self.server.environment | {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}

    def root(self, kind: str) -> Any:
        return self.client(kind, (self.server.access_key, self.server.secret_key))

    def client(self, kind: str, keys: tuple[str, str]) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            kind,
            endpoint_url=self.server.endpoint,
            aws_access_key_id=keys[0],
            aws_secret_access_key=keys[1],
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """A server with a corpus, a neighbour's object, and one user a role with its policy."""
    with s3_server(tmp_path_factory.mktemp("s3"), options=["-s3.iam.readOnly=false"]) as server:
        found = Roles(server, {})
        objects, iam = found.root("s3"), found.root("iam")
        for name, text in APPLE.items():
            objects.put_object(Bucket=server.bucket, Key=f"corpus/{name}", Body=text.encode())
        objects.put_object(Bucket=server.bucket, Key="neighbour/secret.txt", Body=b"not ours")
        for role in ROLES:
            policy = (REPOSITORY / "infra" / "policies" / f"s3-{role}.json").read_text("utf-8")
            policy = policy.replace("BUCKET", server.bucket).replace("StringLikeIfExists", "StringLike")
            iam.create_user(UserName=role)
            key = iam.create_access_key(UserName=role)["AccessKey"]
            iam.put_user_policy(UserName=role, PolicyName="own", PolicyDocument=json.dumps(json.loads(policy)))
            found.keys[role] = (key["AccessKeyId"], key["SecretAccessKey"])
        yield found


Operation = Callable[[S3Store], object]
WRITES: dict[str, Operation] = {
    "a segment": lambda store: store.put("segments/f/s/t.parquet", b"1"),
    "a run's state": lambda store: store.put("runs/r/state.json", b"1"),
    "a manifest": lambda store: store.create("snapshots/00000099.json", b"1"),
    "a reference": lambda store: store.swap("refs/other.json", b"1", None),
}
DELETES: dict[str, tuple[str, set[str]]] = {
    "a manifest after a lost race": ("snapshots/00000098.json", {"indexer", "gc"}),
    "kept frames of a stage": ("runs/r/frames/x.arrow", {"indexer", "gc"}),
    "a run's state": ("runs/r/state.json", {"gc"}),
    "the probe of doctor": ("runs/doctor-x/probe", {"indexer", "gc"}),
    "a segment": ("segments/f/old/t.parquet", {"gc"}),
    "a table": ("data/r/t.parquet", {"gc"}),
    "cached responses": ("cache/m/x.parquet", {"gc"}),
    "a reference": ("refs/gone.json", set()),
}


def _may(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except StoreUnavailableError as error:
        assert "access denied" in str(error)
        return False
    return True


def _store(roles: Roles, role: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    for name, value in roles.environment(role).items():
        monkeypatch.setenv(name, value)
    return S3Store(f"s3://{roles.server.bucket}/{prefix}", StoreSettings(retries=0))


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_write(roles: Roles, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = _store(roles, role, "index", monkeypatch)
    for what, write in WRITES.items():
        assert _may(lambda write=write: write(index)) == (role == "indexer"), what  # type: ignore[misc]
    assert not _may(lambda: _store(roles, role, "corpus", monkeypatch).put("fruit/evil.md", b"1"))
    for key in ("refs/other.json", "snapshots/00000099.json"):  # no index of the next test's
        roles.root("s3").delete_object(Bucket=roles.server.bucket, Key=f"index/{key}")


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_delete(roles: Roles, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = _store(roles, role, "index", monkeypatch)
    for what, (key, allowed) in DELETES.items():
        assert _may(lambda key=key: index.delete(key)) == (role in allowed), what  # type: ignore[misc]
    assert not _may(lambda: _store(roles, role, "corpus", monkeypatch).delete("fruit/orchard.md"))


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_read(roles: Roles, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = _store(roles, role, "index", monkeypatch)
    assert not index.exists("refs/absent.json")  # absent, not forbidden
    assert _may(lambda: list(index.list("refs/")))
    assert _may(lambda: _store(roles, role, "corpus", monkeypatch).get("fruit/orchard.md")) == (role == "indexer")
    neighbour = _store(roles, role, "neighbour", monkeypatch)
    assert not _may(lambda: neighbour.get("secret.txt"))
    assert not _may(lambda: list(neighbour.list("")))


def test_the_policies_are_enough_for_a_run_and_a_question(roles: Roles, tmp_path: Path) -> None:
    bucket = roles.server.bucket
    index = f"s3://{bucket}/index"
    ran = corpusmill(
        "index", f"s3://{bucket}/corpus", "--to", index, "-m", "dense-rerank", "--json",
        cache=tmp_path / "a", **roles.environment("indexer"),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["documents"]["new"] == len(APPLE)
    reader = roles.environment("reader")
    asked = corpusmill("query", index, "Who designed the Macintosh?", "--json", cache=tmp_path / "b", **reader)
    assert asked.code == 0, asked.err
    assert asked.json["citations"]
    for command in ("verify", "documents", "snapshots", "status"):
        assert corpusmill(command, index, "--json", cache=tmp_path / "b", **reader).code == 0, command
    refused = corpusmill(
        "index", f"s3://{bucket}/corpus", "--to", index, "-m", "dense-rerank", "--json", cache=tmp_path / "b", **reader
    )
    assert refused.code != 0
    assert "access denied" in refused.err
    doctor = corpusmill("doctor", index, "--json", cache=tmp_path / "a", **roles.environment("indexer"))
    (store,) = [check for check in doctor.json["checks"] if check["name"] == "store"]
    assert store["status"] == "ok", store
