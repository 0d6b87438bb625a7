"""A chat-completions endpoint that answers by a regular expression and writes down every call it was sent.

`python tests/integration/model_server.py HOST PORT LATENCY LOG`: each call is one line of LOG, the digest of its body.
Answers are a function of the prompt, as those of a model at temperature 0 should be.
"""

import hashlib
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PASSAGE = re.compile(r"<passage>\n(.*?)\n</passage>", re.S)
_NAME = re.compile(r"\b[A-Z][A-Za-z0-9]+(?: [A-Z][A-Za-z0-9]+)*\b")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WORDS = 25


def answer(schema: dict[str, Any], prompt: str) -> dict[str, Any]:
    """Items for an extraction; else a few words of the prompt for each text that the schema asks for."""
    properties = schema.get("properties", {})
    if "items" in properties:
        return {"items": _items(_PASSAGE.findall(prompt)[-1])}
    words = " ".join(prompt.split()[:_WORDS])
    return {name: words if kind.get("type") == "string" else [] for name, kind in properties.items()}


def _items(passage: str) -> list[dict[str, Any]]:
    found = []
    for match in _SENTENCE.finditer(passage):
        sentence = match.group().strip()
        names = list(dict.fromkeys(_NAME.findall(sentence)))[:4]
        if len(names) > 1:
            found.append({"statement": sentence, "quote": sentence, "entities": names})
    return found[:8]


def main(host: str, port: int, latency: float, log: Path) -> None:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(raw)
            messages = [[message["role"], message["content"]] for message in body["messages"]]
            with lock, log.open("a", encoding="ascii") as out:
                out.write(hashlib.blake2b(json.dumps(messages).encode(), digest_size=16).hexdigest() + "\n")
            time.sleep(latency)
            schema = body["response_format"]["json_schema"]["schema"]
            text = json.dumps(answer(schema, messages[-1][1]))
            usage = {"prompt_tokens": len(raw) // 4, "completion_tokens": len(text) // 4}
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            told = json.dumps({"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    Server((host, port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
