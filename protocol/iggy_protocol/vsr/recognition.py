"""Telling this framing from the classic one by its bytes, before anything else is known.

A classic frame begins with its length, which counts at least the code, so it never begins with a
zero word; a frame of this framing begins with twelve of them. A server that speaks both looks at
the first word, and at the second one if the first is zero (``framing_of``): a classic client that
gets its length wrong has the code of a command there, and is told so as ever. A server that speaks
the classic dialect only reads the whole head, because a malformed classic frame has another refusal
than a client of 0.9 (``read_vsr_request``).

A client asks with a ping that needs no login (``vsr_probe``), and ``judge_probe`` tells from the
first bytes of the answer what the server speaks.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol.codes import CommandCode, EvictionReason
from iggy_protocol.dialect import CLASSIC, V0_11
from iggy_protocol.errors import MalformedFrame
from iggy_protocol.vsr.heads import (
    EVICTION,
    REPLY,
    REQUEST,
    VSR_HEAD_BYTES,
    ZERO_ID,
    EvictionHead,
    RequestHead,
    read_reply_head,
    read_request_head,
    write_reply_head,
)
from iggy_protocol.vsr.operations import (
    NON_REPLICATED,
    OPERATIONS,
    REGISTER,
    UPDATE_RESOURCE,
    UPDATE_RESOURCE_CODE,
    result_section,
)

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


WORD_BYTES: Final = 4
RECOGNISED_BYTES: Final = 2 * WORD_BYTES
"""So much of the first frame tells its framing."""
CLASSIC_LENGTH_MIN: Final = 4
"""The length of a classic frame counts its code."""

SIZE_AT: Final = 48
CLIENT_AT: Final = 128
# Where the bytes of every request are known, and what they are.
REQUEST_CONSTANT_PARTS: Final = (
    (0, bytes(48)),
    (52, bytes(8)),
    (60, bytes([REQUEST])),
    (61, bytes(CLIENT_AT - 61)),
)


class WireFraming(Enum):
    """How the frames of a connection are cut."""

    CLASSIC = "heads of 8 bytes"
    VSR = "heads of 256 bytes"


class ProbeVerdict(Enum):
    """What the answer to a ``vsr_probe`` says about a server.

    After any verdict but VSR connect again: the server has taken the probe for something else, and
    where its next frame begins is not known.
    """

    VSR = "it speaks this framing"
    CLASSIC = "it speaks the classic framing"
    NEITHER = "it is no Iggy server"


def framing_of(data: Buffer) -> WireFraming | None:
    """Tell the framing of a client from its first bytes; None if more are needed.

    Raises:
        MalformedFrame: no framing begins like this.
    """
    if len(data) < WORD_BYTES:
        return None
    word = int.from_bytes(data[:WORD_BYTES], "little")
    if not word:
        second = bytes(data[WORD_BYTES:RECOGNISED_BYTES])
        if any(second):
            return WireFraming.CLASSIC
        return WireFraming.VSR if len(second) == WORD_BYTES else None
    if word < CLASSIC_LENGTH_MIN:
        raise MalformedFrame(f"no frame begins with {word}", field="length", need=WORD_BYTES)
    return WireFraming.CLASSIC


def vsr_frame_size(head: Buffer) -> int | None:
    """Return the size that the first bytes of a frame tell, its head included.

    Returns:
        None if the head ends before its size does. Nothing else of the head is looked at.
    """
    if len(head) < SIZE_AT + WORD_BYTES:
        return None
    return int.from_bytes(head[SIZE_AT : SIZE_AT + WORD_BYTES], "little")


def begins_vsr_request(data: Buffer) -> bool:
    """Return whether bytes are the beginning of a request; True for no bytes."""
    for start, expected in REQUEST_CONSTANT_PARTS:
        part = bytes(data[start : start + len(expected)])
        if part != expected[: len(part)]:
            return False
    return True


def read_vsr_request(head: Buffer) -> int | None:
    """Return the size of the whole request, or None if the head is no valid one."""
    request = read_request_head(head)
    is_request = begins_vsr_request(head) and request.client != ZERO_ID
    return request.size if is_request and request.size >= VSR_HEAD_BYTES else None


def vsr_refusal(head: Buffer) -> bytes:
    """Return the eviction that refuses the protocol of a client.

    Its version window holds the version of the classic dialect alone: official clients then raise
    an error that names both versions, instead of trying again.
    """
    version = CLASSIC.version.pack()
    reason = EvictionReason.INCOMPATIBLE_PROTOCOL
    client = bytes(head[CLIENT_AT : CLIENT_AT + len(ZERO_ID)])
    return EvictionHead(client=client, lowest=version, highest=version, reason=reason).encode()


def is_vsr_refusal(data: Buffer) -> bool:
    """Return whether bytes are a ``vsr_refusal``; a reply of the classic dialect never is."""
    return len(data) == VSR_HEAD_BYTES and bytes(data) == vsr_refusal(data)


def vsr_probe(client: bytes) -> bytes:
    """Return a ping in this framing, which needs no login.

    Args:
        client: sixteen bytes that are not all zero; official clients send a random UUID.
    """
    code = int(CommandCode.PING)
    return RequestHead(client=client, number=1, operation=NON_REPLICATED, code=code).encode()


def is_vsr_answer(data: Buffer) -> bool:
    """Return whether bytes are a reply or an eviction of this framing.

    A ``vsr_refusal`` is not: it comes from a server of the classic dialect.
    """
    if len(data) < VSR_HEAD_BYTES or is_vsr_refusal(data):
        return False
    head = read_reply_head(data)
    return (
        head.checksum == ZERO_ID
        and head.size >= VSR_HEAD_BYTES
        and head.command in {REPLY, EVICTION}
    )


def judge_probe(answer: Buffer) -> ProbeVerdict | None:
    """Tell from the first bytes that answer a ``vsr_probe`` what the server speaks.

    Returns:
        None while more bytes are needed. A server that closes or is silent for some seconds may
        still speak the classic framing: connect again and ask with a classic ping.
    """
    if len(answer) < WORD_BYTES:
        return None
    if any(answer[:WORD_BYTES]):
        return ProbeVerdict.CLASSIC
    if len(answer) < VSR_HEAD_BYTES:
        return None
    head = answer[:VSR_HEAD_BYTES]
    if is_vsr_refusal(head):
        return ProbeVerdict.CLASSIC
    return ProbeVerdict.VSR if is_vsr_answer(head) else ProbeVerdict.NEITHER


# What somebody between a client and a server can tell from heads alone.


class VsrRequestSummary(NamedTuple):
    """What the head of a request tells without its body.

    Attributes:
        code: of the command; 0 if there is none, and 16 for every update of 0.10.
        number: counts the requests of the session; the reply has the same.
        payload_bytes: what follows the head.
    """

    code: int
    number: int
    payload_bytes: int


class VsrReplySummary(NamedTuple):
    """What the head of a reply tells without its body.

    Attributes:
        number: that of the request; None for an eviction, which answers none.
        payload_bytes: what follows the head.
    """

    number: int | None
    payload_bytes: int


def summarise_vsr_request(head: Buffer) -> VsrRequestSummary:
    """Read 256 bytes as the head of a request, whatever they are."""
    request = read_request_head(head)
    code = request.code
    if request.operation != NON_REPLICATED:
        updates = {UPDATE_RESOURCE: UPDATE_RESOURCE_CODE}
        code = int(OPERATIONS[V0_11].get(request.operation, updates.get(request.operation, 0)))
    return VsrRequestSummary(code, request.number, max(0, request.size - VSR_HEAD_BYTES))


def summarise_vsr_reply(head: Buffer) -> VsrReplySummary:
    """Read 256 bytes as the head of a reply or an eviction, whatever they are."""
    reply = read_reply_head(head)
    number = reply.number if reply.command == REPLY else None
    return VsrReplySummary(number, max(0, reply.size - VSR_HEAD_BYTES))


def vsr_error_reply(head: Buffer, status: int) -> bytes:
    """Return the reply that refuses a request of any dialect, by its head."""
    request = read_request_head(head)
    section = result_section(status) if request.operation == REGISTER else b""
    told = 0 if section else status
    committed = (0, request.incarnation)
    size = len(section)
    return write_reply_head(request, request.operation, size, told, (0, 0), committed) + section
