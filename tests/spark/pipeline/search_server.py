"""A small HTTP server that answers like Elasticsearch, and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SearchServer:
    """Documents by their id, requests, and what goes wrong.

    Attributes:
        documents: what is stored.
        requests: the headers and the body of each request.
        statuses: answers to the next requests as a whole, before any is stored.
        on_request: is called with the number of each request before it is answered.
        busy: ids of documents that are refused once with 429.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.requests: list[tuple[dict[str, str], str]] = []
        self.statuses: deque[int] = deque()
        self.busy: set[Any] = set()
        self.url = ""
        self.on_request: Callable[[int], None] = lambda number: None
        self._lock = threading.Lock()

    def answer(self, path: str, headers: dict[str, str], body: str) -> tuple[int, Any]:
        """Answer a request."""
        with self._lock:
            self.requests.append((headers, body))
            self.on_request(len(self.requests))
            if self.statuses:
                return self.statuses.popleft(), {"error": "come again"}
            if not path.endswith("/_bulk"):
                return 200, {}
            lines = [json.loads(line) for line in body.splitlines()]
            items = [self._store(*pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
        return 200, {
            "errors": any(item["status"] >= 300 for item in items),
            "items": [{"index": item} for item in items],
        }

    def _store(self, action: Any, document: Any) -> dict[str, Any]:
        name = action["index"]["_id"]
        if document["id"] in self.busy:
            self.busy.remove(document["id"])
            return {"status": 429, "error": {"type": "rejected", "reason": "queue full"}}
        if document["id"] == 13:
            return {"status": 400, "error": {"type": "mapper_parsing", "reason": "thirteen"}}
        self.documents[name] = document
        return {"status": 201}


@contextmanager
def search_server() -> Iterator[SearchServer]:
    """Run a server on a free port."""
    state = SearchServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = state.answer(self.path, dict(self.headers), body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
