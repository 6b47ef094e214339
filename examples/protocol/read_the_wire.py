"""Decode recorded bytes of a client and of Apache Iggy 0.8.0.

The hexadecimal text below was recorded between a client and a server of version 0.8.0 (abridged:
sends to other partitions are left out). Decoding both directions needs both sides of the protocol:
a ``ServerConnection`` decodes the client's bytes, a ``ClientConnection`` the server's. Encoding
each command again gives the recorded bytes, which the program checks.

Run it with ``python examples/protocol/read_the_wire.py``.
"""

from __future__ import annotations

import textwrap
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING

from iggy_protocol import (
    NO_CONTEXT,
    NO_OPTIONS,
    ClientConnection,
    ErrorReceived,
    MessageBatch,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
    status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# ">" are bytes of the client, "<" bytes of the server.
RECORDED = """
> 0400000014000000
< 2800000000000000
> 1600000026000000046967677904696767790000000000000000
< 000000000400000000000000
> 06000000ca0000000173
< 000000002200000000000000019e34c05c6006000000000000000000000000
  0000000000000000000173
> 1f0000002e0100000201730300000001000000000000000000000000000000
  00000174
< 00000000ac0000000000000044a134c05c60060003000000ffffffffffffff
  ff01ffffffffffffffff010000000000000000000000000000000001740000
  00004aa134c05c600600000000000000000000000000000000000000000000
  00000000000000010000004aa134c05c600600000000000000000000000000
  00000000000000000000000000000000020000004aa134c05c600600000000
  00000000000000000000000000000000000000000000000000
> 68000000650000000c00000002017302017401000100000000000000440000
  00000000000000000000000000000000000100000000000000000000000000
  00000000000000000000000000000000000000401e18240a06000000000004
  00000000000000000000006d303030
< 0000000000000000
> 68000000650000000c00000002017302017401000100000000000000440000
  00000000000000000000000000000000000400000000000000000000000000
  00000000000000000000000000000000000000401e18240a06000000000004
  00000000000000000000006d303033
< 0000000000000000
> 24000000640000000101040100000002017302017401000000000100000000
  000000006400000000
< 000000009800000000000000010000000000000002000000a7b84c9e569cfd
  0c01000000000000000000000000000000000000000000000013d334c05c60
  060000401e18240a0600000000000400000000000000000000006d30303056
  afb01de6663c49040000000000000000000000000000000100000000000000
  8cd534c05c60060000401e18240a0600000000000400000000000000000000
  006d303033
"""

COLUMNS = 100
INDENT = " " * 22


def frames(recorded: str) -> Iterator[tuple[str, bytes]]:
    """Cut the recording into the frames of either side."""
    for frame in recorded.strip().replace("\n  ", "").splitlines():
        direction, digits = frame.split()
        yield direction, bytes.fromhex(digits)


EMPTY = (None, "", b"", (), NO_OPTIONS, NO_CONTEXT)


def show(value: object) -> str:
    """Write a value much as Python would: nothing that is empty, and of lists the length only."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, MessageBatch | tuple):
        return f"<{len(value)}>"
    if is_dataclass(value):
        named = [(field.name, getattr(value, field.name)) for field in fields(value) if field.repr]
        known = [f"{name}={show(item)}" for name, item in named if item not in EMPTY]
        return f"{type(value).__name__}({', '.join(known)})"
    return repr(value)


def print_row(who: str, size: int, meaning: str, messages: MessageBatch | None) -> None:
    """Print one frame as a row, and each message it carries below."""
    head = f"{who:<8}{size:>6} bytes  "
    print(textwrap.fill(meaning, COLUMNS, initial_indent=head, subsequent_indent=INDENT))
    for message in messages or ():
        text = bytes(message.payload).decode()
        seal = "checksum holds" if message.is_intact() else "not stamped yet"
        print(f"{INDENT}· offset {message.offset}, id {message.id}, {text!r}, {seal}")


def print_request(server: ServerConnection, client: ClientConnection, frame: bytes) -> None:
    """Print a request, and let the other end know that it was made."""
    server.receive_data(frame)
    event = server.next_event()
    assert isinstance(event, RequestReceived)
    command = event.decode()
    print_row("client >", len(frame), show(command), getattr(command, "messages", None))
    assert b"".join(client.send(command)) == frame


def print_response(client: ClientConnection, frame: bytes) -> None:
    """Print the answer to the oldest request."""
    client.receive_data(frame)
    event = client.next_event()
    if isinstance(event, ErrorReceived):
        refusal = status(event.status)
        print_row("< server", len(frame), f"refused: {refusal.code} {refusal.meaning}", None)
        return
    assert isinstance(event, ResponseReceived)
    reply = event.decode()
    done = "done" if reply is None else show(reply)
    print_row("< server", len(frame), done, getattr(reply, "messages", None))


def main() -> None:
    """Print all requests and replies."""
    server, client = ServerConnection(), ClientConnection()
    for direction, frame in frames(RECORDED):
        if direction == ">":
            print_request(server, client, frame)
        else:
            print_response(client, frame)
    heard = client.statistics()
    print(f"{heard.frames_out} requests, {heard.frames_in} answers, every byte accounted for")


if __name__ == "__main__":
    main()
