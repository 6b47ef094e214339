"""Prometheus' text format, and a small HTTP server for it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PATH: Final = "/metrics"

REQUEST_SECONDS_MAX: Final = 10.0
"""How long a client may take to ask; a thread serves each."""


def metric_lines(
    name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> Iterator[str]:
    """Write one metric.

    Args:
        name: its full name.
        kind: ``counter`` or ``gauge``.
        text: what it is.
        samples: labels and value of each series.
    """
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        pairs = ",".join(f'{label}="{escape_label(one)}"' for label, one in labels.items())
        yield f"{name}{{{pairs}}} {value!r}"


def escape_label(value: str) -> str:
    """Write the value of a label."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsServer:
    """Answers requests for metrics, on a thread of its own.

    Args:
        text: returns the metrics.
        host: the address to listen at.
        port: where; 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, text: Callable[[], str], host: str, port: int) -> None:
        handler = type("_MetricsHandler", (_Handler,), {"text": staticmethod(text)})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="iggy-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{PATH}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    text: Callable[[], str]
    timeout: ClassVar[float | None] = REQUEST_SECONDS_MAX

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        body = self.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Log nothing: Prometheus asks every few seconds."""
