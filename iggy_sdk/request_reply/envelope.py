"""The headers of requests and replies; there is nothing else to the protocol.

A request:

    correlation-id    bytes or text, which the reply repeats
    reply-to          the topic of the reply, by name or id, in the stream of the request
    reply-partition   its partition; 0 without it
    expires-at        microseconds since 1970 after which nobody waits; never without it

A reply:

    correlation-id    that of the request
    reply-error       only if the handler raised: the name of the exception's class. The payload is
                      JSON then: ``{"message": "...", "traceback": "..." or null}``

Correlation ids of this SDK have 16 bytes: 8 random ones for each caller, and the number of the
call. A caller knows its own replies by the first half.
"""

from __future__ import annotations

import secrets
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

import msgspec

from iggy_protocol import HeaderScalar, Identifier, NewMessage, encode_user_headers, record
from iggy_sdk.errors import IggyError
from iggy_sdk.request_reply.errors import RemoteHandlerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_sdk.message import ReceivedMessage


CORRELATION_ID: Final = "correlation-id"
REPLY_TO: Final = "reply-to"
REPLY_PARTITION: Final = "reply-partition"
EXPIRES_AT: Final = "expires-at"
REPLY_ERROR: Final = "reply-error"

CALLER_BYTES: Final = 8
"""Random bytes of a caller; two of a million share them with a chance of 1 in 30 million."""

ID_BYTES: Final = 16

TEXT_CHARACTERS_MAX: Final = 4_096
"""How much of the text of an exception a reply carries."""

TRACEBACK_CHARACTERS_MAX: Final = 65_536

TYPE_BYTES_MAX: Final = 255
"""What a header value may hold on the wire."""

MICROSECONDS: Final = 1_000_000


def now_us() -> int:
    """Return the time of day, as ``expires-at`` counts it."""
    return time.time_ns() // 1_000


# Requests


@record
class RequestHeaders:
    """What the headers of a request say.

    Attributes:
        correlation_id: what the reply repeats.
        reply_to: the topic of the reply.
        reply_partition: its partition.
        expires_at_us: when nobody waits any more, in microseconds since 1970; None is never.
    """

    correlation_id: bytes | str
    reply_to: Identifier
    reply_partition: int
    expires_at_us: int | None


class CallerId:
    """Makes the correlation ids of one caller, and knows them again."""

    __slots__ = ("_prefix",)

    def __init__(self) -> None:
        self._prefix = secrets.token_bytes(CALLER_BYTES)

    def correlation_id(self, number: int) -> bytes:
        """Make the id of a call."""
        return self._prefix + number.to_bytes(ID_BYTES - CALLER_BYTES, "big")

    def number_of(self, correlation_id: object) -> int | None:
        """Return the number of the call; None for the id of another caller."""
        if not isinstance(correlation_id, bytes) or len(correlation_id) != ID_BYTES:
            return None
        if correlation_id[:CALLER_BYTES] != self._prefix:
            return None
        return int.from_bytes(correlation_id[CALLER_BYTES:], "big")


def read_request(message: ReceivedMessage[Any]) -> RequestHeaders | None:
    """Read the headers of a request; None if they are not those of one."""
    try:
        headers = message.headers
    except IggyError:
        return None
    correlation_id, reply_to = headers.get(CORRELATION_ID), headers.get(REPLY_TO)
    partition, expires_at = headers.get(REPLY_PARTITION, 0), headers.get(EXPIRES_AT)
    is_request = (
        isinstance(correlation_id, bytes | str)
        and (isinstance(reply_to, str) or _is_number(reply_to, bits=32))
        and _is_number(partition, bits=32)
        and (expires_at is None or _is_number(expires_at, bits=64))
    )
    if not is_request:
        return None
    # The types were looked at above, one by one.
    details: Any = (correlation_id, reply_to, partition, expires_at)
    return RequestHeaders(*details)


def _is_number(value: object, *, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**bits


# Replies


def error_reply(
    correlation_id: bytes | str, error: Exception, *, send_traceback: bool
) -> NewMessage:
    """Make the reply that says why there is no value."""
    trace = None
    if send_traceback:
        trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS_MAX:]
    text = error.message if isinstance(error, IggyError) else str(error)
    payload = msgspec.json.encode({"message": text[:TEXT_CHARACTERS_MAX], "traceback": trace})
    kind = type(error).__name__.encode()[:TYPE_BYTES_MAX].decode(errors="ignore")
    headers = {CORRELATION_ID: correlation_id, REPLY_ERROR: kind}
    return NewMessage(payload, user_headers=encode_user_headers(headers))


def remote_error(message: ReceivedMessage[Any]) -> RemoteHandlerError | None:
    """Return the error that a reply carries, if it carries one."""
    headers: Mapping[str, HeaderScalar] = message.headers
    kind = headers.get(REPLY_ERROR)
    if kind is None:
        return None
    details = _error_details(message.payload)
    return RemoteHandlerError(
        remote_type=str(kind),
        remote_message=details.message[:TEXT_CHARACTERS_MAX],
        remote_traceback=details.traceback,
    )


class _ErrorDetails(msgspec.Struct):
    message: str = ""
    traceback: str | None = None


def _error_details(payload: bytes) -> _ErrorDetails:
    """Read what a responder says of an exception; one that writes plain text will do."""
    try:
        return msgspec.json.decode(payload, type=_ErrorDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _ErrorDetails(payload.decode(errors="replace"))
