"""What the tests share: recorded bytes, ways to cut and to join them, and an oracle for frames.

The oracle cuts a stream into frames by slicing ``bytes``, with no memory of its own and no code of
the package, so that a mistake in the package cannot hide in it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    ErrorReceived,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
)
from iggy_protocol.framing import HeadroomBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iggy_protocol.layout import Buffer
    from iggy_protocol.registry import Command

RAW = Path(__file__).parents[1] / "golden" / "raw"
RECORDING_NAMES = sorted(path.stem for path in RAW.glob("*.jsonl"))

SEND_MESSAGES = 101
CONTROL_BYTES_MAX = 10_485_760

Connection = ClientConnection | ServerConnection
E = TypeVar("E")
Told = tuple[Any, ...]
"""An event as a plain tuple with its payload copied, so that it can be compared and kept."""


# Bytes and frames


def pattern(size: int, seed: int = 0) -> bytes:
    """Make bytes in which every misplaced piece shows."""
    return random.Random(seed).randbytes(size)


def request_frame(code: int, payload: bytes = b"") -> bytes:
    """Write a request frame."""
    return (len(payload) + 4).to_bytes(4, "little") + code.to_bytes(4, "little") + payload


def response_frame(status: int, payload: bytes = b"") -> bytes:
    """Write a response frame."""
    return status.to_bytes(4, "little") + len(payload).to_bytes(4, "little") + payload


def words(data: bytes, position: int) -> tuple[int, int]:
    """Read the two words of a head."""
    first = int.from_bytes(data[position : position + 4], "little")
    return first, int.from_bytes(data[position + 4 : position + 8], "little")


def requests_in(
    data: bytes,
    *,
    send_bytes_max: int = 67_108_864,
    control_bytes_max: int = CONTROL_BYTES_MAX,
) -> list[Told]:
    """Say what a server must hear in these bytes, followed by the end of the stream."""
    told: list[Told] = []
    position = 0
    while len(data) - position >= 8:
        length, code = words(data, position)
        size = length - 4
        limit = send_bytes_max if code == SEND_MESSAGES else control_bytes_max
        if size < 0:
            told.append(("refused", code))
            position += 8
        elif size > limit and code != SEND_MESSAGES:
            return [*told, ("failed", "FrameTooLarge")]
        elif size > limit:
            told.append(("refused", code))
            position += 8 + size
        elif position + 8 + size > len(data):
            break
        else:
            told.append(("request", code, data[position + 8 : position + 8 + size]))
            position += 8 + size
    return [*told, ("closed", position != len(data))]


def responses_in(
    data: bytes, commands: Iterable[object], *, response_bytes_max: int = 268_435_456
) -> list[Told]:
    """Say what a client must hear that has sent these commands."""
    told: list[Told] = []
    asked = list(commands)
    position = 0
    while len(data) - position >= 8:
        status, size = words(data, position)
        command = asked[0] if asked else None
        if size > response_bytes_max:
            return [*told, ("failed", "FrameTooLarge")]
        if status:
            told.append(("error", command, status))
        elif command is None:
            return [*told, ("failed", "RemoteProtocolError")]
        elif position + 8 + size > len(data):
            break
        else:
            told.append(("response", command, data[position + 8 : position + 8 + size]))
        asked = asked[1:]
        position += 8 + size
    return [*told, ("closed", position != len(data))]


class OtherFraming:
    """A dialect for tests: one byte of code or status, then the size of the payload."""

    def __init__(self, head_bytes: int) -> None:
        self.request_head_bytes = self.response_head_bytes = head_bytes
        self.payload_bytes_max = 2**24 - 1

    def read_request_head(self, buffer: Buffer, position: int) -> tuple[int, int]:
        size = bytes(buffer[position + 1 : position + self.request_head_bytes])
        return buffer[position], int.from_bytes(size, "little")

    def request_head(self, code: int, payload_bytes: int) -> bytes:
        return bytes([code]) + payload_bytes.to_bytes(self.request_head_bytes - 1, "little")

    def write_request_head(
        self, buffer: bytearray | memoryview, position: int, code: int, payload_bytes: int
    ) -> None:
        head = self.request_head(code, payload_bytes)
        buffer[position : position + len(head)] = head

    read_response_head = read_request_head
    response_head = request_head


# Recordings


@dataclass
class Recorded:
    """One recorded connection: all that each side sent."""

    name: str
    requests: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)


@cache
def recording(name: str) -> list[dict[str, Any]]:
    """Read the lines of a recording that are exchanges."""
    lines = (RAW / f"{name}.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines[1:]) if "request" in entry]


def reply_of(entry: dict[str, Any]) -> bytes:
    """Return the recorded reply; where the file has only its beginning, with zeros behind it."""
    reply = bytes.fromhex(entry["reply"] or "")
    return reply + bytes(entry.get("reply_length", len(reply)) - len(reply))


@cache
def recorded_connections(name: str) -> list[Recorded]:
    """Read what went over each connection of a recording."""
    connections: dict[int, Recorded] = {}
    for entry in recording(name):
        number = entry["conn"]
        recorded = connections.setdefault(number, Recorded(f"{name}-{number}"))
        recorded.requests.append(bytes.fromhex(entry["request"]))
        recorded.replies.append(reply_of(entry))
    return list(connections.values())


# Cutting and feeding


def random_pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Cut at random places, most pieces short and some long."""
    position = 0
    while position < len(data):
        size = rng.choice((1, 2, 3, 7, 8, 9, 20, 100, 1_000, 10_000))
        piece = data[position : position + rng.randint(1, size)]
        position += len(piece)
        yield piece


