"""The end of a session, by the server: what it writes, and what the client makes of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from iggy_protocol.codes import EvictionReason
from iggy_protocol.dialect import VERSION_WINDOWS, Version
from iggy_protocol.errors import InvalidField
from iggy_protocol.events import EvictionReceived
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.heads import EVICTION_FIXED, EvictionHead

if TYPE_CHECKING:
    from collections.abc import Mapping


KEPT_SESSIONS: Final = frozenset({EvictionReason.NO_SESSION, EvictionReason.STALE_CLIENT})
"""Evictions after which a session goes on over another connection, from 0.10 on."""

_INVALID_COMMAND = StatusCode.INVALID_COMMAND
_STATUSES: Mapping[int, int] = MappingProxyType(
    {
        EvictionReason.RELEASE_TOO_LOW: _INVALID_COMMAND,
        EvictionReason.RELEASE_TOO_HIGH: _INVALID_COMMAND,
        EvictionReason.INVALID_OPERATION: _INVALID_COMMAND,
        EvictionReason.INVALID_BODY: _INVALID_COMMAND,
        EvictionReason.INVALID_BODY_SIZE: _INVALID_COMMAND,
        EvictionReason.INVALID_CREDENTIALS: StatusCode.INVALID_CREDENTIALS,
        EvictionReason.INVALID_TOKEN: StatusCode.INVALID_PERSONAL_ACCESS_TOKEN,
        EvictionReason.STALE_CLIENT: StatusCode.STALE_CLIENT,
        EvictionReason.MALFORMED_LOGIN: StatusCode.INVALID_FORMAT,
    }
)
_LOGIN_REASONS: Mapping[int, EvictionReason] = MappingProxyType(
    {
        StatusCode.INVALID_COMMAND: EvictionReason.MALFORMED_LOGIN,
        StatusCode.INVALID_FORMAT: EvictionReason.MALFORMED_LOGIN,
        StatusCode.INVALID_CREDENTIALS: EvictionReason.INVALID_CREDENTIALS,
        StatusCode.INVALID_USERNAME: EvictionReason.INVALID_CREDENTIALS,
        StatusCode.INVALID_PASSWORD: EvictionReason.INVALID_CREDENTIALS,
        StatusCode.INVALID_PERSONAL_ACCESS_TOKEN: EvictionReason.INVALID_TOKEN,
        StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED: EvictionReason.INVALID_TOKEN,
        StatusCode.USER_INACTIVE: EvictionReason.USER_INACTIVE,
    }
)


def eviction(reason: EvictionReason, client: bytes) -> bytes:
    """Write an eviction; one for a wrong version names those that are supported."""
    lowest = highest = 0
    if reason is EvictionReason.INCOMPATIBLE_PROTOCOL:
        lowest, highest = VERSION_WINDOWS[0].lowest.pack(), VERSION_WINDOWS[-1].highest.pack()
    return EvictionHead(client=client, lowest=lowest, highest=highest, reason=reason).encode()


def read_eviction(head: EvictionHead) -> EvictionReceived:
    """Return what an eviction tells a client.

    Raises:
        InvalidField: the head is that of no eviction.
    """
    EVICTION_FIXED.check(head)
    reason = head.reason
    if reason != EvictionReason.INCOMPATIBLE_PROTOCOL:
        if head.lowest or head.highest:
            raise InvalidField(f"an eviction for reason {reason} names versions", field="highest")
        return EvictionReceived(reason, int(_STATUSES.get(reason, StatusCode.UNAUTHENTICATED)))
    if not 0 < head.lowest <= head.highest:
        # Without a window there is nothing to choose from, so this is a refusal like any other.
        return EvictionReceived(reason, int(StatusCode.UNAUTHENTICATED))
    lowest, highest = Version.unpack(head.lowest), Version.unpack(head.highest)
    status = int(StatusCode.INCOMPATIBLE_PROTOCOL_VERSION)
    return EvictionReceived(reason, status, lowest, highest)


def login_eviction(status: int) -> EvictionReason:
    """Return the eviction that answers a login which failed for good."""
    return _LOGIN_REASONS.get(status, EvictionReason.SESSION_ERROR)
