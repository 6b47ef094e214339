"""HTTP requests of tasks: with retries that grow apart, and within limits."""

from __future__ import annotations

import http.client
import random
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.secrets import HIDDEN

REFUSED: Final = frozenset({400, 413, 415, 422})
"""Answers that blame the rows; all others blame the request, the sender or the server."""

RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that another attempt may change."""

DELAY_S: Final = 0.2
DELAY_MAX_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 << 20
SHOWN_CHARACTERS: Final = 300


class RequestFailedError(RuntimeError):
    """A server did not take a request, however often it was sent."""


class RowsRefusedError(RequestFailedError):
    """A server cannot use what a request holds; sending it again would change nothing."""


@dataclass(frozen=True)
class HttpTarget:
    """Where requests go.

    Attributes:
        url: the address.
        headers: headers of each request; they may hold secrets, and are never shown.
        attempts: how often a request is sent at most.
        timeout_s: how long one attempt waits for an answer.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    attempts: int = 8
    timeout_s: float = 30.0

    @property
    def shown_url(self) -> str:
        """The address without its login and its parameters."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        login = f"{HIDDEN}@" if "@" in parts.netloc else ""
        return f"{parts.scheme}://{login}{host}{parts.path}"

    def check(self) -> None:
        """Refuse what is no address.

        Raises:
            OptionError: the scheme is another one, or there is no host.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"{self.shown_url} is no URL; write http://host:port/path")


class HttpConnection:
    """One connection of a task, opened again when it is lost.

    Args:
        target: where requests go.
    """

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._parts = urlsplit(target.url)
        self._connection: http.client.HTTPConnection | None = None
        self._wanted_s = 0.0

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Send a request until it is taken, and return the answer.

        Raises:
            RowsRefusedError: the server cannot use what it holds.
            RequestFailedError: the server does not take it, or cannot be reached.
        """
        reason = ""
        for attempt in range(self._target.attempts):
            self.wait_before(attempt)
            try:
                status, answer = self._send(path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = str(error) or type(error).__name__
                continue
            if status < 300:
                return answer
            reason = f"status {status}: {answer[:SHOWN_CHARACTERS].decode(errors='replace')}"
            if status in REFUSED:
                raise RowsRefusedError(f"refused with {reason}")
            if status not in RETRIED:
                break
        raise RequestFailedError(f"{self._target.shown_url} did not take a request: {reason}")

    def wait_before(self, attempt: int) -> None:
        """Wait before another attempt, at least as long as the server wants."""
        if attempt:
            # Nothing wakes a task earlier: it is the server that needs the time.
            threading.Event().wait(max(self._wanted_s, self._delay(attempt)))

    def _delay(self, attempt: int) -> float:
        longest: float = min(DELAY_MAX_S, DELAY_S * 2 ** min(attempt, 10))
        # Tasks that failed together shall not come back together.
        return longest * random.uniform(0.5, 1.0)

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._open()
        root = self._parts.path.rstrip("/")
        query = f"?{self._parts.query}" if self._parts.query else ""
        every = {**self._target.headers, **headers}
        self._connection.request("POST", f"{root}{path}{query}" or "/", body, every)
        response = self._connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX)
        after = response.getheader("Retry-After", "")
        self._wanted_s = min(DELAY_MAX_S, float(after)) if after.isdigit() else 0.0
        return response.status, answer

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        timeout = self._target.timeout_s
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
