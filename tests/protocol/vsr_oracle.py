"""What must be read from a stream of frames with heads of 256 bytes, by slicing alone.

The oracle shares no code with the package. It says where frames begin and end and which bytes are
whose; it does not say again which of them are refused, because the tests of the rules do.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES = 256
REPLY, EVICTION = 8, 13
COMMAND_MAX = 29
SEND, NON_REPLICATED = 160, 2
SEND_CODE = 101


@dataclass(frozen=True)
class CutFrame:
    """One frame of a stream; ``is_skipped`` if its body is above the limit and dropped."""

    operation: int
    number: int
    body: bytes
    is_skipped: bool = False


def word(data: bytes, at: int, size: int = 4) -> int:
    """Read a number."""
    return int.from_bytes(data[at : at + size], "little")


def cut_requests(
    data: bytes, *, send_bytes_max: int, control_bytes_max: int
) -> tuple[list[CutFrame], str]:
    """Return the frames that a server must find, and how the stream ends.

    The end is "failed", "closed" or "closed mid frame".
    """
    frames: list[CutFrame] = []
    while len(data) >= HEAD_BYTES:
        size, command, operation = word(data, 48), data[60], data[176]
        if size < HEAD_BYTES or command > COMMAND_MAX:
            return frames, "failed"
        code = word(data, 196) if operation == NON_REPLICATED else 0
        is_send = operation == SEND or code == SEND_CODE
        number = word(data, 168, 8)
        if size - HEAD_BYTES > (send_bytes_max if is_send else control_bytes_max):
            if not is_send:
                return frames, "failed"
            frames.append(CutFrame(operation, number, b"", is_skipped=True))
        elif size > len(data):
            break
        else:
            frames.append(CutFrame(operation, number, data[HEAD_BYTES:size]))
        if size > len(data):
            return frames, "closed mid frame"
        data = data[size:]
    return frames, "closed mid frame" if data else "closed"