def whole(data: bytes) -> Iterator[bytes]:
    """Do not cut at all."""
    if data:
        yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    """Cut everywhere."""
    return (data[index : index + 1] for index in range(len(data)))


def feed_bytes(connection: Connection, piece: bytes) -> None:
    """Pass on what a socket returned."""
    connection.receive_data(piece)


def feed_reused(connection: Connection, piece: bytes) -> None:
    """Pass on a buffer that is overwritten right afterwards."""
    buffer = bytearray(piece)
    connection.receive_data(buffer)
    buffer[:] = b"\xee" * len(buffer)


def feed_in_place(connection: Connection, piece: bytes) -> None:
    """Read into the connection's own memory."""
    while piece:
        space = connection.get_buffer()
        size = min(len(space), len(piece))
        space[:size] = piece[:size]
        del space
        connection.buffer_updated(size)
        piece = piece[size:]


FEEDERS: dict[str, Callable[[Connection, bytes], None]] = {
    "bytes": feed_bytes,
    "reused": feed_reused,
    "in-place": feed_in_place,
}
CUTTERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "whole": whole,
    "byte-by-byte": byte_by_byte,
    "random": lambda data: random_pieces(data, random.Random(len(data))),
}


def tell(event: object) -> Told:
    """Copy an event into a tuple."""
    match event:
        case RequestReceived(code, payload):
            return ("request", code, bytes(payload))
        case RequestRefused(code, _):
            return ("refused", code)
        case ResponseReceived(command, payload):
            return ("response", command, bytes(payload))
        case ErrorReceived(command, status):
            return ("error", command, status)
        case ConnectionClosed(mid_frame):
            return ("closed", mid_frame)
    raise AssertionError(f"{event!r} is no event")


def release(event: object) -> None:
    """Give the payload of an event back, so that its memory receives the next frames."""
    if isinstance(event, RequestReceived | ResponseReceived):
        event.payload.release()


def drain(connection: Connection) -> list[Told]:
    """Hear everything there is to hear, answering nothing; a fatal error is the last word."""
    told: list[Told] = []
    while True:
        try:
            event = connection.next_event()
        except RemoteProtocolError as error:
            return [*told, ("failed", type(error).__name__)]
        if event is NEED_DATA or event is PAUSED:
            return told
        told.append(tell(event))
        release(event)
        if told[-1][0] == "closed":
            return told


def hear(
    connection: Connection,
    pieces: Iterable[bytes],
    feed: Callable[[Connection, bytes], None] = feed_bytes,
) -> list[Told]:
    """Feed all pieces and the end of the stream, and say what the connection made of them."""
    told: list[Told] = []
    for piece in pieces:
        feed(connection, piece)
        told += drain(connection)
        if told and told[-1][0] == "failed":
            return told
    connection.receive_eof()
    return told + drain(connection)


def joined(buffers: Iterable[Buffer | HeadroomBuffer]) -> bytes:
    """Write buffers as a socket would; free space in front of a payload is none of it."""
    return b"".join(
        part.buffer[part.headroom :] if isinstance(part, HeadroomBuffer) else part
        for part in buffers
    )


class ConnectionPair:
    """A client and a server, wired back to back."""

    def __init__(
        self,
        client: ClientConnection | None = None,
        server: ServerConnection | None = None,
        *,
        cut: Callable[[bytes], Iterator[bytes]] = whole,
        feed: Callable[[Connection, bytes], None] = feed_bytes,
    ) -> None:
        self.client = client or ClientConnection()
        self.server = server or ServerConnection()
        self.cut = cut
        self.feed = feed

    def ask(self, *commands: Command[Any]) -> list[RequestReceived]:
        """Send commands from the client and return what the server hears of them."""
        for command in commands:
            self._carry(self.client.send(command), self.server)
        return [self._expect(self.server, RequestReceived) for _ in commands]

    def answer(self, reply: object) -> ResponseReceived[Any]:
        """Answer the oldest request and return what the client hears."""
        self._carry(self.server.send(reply), self.client)
        return self._expect(self.client, ResponseReceived)

    def answer_error(self, status: int) -> ErrorReceived:
        """Refuse the oldest request and return what the client hears."""
        self._carry(self.server.send_error(status), self.client)
        return self._expect(self.client, ErrorReceived)

    def _carry(self, buffers: Iterable[Buffer], target: Connection) -> None:
        for piece in self.cut(joined(buffers)):
            self.feed(target, piece)

    def _expect(self, connection: Connection, kind: type[E]) -> E:
        event = connection.next_event()
        assert isinstance(event, kind), event
        return event
