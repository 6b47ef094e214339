"""Recordings of the REST face of a real 0.8.0 server, and when two answers are the same.

An answer is the same when status, headers and content are, after the fields that depend on time,
chance or the machine are masked. Of the sentences of the original's JSON parser only the beginning
counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import httpx

GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden" / "http"
# In this order they were made, on one server.
SCENES: Final = (
    "public-paths",
    "login",
    "streams",
    "topics-partitions",
    "messages",
    "consumer-groups",
    "users-tokens",
    "system",
)

MASKED: Final = frozenset(
    {
        "created_at",
        "timestamp",
        "origin_timestamp",
        "checksum",
        "token",
        "expiry",
        "expiry_at",
        "client_id",
        "address",
        "process_id",
        "cpu_usage",
        "total_cpu_usage",
        "memory_usage",
        "total_memory",
        "available_memory",
        "run_time",
        "start_time",
        "read_bytes",
        "written_bytes",
        "hostname",
        "os_name",
        "os_version",
        "kernel_version",
        "threads_count",
        "free_disk_space",
        "total_disk_space",
        "endpoints",
    }
)
# The length differs with what is masked, the name of a snapshot holds the time.
HEADERS_MASKED: Final = frozenset({"content-length", "content-disposition"})
PARSER_SENTENCES: Final = (
    "Failed to deserialize the JSON body into the target type",
    "Failed to parse the request body as JSON",
    "Failed to deserialize query string",
)
SENT_IDS: Final = frozenset({2**128 - 1})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what the real server answered."""

    scene: str
    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int
    response_headers: dict[str, str]
    response: Any

    def content(self) -> bytes:
        """Return the body as it was sent."""
        if self.body is None:
            return b""
        if isinstance(self.body, str):
            if self.body.startswith("<") and self.body.endswith(" bytes>"):
                return b"x" * int(self.body[1:-7])
            return self.body.encode()
        return json.dumps(self.body).encode()


def read_scene(scene: str) -> list[Exchange]:
    """Read one file."""
    recorded = json.loads((GOLDEN / f"{scene}.json").read_text())
    assert recorded["server"] == "0.8.0"
    return [
        Exchange(
            scene,
            entry["name"],
            entry["request"]["method"],
            entry["request"]["path"],
            entry["request"]["headers"],
            entry["request"]["body"],
            entry["status"],
            entry["response_headers"],
            entry["response"],
        )
        for entry in recorded["exchanges"]
    ]


def mask(value: Any) -> Any:
    """Replace what cannot be the same twice."""
    if isinstance(value, dict):
        return {key: _mask_field(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    return value


def _mask_field(key: str, value: Any) -> Any:
    if key in MASKED and value is not None:
        return f"<{key}>"
    # The server makes up ids of 128 bits for messages without one.
    if key == "id" and value > 2**64 and value not in SENT_IDS:
        return "<id>"
    return mask(value)


def _text(text: str) -> object:
    if text.startswith("# HELP"):
        return _metrics(text)
    for sentence in PARSER_SENTENCES:
        if text.startswith(f"{sentence}: "):
            return sentence
    return text


def _metrics(text: str) -> dict[str, int]:
    """Read the metrics that the original has, without the count of requests."""
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    found = {name: int(value) for name, value in lines if name != "http_requests_total"}
    for name in ("consumer_groups", "messages_size_bytes"):
        found.pop(name, None)
    return found


def recorded_answer(exchange: Exchange) -> tuple[Any, ...]:
    """Return what a server has to answer."""
    headers = {
        name: value
        for name, value in exchange.response_headers.items()
        if name not in HEADERS_MASKED
    }
    content = exchange.response
    if headers.get("content-type") == "application/zip":
        content = content.rpartition(" ")[2].rstrip(">")
    elif isinstance(content, str):
        content = _text(content)
    return exchange.status, headers, mask(content)


def given_answer(answer: httpx.Response) -> tuple[Any, ...]:
    """Return what a server has answered, in the same form."""
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in HEADERS_MASKED and name != "date"
    }
    kind = headers.get("content-type", "")
    content: Any = _text(answer.text) if kind != "application/zip" else answer.content[:4].hex()
    if kind == "application/json":
        content = answer.json()
    return answer.status_code, headers, mask(content)
