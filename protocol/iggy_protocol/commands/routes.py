"""Routes: which node of a cluster serves a partition, and how a client of 0.9 reaches it.

From 0.10 on one command returns the route of a partition, and a session can be bound to several
nodes. Clients of 0.9 ask for the route of each kind of request instead, attach their session to a
second connection and send the request there. A server without a cluster is never asked for those.
"""

from __future__ import annotations

from construct import Bytes

from iggy_protocol.batch import PolledMessages
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.consumers import OFFSET_KEY_FIELDS
from iggy_protocol.commands.deferred import StrictCodec
from iggy_protocol.commands.messages import POLL_RANGE_FIELDS, POLL_TARGET_FIELDS
from iggy_protocol.commands.polled import POLLED_CODECS
from iggy_protocol.commands.system import NODE
from iggy_protocol.dialect import V0_11, V0_12_0
from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.fields import CompiledAdapter, RecordStruct
from iggy_protocol.model.identifier import ConsumerIdentity, Identifier, PollingStrategy
from iggy_protocol.model.system import ClusterNode
from iggy_protocol.primitives import IDENTIFIER, U8, U32, U64
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command, reply_of_one

CLIENT_BYTES = 16


@record
class PartitionRoute:
    """Where a partition is served, and what requests to it must name.

    Attributes:
        incarnation: that of the context of requests.
        metadata_position: the change of metadata that the route is as new as.
        view: counts the changes of the primary; 0 on a single node.
        partitions_count: how many partitions the topic has.
        primary_replica_id: the node that serves the partition.
    """

    incarnation: int
    metadata_position: int
    view: int
    partitions_count: int
    primary_replica_id: int


PARTITION_ROUTE = RecordStruct(
    PartitionRoute,
    "incarnation" / U64,
    "metadata_position" / U64,
    "view" / U32,
    "partitions_count" / U32,
    "primary_replica_id" / U8,
)


@command(
    CommandCode.GET_PARTITION_ROUTE,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / U32,
    codec=StrictCodec,
    reply=reply_of_one(PARTITION_ROUTE, "PartitionRoute"),
    since=V0_12_0,
)
@record
class GetPartitionRoute(Command[PartitionRoute]):
    """Ask which node serves a partition."""

    stream: Identifier
    topic: Identifier
    partition_id: int


# The routes of 0.9.


@record
class ConsumerSession:
    """The session of a consumer, as a second connection attaches it.

    Attributes:
        client: sixteen bytes that the client has chosen for its session.
        session: the number that the server gave to the session.
        metadata_position: the change of metadata that the node must have applied.
    """

    client: bytes
    session: int
    metadata_position: int


def _client_bytes(client: bytes) -> bytes:
    if len(client) != CLIENT_BYTES:
        raise LocalProtocolError(f"a client has {CLIENT_BYTES} bytes, not {len(client)}")
    return client


CONSUMER_SESSION_FIELDS = (
    "client" / CompiledAdapter(Bytes(CLIENT_BYTES), bytes, _client_bytes, label="16 bytes"),
    "session" / U64,
    "metadata_position" / U64,
)
CONSUMER_SESSION = RecordStruct(ConsumerSession, *CONSUMER_SESSION_FIELDS)


@record
class ConsumerRoute:
    """The node that serves a consumer's requests, and the session to attach there."""

    session: ConsumerSession
    node: ClusterNode


CONSUMER_ROUTE = RecordStruct(ConsumerRoute, "session" / CONSUMER_SESSION, "node" / NODE)


@command(
    CommandCode.ATTACH_CONSUMER_SESSION,
    "session" / CONSUMER_SESSION,
    codec=StrictCodec,
    reply=EMPTY,
    since=V0_11,
    changes={V0_12_0: None},
)
@record
class AttachConsumerSession(Command[None]):
    """Let this connection act for the session of another one."""

    session: ConsumerSession


@command(
    CommandCode.GET_POLL_ROUTE,
    *POLL_TARGET_FIELDS,
    *POLL_RANGE_FIELDS,
    codec=StrictCodec,
    reply=reply_of_one(CONSUMER_ROUTE, "ConsumerRoute"),
    since=V0_11,
    changes={V0_12_0: None},
)
@record
class GetPollRoute(Command[ConsumerRoute]):
    """Ask where to send a poll that commits offsets."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    strategy: PollingStrategy
    count: int
    partition_id: int | None = None
    auto_commit: bool = False


@command(
    CommandCode.POLL_ON_PRIMARY,
    *POLL_TARGET_FIELDS,
    *POLL_RANGE_FIELDS,
    codec=StrictCodec,
    reply=POLLED_CODECS,
    since=V0_11,
    changes={V0_12_0: None},
)
@record
class PollOnPrimary(Command[PolledMessages]):
    """Poll on the node that the route names, for the session that was attached."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    strategy: PollingStrategy
    count: int
    partition_id: int | None = None
    auto_commit: bool = False


@command(
    CommandCode.GET_OFFSET_ROUTE,
    *OFFSET_KEY_FIELDS,
    codec=StrictCodec,
    reply=reply_of_one(CONSUMER_ROUTE, "ConsumerRoute"),
    since=V0_11,
    changes={V0_12_0: None},
)
@record
class GetOffsetRoute(Command[ConsumerRoute]):
    """Ask where to store or delete an offset."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    partition_id: int | None = None
