"""The dialect of servers from 0.9 on: enough of it to recognise and to refuse it.

    0    48  zero      checksums and cluster, which clients leave alone
    48    4  size      of the whole frame, head included
    52    8  zero      view and release
    60    1  command   5 request, 8 reply, 13 eviction
    61   67  zero
    128  16  client    chosen by the client, never zero          (a reply has it at 160)
    144   8            of an eviction: the highest and the lowest version that the server accepts
    168   8  request   its number
    176   1  operation 2 is one that is named by a code of the classic dialect
    196   4  code      1 is ping
    255   1  reason    of an eviction: 14 is an incompatible protocol

A classic frame cannot begin like this: its length would be 0, and it counts at least the code.
All of the first 128 bytes are checked, because a malformed classic frame has another refusal. Only
the refusal and the probe whether a server uses this dialect are implemented.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


VSR_HEAD_BYTES: Final = 256
CLASSIC_VERSION: Final = (0, 10, 0)
"""The version of official clients of the classic dialect; a refusal has to name one."""

REQUEST, REPLY, EVICTION = 5, 8, 13
INCOMPATIBLE_PROTOCOL = 14
NON_REPLICATED, PING = 2, 1
SIZE_AT, COMMAND_AT, CLIENT_AT, CLIENT_END = 48, 60, 128, 144
VERSIONS_AT, REQUEST_AT = 144, 168
OPERATION_AT, CODE_AT, REASON_AT = 176, 196, 255

# Where the bytes of every request are known, and what they are.
REQUEST_CONSTANT_PARTS: Final = (
    (0, bytes(SIZE_AT)),
    (52, bytes(8)),
    (COMMAND_AT, bytes([REQUEST])),
    (61, bytes(CLIENT_AT - 61)),
)

_SIZE = struct.Struct("<I")
_VERSIONS = struct.Struct("<II")
_NUMBER = struct.Struct("<Q")


def begins_vsr_request(data: Buffer) -> bool:
    """Return whether bytes are the beginning of a request; True for no bytes."""
    for start, expected in REQUEST_CONSTANT_PARTS:
        part = bytes(data[start : start + len(expected)])
        if part != expected[: len(part)]:
            return False
    return True


def read_vsr_request(head: Buffer) -> int | None:
    """Return the size of the whole request, or None if the head is no valid one."""
    (size,) = _SIZE.unpack_from(head, SIZE_AT)
    has_client = any(head[CLIENT_AT:CLIENT_END])
    if not begins_vsr_request(head) or size < VSR_HEAD_BYTES or not has_client:
        return None
    return int(size)


def vsr_refusal(head: Buffer) -> bytes:
    """Return the eviction that refuses the protocol of a client.

    Its version window holds the version of the classic dialect alone: official clients then raise
    an error that names both versions, instead of trying again.
    """
    frame = _frame(EVICTION)
    frame[CLIENT_AT:CLIENT_END] = bytes(head[CLIENT_AT:CLIENT_END])
    major, minor, patch = CLASSIC_VERSION
    version = (major << 20) | (minor << 10) | patch
    _VERSIONS.pack_into(frame, VERSIONS_AT, version, version)
    frame[REASON_AT] = INCOMPATIBLE_PROTOCOL
    return bytes(frame)


def is_vsr_refusal(data: Buffer) -> bool:
    """Return whether bytes are a ``vsr_refusal``; a reply of the classic dialect never is."""
    return len(data) == VSR_HEAD_BYTES and bytes(data) == vsr_refusal(data)


def vsr_probe(client: bytes) -> bytes:
    """Return a ping in this dialect, which needs no login.

    Args:
        client: sixteen bytes that are not all zero.
    """
    frame = _frame(REQUEST)
    frame[CLIENT_AT:CLIENT_END] = client
    _NUMBER.pack_into(frame, REQUEST_AT, 1)
    frame[OPERATION_AT] = NON_REPLICATED
    _SIZE.pack_into(frame, CODE_AT, PING)
    return bytes(frame)


def is_vsr_answer(data: Buffer) -> bool:
    """Return whether bytes are a reply or an eviction of this dialect.

    A ``vsr_refusal`` is not: it comes from a server of the classic dialect.
    """
    return (
        len(data) >= VSR_HEAD_BYTES
        and not any(data[:16])
        and _SIZE.unpack_from(data, SIZE_AT)[0] >= VSR_HEAD_BYTES
        and data[COMMAND_AT] in {REPLY, EVICTION}
        and not is_vsr_refusal(data)
    )


def _frame(command: int) -> bytearray:
    frame = bytearray(VSR_HEAD_BYTES)
    _SIZE.pack_into(frame, SIZE_AT, VSR_HEAD_BYTES)
    frame[COMMAND_AT] = command
    return frame
