"""Writing replies: which operation, marker and positions they carry, and where an error stands.

An error stands in the head (a status) if the request was refused, and in the result section of the
body if it is the result of a committed write. Both have an effect on clients from 0.10 on: a status
ends one attempt, a committed error ends the request for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol.dialect import V0_11
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.evictions import login_eviction
from iggy_protocol.vsr.heads import COMMITTED, VSR_HEAD_BYTES, write_reply_head
from iggy_protocol.vsr.operations import (
    DELETE_SEGMENTS,
    NO_ERRORS,
    NON_REPLICATED,
    REGISTER,
    RESULT_FRAMED,
    committed_operation,
    result_section,
)

if TYPE_CHECKING:
    from iggy_protocol.codes import EvictionReason
    from iggy_protocol.dialect import Dialect
    from iggy_protocol.vsr.heads import RequestHead


PAYLOAD_BYTES_MAX: Final = 2**32 - 1 - VSR_HEAD_BYTES - len(NO_ERRORS)
NOT_COMMITTED: Final = (0, 0)
"""Marker and incarnation, which replies of 0.9 do not have."""
_TRANSIENT = frozenset({StatusCode.TRANSIENT_NOT_COMMITTED, StatusCode.TRANSIENT_NOT_ACCEPTED})


class UnansweredRequest:
    """A request that a server has to answer; each is different from all others.

    Attributes:
        head: its head, of which the reply echoes a part.
        code: its command; 0 if it is not known.
        dialect: what the client spoke when it sent the request.
        reason: that of the eviction which any error becomes, if the request has no session.
    """

    __slots__ = ("code", "dialect", "head", "reason")

    def __init__(
        self, head: RequestHead, code: int, dialect: Dialect, reason: EvictionReason | None = None
    ) -> None:
        self.head: RequestHead = head
        self.code: int = code
        self.dialect: Dialect = dialect
        self.reason: EvictionReason | None = reason

    @property
    def number(self) -> int:
        """The number of the request."""
        return self.head.number

    def eviction_for(self, status: int) -> EvictionReason | None:
        """Return the eviction that answers the request in place of an error, if one does."""
        if self.reason is None and self.head.operation == REGISTER and status not in _TRANSIENT:
            return login_eviction(status)
        return self.reason


def success_head(request: UnansweredRequest, payload_bytes: int, position: int) -> bytes:
    """Write all that stands before the payload of a reply."""
    operation = committed_operation(request.code, request.head.operation)
    if operation in RESULT_FRAMED or operation == REGISTER:
        size = len(NO_ERRORS) + payload_bytes
        return _reply_head(request, operation, size, 0, position) + NO_ERRORS
    return _reply_head(request, operation, payload_bytes, 0, position)


def error_frame(request: UnansweredRequest, status: int, position: int) -> bytes:
    """Write the reply to a request that failed."""
    operation = request.head.operation
    if operation == REGISTER:
        section = result_section(status)
        return _reply_head(request, operation, len(section)) + section
    if operation == DELETE_SEGMENTS and position:
        # Its own replies have no result section; those of what a server commits for it have.
        operation = committed_operation(request.code, operation)
    if position and operation in RESULT_FRAMED:
        section = result_section(status)
        return _reply_head(request, operation, len(section), position=position) + section
    return _reply_head(request, operation, 0, status=status)


def _reply_head(
    request: UnansweredRequest,
    operation: int,
    body_bytes: int,
    status: int = 0,
    position: int = 0,
) -> bytes:
    head = request.head
    if request.dialect is V0_11:
        positions, committed = (head.session, position), NOT_COMMITTED
    elif position > 0 and operation != NON_REPLICATED:
        positions, committed = (position, position), (COMMITTED, head.incarnation)
    else:
        positions, committed = (0, 0), (0, head.incarnation)
    return write_reply_head(head, operation, body_bytes, status, positions, committed)
