"""Short words for what clients do to a group, used by the tests beside this file."""

from __future__ import annotations

from iggy_ref_server.groups.group import GroupState

TIMEOUT_US = 30_000_000


def group_of(partitions_count, *client_ids):
    """Make a group that some clients have joined, nobody having polled in between."""
    group = GroupState(partitions_count, rebalancing_timeout_us=TIMEOUT_US)
    for client_id in client_ids:
        group.join(client_id, 0)
    return group


def owned(group):
    """Say who owns what: client → partitions."""
    return {
        client_id: member.partitions
        for client_id, member in zip(group.member_ids(), group.details(), strict=True)
    }


def sizes(group):
    """Count the partitions of each member, in the order of the slots."""
    return [len(member.partitions) for member in group.details()]


def all_partitions(group):
    """List what is owned, sorted; a partition with two owners comes twice."""
    return sorted(partition for member in group.details() for partition in member.partitions)


def poll(group, client_id, partition=None, *, last_offset=0):
    """Poll and get messages up to an offset; None where the reply is empty."""
    grant = group.resolve_poll(client_id, partition)
    if grant is None or not group.confirm(grant):
        return None
    group.record_polled(client_id, grant.partition, last_offset)
    return grant.partition


def poll_all(group, client_id, *, last_offset=0):
    """Poll every partition of a member once without committing."""
    return [
        poll(group, client_id, partition, last_offset=last_offset)
        for partition in owned(group)[client_id]
    ]


def commit(group, client_id, partition=None, *, offset=0):
    """Commit an offset as a member."""
    resolved = group.resolve_commit(client_id, partition)
    group.record_committed(resolved, offset)
    return resolved


def synced(group, member_id):
    """Return what a member may read, as the group tells it."""
    assignment = group.sync(member_id)
    assert assignment is not None
    return assignment


def claimed(group, member_id, partition):
    """Return the grant of a member that names its partition."""
    grant = group.claim(member_id, partition)
    assert grant is not None
    return grant
