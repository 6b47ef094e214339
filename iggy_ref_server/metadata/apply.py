"""Applies changes to the state: a pure function, the same on the primary and on replicas.

A change that does not fit, such as one for a topic that does not exist, raises the version and
nothing else. Plans never make such a change; a repaired log may hold some.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iggy_ref_server.metadata import apply_streams, apply_users
from iggy_ref_server.metadata import changes as happened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["apply"]

_EFFECTS: Mapping[type[Any], Callable[[Metadata, Any], Metadata]] = {
    happened.StreamCreated: apply_streams.create_stream,
    happened.StreamRenamed: apply_streams.rename_stream,
    happened.StreamDeleted: apply_streams.delete_stream,
    happened.StreamPurged: apply_streams.purge_stream,
    happened.TopicCreated: apply_streams.create_topic,
    happened.TopicUpdated: apply_streams.update_topic,
    happened.TopicDeleted: apply_streams.delete_topic,
    happened.TopicPurged: apply_streams.purge_topic,
    happened.PartitionsAdded: apply_streams.add_partitions,
    happened.PartitionsRemoved: apply_streams.remove_partitions,
    happened.GroupCreated: apply_streams.create_group,
    happened.GroupDeleted: apply_streams.delete_group,
    happened.UserCreated: apply_users.create_user,
    happened.UserUpdated: apply_users.update_user,
    happened.UserDeleted: apply_users.delete_user,
    happened.PasswordChanged: apply_users.change_password,
    happened.PermissionsChanged: apply_users.change_permissions,
    happened.TokenCreated: apply_users.create_token,
    happened.TokenDeleted: apply_users.delete_token,
    happened.TokensExpired: apply_users.expire_tokens,
}


def apply(metadata: Metadata, change: Change) -> Metadata:
    """Return the state after a change; its version is one higher."""
    after = _EFFECTS[type(change)](metadata, change)
    # A change that starts no new generation has no such field, or None.
    given = getattr(change, "incarnation", None) or 0
    return replace(
        after,
        version=metadata.version + 1,
        last_incarnation=max(metadata.last_incarnation, given),
    )
