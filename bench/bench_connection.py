"""How fast connections turn bytes into events, as ratios to the cheapest thing that could be done.

Small frames are compared with a bare loop over ``struct``, large ones with copying the same bytes
once. Ratios of one run can be compared between machines; the absolute numbers cannot.
"""

from __future__ import annotations

import struct
from time import perf_counter
from typing import TYPE_CHECKING

from iggy_protocol.base_connection import Limits
from iggy_protocol.commands.system import Ping
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.events import NEED_DATA, PAUSED, RequestReceived, ResponseReceived

if TYPE_CHECKING:
    from collections.abc import Callable

PING = struct.pack("<II", 4, 1)
PONG = bytes(8)
PINGS = 2_000
MEGABYTE = 1_000_000
FRAMES = 200
ROUNDS = 5
LIMITS = Limits(pipelined_max=PINGS, outstanding_max=PINGS)


def best(work: Callable[[], object]) -> float:
    """Return the shortest of several runs in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return min(seconds)


# Small frames


def parse_bare() -> None:
    """Do the least a loop in Python can do: read each head and slice its payload."""
    unpack, data, position = struct.Struct("<II").unpack_from, memoryview(PING * PINGS), 0
    payloads = []
    while position < len(data):
        length, _code = unpack(data, position)
        payloads.append(data[position + 8 : position + 4 + length])
        position += 4 + length


def serve_pings() -> None:
    """Receive pipelined pings in one piece and answer each."""
    server = ServerConnection(limits=LIMITS)
    server.receive_data(PING * PINGS)
    while isinstance(server.next_event(), RequestReceived):
        server.send(None)


def hear_pings() -> None:
    """Receive pipelined pings through the connection's own memory and answer each."""
    server = ServerConnection(limits=LIMITS)
    pings = memoryview(PING * PINGS)
    while pings:
        space = server.get_buffer()
        size = min(len(space), len(pings))
        space[:size] = pings[:size]
        server.buffer_updated(size)
        pings = pings[size:]
        while isinstance(server.next_event(), RequestReceived):
            server.send(None)


def ask_pings() -> None:
    """Send pings without waiting, then hear all answers."""
    client = ClientConnection(limits=LIMITS)
    for _ in range(PINGS):
        client.send(Ping())
    client.receive_data(PONG * PINGS)
    while isinstance(client.next_event(), ResponseReceived):
        pass


# Large frames


class Socket:
    """A socket that never runs dry: copies the next bytes of an endless row of frames."""

    def __init__(self, read_bytes_max: int) -> None:
        self.frame = memoryview(struct.pack("<II", MEGABYTE + 4, 101) + bytes(MEGABYTE))
        self.read_bytes_max = read_bytes_max
        self.position = 0

    def recv_into(self, space: memoryview) -> int:
        """Fill as much of the space as one read brings."""
        size = min(len(space), self.read_bytes_max, len(self.frame) - self.position)
        space[:size] = self.frame[self.position : self.position + size]
        self.position = (self.position + size) % len(self.frame)
        return size

    def recv(self) -> bytes:
        """Return what one read brings."""
        stop = min(self.position + self.read_bytes_max, len(self.frame))
        data = bytes(self.frame[self.position : stop])
        self.position = stop % len(self.frame)
        return data


def copy_plainly() -> None:
    """Copy the same number of bytes into one buffer that is used again and again."""
    socket, target = Socket(65_536), memoryview(bytearray(MEGABYTE + 8))
    for _ in range(FRAMES):
        position = 0
        while position < len(target):
            position += socket.recv_into(target[position:])


def read_in_place(read_bytes_max: int, held: int = 0) -> None:
    """Receive large frames through get_buffer, while the payloads of the last few are held."""
    server, socket = ServerConnection(), Socket(read_bytes_max)
    payloads: list[memoryview] = []
    while len(payloads) < FRAMES:
        server.buffer_updated(socket.recv_into(server.get_buffer()))
        event = server.next_event()
        if isinstance(event, RequestReceived):
            payloads.append(event.payload)
            if len(payloads) > held:
                payloads[-1 - held].release()
            del event
            server.send(None)


def read_bytes(read_bytes_max: int) -> None:
    """Receive large frames as bytes objects, one for each read."""
    server, socket, frames = ServerConnection(), Socket(read_bytes_max), 0
    while frames < FRAMES:
        server.receive_data(socket.recv())
        event = server.next_event()
        assert event is not PAUSED
        if event is not NEED_DATA:
            frames += 1
            server.send(None)


def report(title: str, seconds: float, amount: float, unit: str, reference: float) -> None:
    """Print one line: what, how fast, and how many times the reference it takes."""
    print(f"{title:<52}{amount / seconds:>12,.0f} {unit:<9}{seconds / reference:>6.2f}")


def main() -> None:
    """Measure and print."""
    print(f"{'connections':<52}{'rate':>12} {'':<9}{'time as ratio':>6}")
    bare = best(parse_bare)
    report("pings, bare loop over struct", bare, PINGS, "frames/s", bare)
    for title, work in (
        ("pings, one receive_data, answered", serve_pings),
        ("pings, get_buffer, answered", hear_pings),
        ("pings, client: sent and heard", ask_pings),
    ):
        report(title, best(work), PINGS, "frames/s", bare)
    megabytes = FRAMES * (MEGABYTE + 8) / 1e6
    plain = best(copy_plainly)
    report("1 MB frames, plain copy", plain, megabytes, "MB/s", plain)
    for title, large in (
        ("1 MB frames, get_buffer, reads of 64 KiB", lambda: read_in_place(65_536)),
        ("1 MB frames, get_buffer, reads of any size", lambda: read_in_place(MEGABYTE)),
        ("1 MB frames, get_buffer, 3 payloads held", lambda: read_in_place(65_536, held=3)),
        ("1 MB frames, receive_data, reads of 64 KiB", lambda: read_bytes(65_536)),
    ):
        report(title, best(large), megabytes, "MB/s", plain)


if __name__ == "__main__":
    main()
