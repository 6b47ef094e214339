"""A server as it describes itself: its clients, its cluster, its statistics and snapshots."""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.records import record

__all__ = ["ClientDetails", "ClientInfo", "ConsumerGroupMembership", "Transport"]


class Transport(IntEnum):
    """How a client is connected."""

    TCP = 1
    QUIC = 2
    HTTP = 3
    WEBSOCKET = 4


@record
class ClientInfo:
    """A connection; ``user_id`` is ``None`` before it has logged in."""

    client_id: int
    user_id: int | None
    transport: Transport
    address: str
    consumer_groups_count: int


@record
class ConsumerGroupMembership:
    """A group that a client has joined."""

    stream_id: int
    topic_id: int
    group_id: int


@record
class ClientDetails(ClientInfo):
    """A connection with the groups it has joined."""

    consumer_groups: tuple[ConsumerGroupMembership, ...] = ()
