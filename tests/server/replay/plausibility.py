"""Whether the bytes that no recording can fix make sense: times, checksums, ids, addresses.

Pure: a frame of this run and what is known of the run in, sentences out.
"""

from __future__ import annotations

import base64
import io
import time
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iggy_protocol import CommandCode, ProtocolError, client_id, decode_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_protocol import ClientInfo
    from tests.server.replay.recording import Exchange

HEAD_BYTES = 8
TOKEN_BYTES = 50
TOKEN_LIFE_US_MAX = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of this run.

    Attributes:
        started_us: when it began, in microseconds since the epoch.
        local_address: this end of the connection that was asked.
    """

    started_us: int
    local_address: str


def now_us() -> int:
    """Return the time as servers write it."""
    return time.time_ns() // 1_000


def nonsense(exchange: Exchange, frame: bytes, run: Run) -> Iterator[str]:
    """Find masked bytes of a reply that make no sense."""
    for mask in exchange.masks:
        check = CHECKS.get(mask.why)
        masked = frame[mask.start : mask.end]
        if check is not None and len(masked) == mask.end - mask.start:
            problem = check(masked, run)
            if problem:
                yield f"{mask.why} at byte {mask.start}: {problem}"
    yield from _whole(exchange, frame, run)


def _moment(masked: bytes, run: Run) -> str:
    moment_us = int.from_bytes(masked, "little")
    if run.started_us <= moment_us <= now_us():
        return ""
    return f"{moment_us} is not between the start of the run, {run.started_us}, and now"


def _expiry(masked: bytes, run: Run) -> str:
    moment_us = int.from_bytes(masked, "little")
    if run.started_us <= moment_us <= now_us() + TOKEN_LIFE_US_MAX:
        return ""
    return f"{moment_us} is no expiry that was asked for"


def _message_id(masked: bytes, run: Run) -> str:
    return "" if any(masked) else "a message without an id"


def _token(masked: bytes, run: Run) -> str:
    try:
        size = len(base64.b64decode(masked, validate=True))
    except ValueError:
        return "not Base64"
    return "" if size == TOKEN_BYTES else f"{size} bytes of secret"


CHECKS: dict[str, Callable[[bytes, Run], str]] = {
    "created_at": _moment,
    "server timestamp": _moment,
    "expiry_at": _expiry,
    "id made by the server": _message_id,
    "token": _token,
}


def _whole(exchange: Exchange, frame: bytes, run: Run) -> Iterator[str]:
    """Check what only a decoded reply can tell."""
    whys = {mask.why for mask in exchange.masks}
    code, payload = exchange.code, frame[HEAD_BYTES:]
    try:
        if "checksum" in whys:
            decode_reply(CommandCode.POLL_MESSAGES, payload).messages.verify()
        if "client_id" in whys:
            yield from _client(decode_reply(CommandCode.GET_ME, payload), code, run)
        if "order, ids and addresses of clients" in whys:
            for client in decode_reply(CommandCode.GET_CLIENTS, payload):
                yield from _client(client, code, run)
        if "archive bytes" in whys:
            with zipfile.ZipFile(io.BytesIO(payload)):
                pass
        if "host, os and version texts, threads and disk figures" in whys:
            yield from _stats(payload, run)
    except (ProtocolError, zipfile.BadZipFile) as error:
        yield str(error)


def _client(client: ClientInfo, code: int | None, run: Run) -> Iterator[str]:
    if client.client_id != client_id(client.address):
        yield f"client id {client.client_id} does not belong to {client.address}"
    if code == CommandCode.GET_ME and client.address != run.local_address:
        yield f"{client.address} is not the address of this client, {run.local_address}"


def _stats(payload: bytes, run: Run) -> Iterator[str]:
    stats = decode_reply(CommandCode.GET_STATS, payload)
    if not (stats.hostname and stats.os_name and stats.kernel_version and stats.process_id):
        yield "a statistic of the host is missing"
    if not 0 < stats.available_memory_bytes <= stats.total_memory_bytes:
        yield "the memory does not add up"
    # The kernel counts the age of a process in ticks, so its start may seem a little earlier.
    if not run.started_us - 1_000_000 <= stats.start_time_us <= now_us():
        yield f"start time {stats.start_time_us}"
    if not stats.server_version or stats.host is None:
        yield "the version or the figures of the host are missing"
