import socket
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest

from corpusmill.errors import CommitConflictError, CommitUnknownError, StoreUnavailableError, UsageError
from corpusmill.settings import StoreSettings
from corpusmill.store.objects import open_store
from corpusmill.store.s3 import S3Store
from tests.integration.s3_server import S3Server
from tests.store_contract import StoreContract

pytestmark = pytest.mark.integration
ONCE = StoreSettings(retries=0, timeout_s=5)


@pytest.fixture
def store(s3: S3Server) -> S3Store:
    return S3Store(f"s3://{s3.bucket}/{uuid4().hex}")


class TestS3Store(StoreContract):
    pass


def test_at_the_root_of_a_bucket(s3: S3Server) -> None:
    store = S3Store(f"s3://{s3.bucket}")
    store.put("root/a", b"1")
    assert [info.key for info in store.list("root/")] == ["root/a"]


def test_endpoint_from_the_settings(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    store = S3Store(f"s3://{s3.bucket}/e", StoreSettings(endpoint_url=s3.endpoint))
    store.put("a", b"1")
    assert store.get("a") == b"1"


def _uses(store: S3Store) -> list[str]:
    """What each operation says about a store that cannot be used."""
    messages = []
    for use in (
        lambda: store.get("a"),
        lambda: list(store.list("a")),
        lambda: store.put("a", b"1"),
        lambda: store.create("a", b"1"),
    ):
        with pytest.raises(StoreUnavailableError) as caught:
            use()
        assert store.uri in str(caught.value)
        messages.append(str(caught.value))
    return messages


def test_missing_bucket(s3: S3Server) -> None:
    assert all("the bucket does not exist" in m for m in _uses(S3Store("s3://no-such-bucket/x", ONCE)))


def test_wrong_secret(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert all("the secret key is wrong" in m for m in _uses(S3Store(f"s3://{s3.bucket}/x", ONCE)))


def test_wrong_access_key(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert all("access key is not known" in m for m in _uses(S3Store(f"s3://{s3.bucket}/x", ONCE)))


def test_no_credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    assert all("Unable to locate credentials" in m for m in _uses(S3Store(f"s3://{s3.bucket}/x", ONCE)))


def test_endpoint_down(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    store = S3Store("s3://bucket/x", ONCE)
    with pytest.raises(StoreUnavailableError, match=r"s3://bucket/x/a: Could not connect"):
        store.get("a")
    with pytest.raises(CommitUnknownError, match="s3://bucket/x/a"):
        store.create("a", b"1")


def test_no_bucket_in_the_uri() -> None:
    with pytest.raises(UsageError, match="names no bucket"):
        open_store("s3:///x")


class _LosingProxy:
    """Passes requests on to the server and drops the answer of the first `losses` PUTs after the server gave it."""

    def __init__(self, endpoint: str, losses: int) -> None:
        host, port = endpoint.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self.losses = losses
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request a connection: the answer's end is the server's close."""
        with client, socket.create_connection(self._target) as server:
            request = self._read_request(client)
            head, _, body = request.partition(b"\r\n\r\n")
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            answer = b""
            while piece := server.recv(65536):
                answer += piece
            if head.startswith(b"PUT") and self.lost < self.losses:
                self.lost += 1
                return
            client.sendall(answer)

    @staticmethod
    def _read_request(client: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += client.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        size = next((int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length")), 0)
        if b"100-continue" in head.lower():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        while len(body) < size:
            body += client.recv(65536)
        return head + b"\r\n\r\n" + body


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[_LosingProxy]:
    proxy = _LosingProxy(s3.endpoint, 1)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("retries", [0, 3])
def test_a_lost_response_is_not_a_conflict(s3: S3Server, proxy: _LosingProxy, retries: int) -> None:
    """The server wrote the object and the answer was lost; whether boto retries or we look, it is a success."""
    settings = StoreSettings(endpoint_url=proxy.endpoint, retries=retries, timeout_s=10)
    store = S3Store(f"s3://{s3.bucket}/{uuid4().hex}", settings)
    store.create("refs/main.json", b"1")
    assert proxy.lost == 1
    proxy.lost = 0
    store.swap("refs/main.json", b"2", store.get_versioned("refs/main.json").tag)
    assert proxy.lost == 1
    assert store.get("refs/main.json") == b"2"


def test_a_lost_response_of_a_loser_is_a_conflict(s3: S3Server, proxy: _LosingProxy) -> None:
    prefix = uuid4().hex
    S3Store(f"s3://{s3.bucket}/{prefix}").create("k", b"winner")
    store = S3Store(f"s3://{s3.bucket}/{prefix}", StoreSettings(endpoint_url=proxy.endpoint, retries=0))
    with pytest.raises(CommitConflictError):
        store.create("k", b"loser")
