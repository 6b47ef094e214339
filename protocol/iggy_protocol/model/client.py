"""Clients: the connections a server knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["ClientDetails", "ClientInfo", "ConsumerGroupMembership", "Transport"]


class Transport(IntEnum):
    """How a client is connected."""

    TCP = 1
    QUIC = 2
    HTTP = 3
    WEBSOCKET = 4


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A connection; ``user_id`` is ``None`` before it has logged in."""

    client_id: int
    user_id: int | None
    transport: Transport
    address: str
    consumer_groups_count: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupMembership:
    """A group that a client has joined."""

    stream_id: int
    topic_id: int
    group_id: int


@dataclass(frozen=True, slots=True)
class ClientDetails(ClientInfo):
    """A connection with the groups it has joined."""

    consumer_groups: tuple[ConsumerGroupMembership, ...] = ()
