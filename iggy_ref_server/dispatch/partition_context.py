"""What requests from 0.10 on say of the partition that they mean, checked against the metadata.

A client learns the state of a partition from its route and from polls, and names it in requests.
So a request never reaches a partition whose offsets have started over since, and a member of a
group never polls a partition that another member owns by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.write_receipts import WriteId

if TYPE_CHECKING:
    from iggy_protocol import RequestId
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.groups.group import ClaimPurpose, GroupKey, PollGrant
    from iggy_ref_server.metadata.state import TopicRecord
    from iggy_ref_server.session import ClientSession


def require_incarnation(
    request_id: RequestId | None, topic: TopicRecord, partition_id: int
) -> None:
    """Check that a request means the partition as it is now; only those from 0.10 on tell.

    Raises:
        ServerFault: the partition was made anew or purged since the client has seen it, or does
            not exist.
    """
    if request_id is None or not request_id.dialect.binds_sessions:
        return
    current = topic.require_partition(partition_id).incarnation
    meant = request_id.context.incarnation
    if meant != current:
        raise ServerFault(
            StatusCode.PARTITION_HISTORY_UNAVAILABLE,
            f"partition {partition_id} is {current}, and the client means {meant}",
        )


def named_ownership(request_id: RequestId | None) -> int:
    """Return the ownership of a partition that a request refers to; 0 if it names none."""
    return 0 if request_id is None else request_id.context.owner_generation


def write_id(request_id: RequestId | None) -> WriteId | None:
    """Return what identifies a write that its client may repeat; None for a classic client."""
    if request_id is None:
        return None
    return WriteId(request_id.session, request_id.number)


async def claim(
    context: HandlerContext,
    session: ClientSession,
    group: GroupKey,
    named: PollGrant,
    purpose: ClaimPurpose,
) -> PollGrant | None:
    """Return the ownership under which a member uses the partition it names; None if it has none.

    Args:
        context: the parts of the shard.
        session: the member.
        group: its group.
        named: the partition, and the ownership that the client knows of, or 0.
        purpose: what for.
    """
    (grant,) = await context.groups.claim(group, session.member_id, [named], purpose)
    return grant


def not_owned(what: object) -> ServerFault:
    """Make the fault for a partition that its poller does not own."""
    return ServerFault(
        StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED,
        f"another member of {what} owns the partition, or none",
    )
