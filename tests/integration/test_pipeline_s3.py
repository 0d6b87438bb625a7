"""The same run into a bucket: the digest of a folder's index."""

from pathlib import Path

import pytest

from tests.integration.conftest import Indexed, corpusmill
from tests.integration.s3_server import S3Server

pytestmark = pytest.mark.integration


def test_an_index_on_s3_has_the_digest_of_one_on_disk(indexed: Indexed, s3: S3Server, tmp_path: Path) -> None:
    settings = {
        "CORPUSMILL__STORE__ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
    }
    index = f"s3://{s3.bucket}/pipeline"
    ran = corpusmill("index", str(indexed.source), "--to", index, "--json", cache=tmp_path / "cache", **settings)
    assert ran.code == 0, ran.err
    assert ran.json["digest"] == indexed.result["digest"]
    assert corpusmill("verify", index, "--json", cache=tmp_path / "cache", **settings).json["ok"] is True
    answer = corpusmill(
        "query",
        index,
        "Who was the chief engineer of the Golden Gate Bridge?",
        "--json",
        cache=tmp_path / "cache",
        **settings,
    ).json
    assert "Strauss" in answer["answer"]
