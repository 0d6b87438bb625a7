"""The S3 policies as documents; what a server makes of them is tests/integration/test_s3_policies.py."""

import json
import re
from typing import Any

import pytest

from corpusmill.store import layout
from tests.shared import REPOSITORY

POLICIES = REPOSITORY / "infra" / "policies"
STORE = REPOSITORY / "corpusmill" / "store" / "s3.py"
# The permission behind each call of the client (a part of an upload needs that of the whole).
NEEDS = {
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object": "s3:PutObject",
    "upload_file": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "list_objects_v2": "s3:ListBucket",
}
ROOMS = {
    layout.snapshot_key(1): "snapshots",
    layout.ref_key("main"): "refs",
    layout.segment_key("f", "s", "t"): "segments",
    layout.data_key("r", "t"): "data",
    layout.run_key("r", "spec.json"): "runs",
    layout.cache_key("m"): "cache",
}


def statements(name: str) -> list[dict[str, Any]]:
    document = json.loads((POLICIES / f"s3-{name}.json").read_text("utf-8"))
    assert document["Version"] == "2012-10-17"
    return document["Statement"]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(name: str, effect: str = "Allow") -> set[str]:
    return {action for s in statements(name) if s["Effect"] == effect for action in _each(s["Action"])}


def resources(name: str, action: str) -> set[str]:
    found = [r for s in statements(name) if action in _each(s["Action"]) for r in _each(s["Resource"])]
    return {resource.removeprefix("arn:aws:s3:::") for resource in found}


@pytest.mark.parametrize("name", ["indexer", "reader", "gc", "bucket"])
def test_nothing_is_granted_wholesale(name: str) -> None:
    sids = []
    for statement in statements(name):
        sids.append(statement["Sid"])
        for action in _each(statement["Action"]):
            assert "*" not in action
        for resource in _each(statement["Resource"]):
            assert resource.startswith("arn:aws:s3:::BUCKET")
            assert ("/" in resource) == ("s3:ListBucket" not in _each(statement["Action"]))
    assert len(sids) == len(set(sids))


def test_the_indexer_may_do_what_the_store_does() -> None:
    source = STORE.read_text("utf-8") + (REPOSITORY / "corpusmill" / "sources" / "objects.py").read_text("utf-8")
    called = set(re.findall(r"client\.(\w+)\(", source)) - {"get_paginator"} | set(
        re.findall(r'get_paginator\("(\w+)"', source)
    )
    assert called == set(NEEDS)  # a new call of the client needs a thought about the policies
    assert {NEEDS[name] for name in called} | {"s3:AbortMultipartUpload"} == actions("indexer")


def test_who_may_delete_what() -> None:
    places = {"snapshots/*", "runs/*/frames/*", "runs/doctor-*"}
    assert resources("indexer", "s3:DeleteObject") == {f"BUCKET/index/{place}" for place in places}
    assert not resources("reader", "s3:DeleteObject")
    rooms = {resource.split("/")[2] for resource in resources("gc", "s3:DeleteObject")}
    assert rooms == set(ROOMS.values()) - {"refs"}  # a reference is moved, never removed
    for key, room in ROOMS.items():
        assert key.startswith(room + "/")


def test_what_deletes_has_a_place_in_the_policies() -> None:
    """A lost race's manifest, kept frames, the probe of doctor: whoever deletes more must be given more."""
    found = set()
    for room in ("corpusmill", "spark_jobs", "ray_actors", "jobs"):
        for path in (REPOSITORY / room).rglob("*.py"):
            if re.search(r"store\.delete\(", path.read_text("utf-8")):
                found.add(str(path.relative_to(REPOSITORY)))
    assert found <= {"corpusmill/store/commit.py", "spark_jobs/kept.py", "jobs/health.py"}


def test_only_the_indexer_writes_and_the_corpus_is_only_read() -> None:
    assert "s3:PutObject" not in actions("reader") | actions("gc")
    assert resources("indexer", "s3:PutObject") == {"BUCKET/index/*"}
    assert not any("corpus" in resource for name in ("reader", "gc") for resource in resources(name, "s3:GetObject"))


def test_manifests_and_references_are_written_conditionally_by_everyone() -> None:
    denied = {s["Resource"]: s["Condition"]["Null"] for s in statements("bucket")}
    assert denied == {
        "arn:aws:s3:::BUCKET/index/snapshots/*": {"s3:if-none-match": "true"},
        "arn:aws:s3:::BUCKET/index/refs/*": {"s3:if-none-match": "true", "s3:if-match": "true"},
    }
    assert actions("bucket", "Deny") == {"s3:PutObject"} and not actions("bucket")
    assert {s["Principal"] for s in statements("bucket")} == {"*"}
