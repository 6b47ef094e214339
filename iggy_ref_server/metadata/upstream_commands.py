"""Translates entries of the state log of Apache Iggy 0.8 into changes.

Each function returns the changes that one command made to the state before it. Ids, names, times
and hashes stay; server defaults are resolved; partitions get generation 0, so that their files
are accepted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_protocol import CommandCode, StatusCode, decode_request
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata import changes as happened
from iggy_ref_server.metadata.plan_context import MetadataSettings
from iggy_ref_server.metadata.plan_tokens import expires_at
from iggy_ref_server.metadata.plan_topics import resolve_limits
from iggy_ref_server.metadata.plan_users import normalize_permissions
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.upstream_log import UpstreamEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.metadata.catalog import Catalog
    from iggy_ref_server.metadata.changes import Change

__all__ = ["meaning"]

IMPORTED = 0

_LENGTH = struct.Struct("<I")
_ID_AND_LENGTH = struct.Struct("<II")


class _Step(NamedTuple):
    """An entry, what it says, and the state it is said about.

    ``new_id`` and ``new_hash`` are what the server chose: the former for things that have an id,
    the latter for tokens.
    """

    entry: UpstreamEntry
    command: Any
    metadata: Metadata
    settings: MetadataSettings
    new_id: int
    new_hash: str


# Creations carry what the server chose in front of the request.
_WITH_ID = frozenset(
    {
        CommandCode.CREATE_STREAM,
        CommandCode.CREATE_TOPIC,
        CommandCode.CREATE_CONSUMER_GROUP,
        CommandCode.CREATE_USER,
    }
)


def _require_place(catalog: Catalog[Any], number: int, name: str) -> None:
    if number in catalog.by_id or name in catalog.id_by_name:
        raise ServerFault(StatusCode.ERROR, f"the id {number} or the name {name!r} is in use")


def _create_stream(step: _Step) -> list[Change]:
    _require_place(step.metadata.streams, step.new_id, step.command.name)
    return [happened.StreamCreated(step.new_id, step.command.name, step.entry.timestamp_us)]


def _update_stream(step: _Step) -> list[Change]:
    stream = step.metadata.require_stream(step.command.stream)
    return [happened.StreamRenamed(stream.id, step.command.name)]


def _delete_stream(step: _Step) -> list[Change]:
    return [happened.StreamDeleted(step.metadata.require_stream(step.command.stream).id)]


def _create_topic(step: _Step) -> list[Change]:
    stream = step.metadata.require_stream(step.command.stream)
    _require_place(stream.topics, step.new_id, step.command.name)
    limits = resolve_limits(step.command, step.settings)
    return [
        happened.TopicCreated(
            stream_id=stream.id,
            id=step.new_id,
            name=step.command.name,
            created_at_us=step.entry.timestamp_us,
            partitions_count=step.command.partitions_count,
            incarnation=IMPORTED,
            message_expiry_us=limits.message_expiry_us,
            compression=step.command.compression,
            max_size_bytes=limits.max_size_bytes,
            replication_factor=limits.replication_factor,
        )
    ]


def _update_topic(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    limits = resolve_limits(step.command, step.settings)
    return [
        happened.TopicUpdated(
            stream_id=topic.stream_id,
            id=topic.id,
            name=step.command.name,
            message_expiry_us=limits.message_expiry_us,
            compression=step.command.compression,
            max_size_bytes=limits.max_size_bytes,
            replication_factor=limits.replication_factor,
        )
    ]


def _delete_topic(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    return [happened.TopicDeleted(topic.stream_id, topic.id)]


def _create_partitions(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    return [
        happened.PartitionsAdded(
            stream_id=topic.stream_id,
            topic_id=topic.id,
            first_id=len(topic.partitions),
            count=step.command.partitions_count,
            created_at_us=step.entry.timestamp_us,
            incarnation=IMPORTED,
        )
    ]


def _delete_partitions(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    kept_count = max(len(topic.partitions) - step.command.partitions_count, 0)
    return [happened.PartitionsRemoved(topic.stream_id, topic.id, kept_count)]


def _create_group(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    _require_place(topic.groups, step.new_id, step.command.name)
    return [
        happened.GroupCreated(
            topic.stream_id, topic.id, step.new_id, step.command.name, step.metadata.version + 1
        )
    ]


def _delete_group(step: _Step) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    group = topic.require_group(step.command.group)
    return [happened.GroupDeleted(topic.stream_id, topic.id, group.id)]


def _create_user(step: _Step) -> list[Change]:
    _require_place(step.metadata.users, step.new_id, step.command.username)
    return [
        happened.UserCreated(
            id=step.new_id,
            incarnation=step.metadata.version + 1,
            username=step.command.username,
            password_hash=step.command.password,
            status=step.command.status,
            created_at_us=step.entry.timestamp_us,
            permissions=normalize_permissions(step.command.permissions),
        )
    ]


def _update_user(step: _Step) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    return [happened.UserUpdated(user.id, step.command.username, step.command.status)]


def _delete_user(step: _Step) -> list[Change]:
    return [happened.UserDeleted(step.metadata.require_user(step.command.user).id)]


def _change_password(step: _Step) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    return [happened.PasswordChanged(user.id, step.command.new_password)]


def _update_permissions(step: _Step) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    permissions = normalize_permissions(step.command.permissions)
    return [happened.PermissionsChanged(user.id, permissions)]


def _create_token(step: _Step) -> list[Change]:
    user = step.metadata.require_user(step.entry.user_id)
    created = happened.TokenCreated(
        user.id,
        step.command.name,
        step.new_hash,
        expires_at(step.entry.timestamp_us, step.command.expiry_us),
    )
    # A token that expired and was swept left no entry, and its name is free again.
    if step.command.name in step.metadata.tokens.of_user(user.id):
        return [happened.TokenDeleted(user.id, step.command.name), created]
    return [created]


def _delete_token(step: _Step) -> list[Change]:
    return [happened.TokenDeleted(step.entry.user_id, step.command.name)]


def _nothing(step: _Step) -> list[Change]:
    """Leave it at that: the files show already what these commands did."""
    return []


_MEANINGS: Mapping[int, Callable[[_Step], list[Change]]] = {
    CommandCode.CREATE_STREAM: _create_stream,
    CommandCode.UPDATE_STREAM: _update_stream,
    CommandCode.DELETE_STREAM: _delete_stream,
    CommandCode.PURGE_STREAM: _nothing,
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.UPDATE_TOPIC: _update_topic,
    CommandCode.DELETE_TOPIC: _delete_topic,
    CommandCode.PURGE_TOPIC: _nothing,
    CommandCode.CREATE_PARTITIONS: _create_partitions,
    CommandCode.DELETE_PARTITIONS: _delete_partitions,
    CommandCode.DELETE_SEGMENTS: _nothing,
    CommandCode.CREATE_CONSUMER_GROUP: _create_group,
    CommandCode.DELETE_CONSUMER_GROUP: _delete_group,
    CommandCode.CREATE_USER: _create_user,
    CommandCode.UPDATE_USER: _update_user,
    CommandCode.DELETE_USER: _delete_user,
    CommandCode.CHANGE_PASSWORD: _change_password,
    CommandCode.UPDATE_PERMISSIONS: _update_permissions,
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN: _create_token,
    CommandCode.DELETE_PERSONAL_ACCESS_TOKEN: _delete_token,
}


def _read_step(entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings) -> _Step:
    new_id, new_hash, start, end = 0, "", 0, len(entry.command)
    if entry.code in _WITH_ID:
        new_id, size = _ID_AND_LENGTH.unpack_from(entry.command)
        start = _ID_AND_LENGTH.size
        end = start + size
    elif entry.code == CommandCode.CREATE_PERSONAL_ACCESS_TOKEN:
        hash_end = _LENGTH.size + _LENGTH.unpack_from(entry.command)[0]
        new_hash = entry.command[_LENGTH.size : hash_end].decode()
        start = hash_end + _LENGTH.size
        end = start + _LENGTH.unpack_from(entry.command, hash_end)[0]
    command = decode_request(entry.code, entry.command[start:end])
    return _Step(entry, command, metadata, settings, new_id, new_hash)


def meaning(entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings) -> list[Change]:
    """Tell what an entry did to the state before it.

    Raises:
        KeyError: no such command is ever logged.
        RemoteProtocolError, struct.error, UnicodeDecodeError: the command cannot be read.
        ServerFault: what it speaks of is not there, or is there already.
    """
    return _MEANINGS[entry.code](_read_step(entry, metadata, settings))
