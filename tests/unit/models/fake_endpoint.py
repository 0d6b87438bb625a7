"""A real HTTP server that plays an OpenAI-compatible endpoint, well or badly, as a script says."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Call"], "Answer"]


class Call:
    def __init__(self, path: str, body: dict[str, Any], headers: dict[str, str], number: int) -> None:
        self.path, self.body, self.headers, self.number = path, body, headers, number


class Answer:
    """What the server does: a status with a body, after `delay`; `cut` drops the connection in the middle."""

    def __init__(
        self, body: Any, status: int = 200, headers: dict[str, str] | None = None, delay: float = 0, cut: bool = False
    ) -> None:
        self.raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers, self.delay, self.cut = status, headers or {}, delay, cut


def chat(text: str, finish: str = "stop", prompt: int = 10, completion: int = 5) -> Answer:
    return Answer(
        {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
        }
    )


def refusal(status: int, message: str, **more: Any) -> Answer:
    headers = more.pop("headers", None)
    return Answer({"error": {"message": message, **more}}, status, headers)


class FakeEndpoint:
    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.calls: list[Call] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    call = Call(self.path, body, {k.lower(): v for k, v in self.headers.items()}, len(outer.calls))
                    outer.calls.append(call)
                answer = outer.reply(call)
                time.sleep(answer.delay)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.raw)))
                self.end_headers()
                if answer.cut:
                    self.wfile.write(answer.raw[: len(answer.raw) // 2])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                self.wfile.write(answer.raw)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def endpoint(reply: Reply) -> Iterator[FakeEndpoint]:
    server = FakeEndpoint(reply)
    server.start()
    try:
        yield server
    finally:
        server.stop()
