"""Imports the state log of Apache Iggy 0.8 into new metadata, once; that file is never changed."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_protocol import (
    CommandCode,
    PayloadCipher,
    RemoteProtocolError,
    StatusCode,
    decode_request,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata import changes as change_types
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change
from iggy_ref_server.metadata.plan_streams import resolve_limits
from iggy_ref_server.metadata.plan_users import expires_at, normalize_permissions
from iggy_ref_server.metadata.state import Catalog, Metadata, MetadataSettings
from iggy_ref_server.metadata.upstream_log import (
    UPSTREAM_LOG_PATH,
    ImportRefused,
    UpstreamEntry,
    read_upstream_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.metadata.store import MetadataStore
    from iggy_ref_server.storage.interface import Storage


LOGGER = logging.getLogger("iggy_ref_server.metadata")


# Translates entries of the state log of Apache Iggy 0.8 into changes.
#
# Each function returns the changes that one command made to the state before it. Ids, names, times
# and hashes stay; server defaults are resolved; partitions get generation 0, so that their files
# are accepted.


IMPORTED = 0

_LENGTH = struct.Struct("<I")
_ID_AND_LENGTH = struct.Struct("<II")


class _UpstreamStep(NamedTuple):
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


def _require_free(catalog: Catalog[Any], number: int, name: str) -> None:
    if number in catalog.by_id or name in catalog.id_by_name:
        raise ServerFault(StatusCode.ERROR, f"the id {number} or the name {name!r} is in use")


def _create_stream(step: _UpstreamStep) -> list[Change]:
    _require_free(step.metadata.streams, step.new_id, step.command.name)
    return [change_types.StreamCreated(step.new_id, step.command.name, step.entry.timestamp_us)]


def _update_stream(step: _UpstreamStep) -> list[Change]:
    stream = step.metadata.require_stream(step.command.stream)
    return [change_types.StreamRenamed(stream.id, step.command.name)]


def _delete_stream(step: _UpstreamStep) -> list[Change]:
    return [change_types.StreamDeleted(step.metadata.require_stream(step.command.stream).id)]


def _create_topic(step: _UpstreamStep) -> list[Change]:
    stream = step.metadata.require_stream(step.command.stream)
    _require_free(stream.topics, step.new_id, step.command.name)
    limits = resolve_limits(step.command, step.settings)
    return [
        change_types.TopicCreated(
            stream_id=stream.id,
            id=step.new_id,
            name=step.command.name,
            created_at_us=step.entry.timestamp_us,
            partitions_count=step.command.partitions_count,
            generation=IMPORTED,
            message_expiry_us=limits.message_expiry_us,
            compression=step.command.compression,
            max_size_bytes=limits.max_size_bytes,
            replication_factor=limits.replication_factor,
        )
    ]


def _update_topic(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    limits = resolve_limits(step.command, step.settings)
    return [
        change_types.TopicUpdated(
            stream_id=topic.stream_id,
            id=topic.id,
            name=step.command.name,
            message_expiry_us=limits.message_expiry_us,
            compression=step.command.compression,
            max_size_bytes=limits.max_size_bytes,
            replication_factor=limits.replication_factor,
        )
    ]


def _delete_topic(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    return [change_types.TopicDeleted(topic.stream_id, topic.id)]


def _create_partitions(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    return [
        change_types.PartitionsAdded(
            stream_id=topic.stream_id,
            topic_id=topic.id,
            first_id=len(topic.partitions),
            count=step.command.partitions_count,
            created_at_us=step.entry.timestamp_us,
            generation=IMPORTED,
        )
    ]


def _delete_partitions(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    kept_count = max(len(topic.partitions) - step.command.partitions_count, 0)
    return [change_types.PartitionsRemoved(topic.stream_id, topic.id, kept_count)]


def _create_group(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    _require_free(topic.groups, step.new_id, step.command.name)
    return [
        change_types.GroupCreated(
            topic.stream_id, topic.id, step.new_id, step.command.name, step.metadata.version + 1
        )
    ]


def _delete_group(step: _UpstreamStep) -> list[Change]:
    topic = step.metadata.require_topic(step.command.stream, step.command.topic)
    group = topic.require_group(step.command.group)
    return [change_types.GroupDeleted(topic.stream_id, topic.id, group.id)]


def _create_user(step: _UpstreamStep) -> list[Change]:
    _require_free(step.metadata.users, step.new_id, step.command.username)
    return [
        change_types.UserCreated(
            id=step.new_id,
            generation=step.metadata.version + 1,
            username=step.command.username,
            password_hash=step.command.password,
            status=step.command.status,
            created_at_us=step.entry.timestamp_us,
            permissions=normalize_permissions(step.command.permissions),
        )
    ]


def _update_user(step: _UpstreamStep) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    return [change_types.UserUpdated(user.id, step.command.username, step.command.status)]


def _delete_user(step: _UpstreamStep) -> list[Change]:
    return [change_types.UserDeleted(step.metadata.require_user(step.command.user).id)]


def _change_password(step: _UpstreamStep) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    return [change_types.PasswordChanged(user.id, step.command.new_password)]


def _update_permissions(step: _UpstreamStep) -> list[Change]:
    user = step.metadata.require_user(step.command.user)
    permissions = normalize_permissions(step.command.permissions)
    return [change_types.PermissionsChanged(user.id, permissions)]


def _create_token(step: _UpstreamStep) -> list[Change]:
    user = step.metadata.require_user(step.entry.user_id)
    created = change_types.TokenCreated(
        user.id,
        step.command.name,
        step.new_hash,
        expires_at(step.entry.timestamp_us, step.command.expiry_us),
    )
    # A token that expired and was swept left no entry, and its name is free again.
    if step.command.name in step.metadata.tokens.of_user(user.id):
        return [change_types.TokenDeleted(user.id, step.command.name), created]
    return [created]


def _delete_token(step: _UpstreamStep) -> list[Change]:
    return [change_types.TokenDeleted(step.entry.user_id, step.command.name)]


def _no_change(step: _UpstreamStep) -> list[Change]:
    """Leave it at that: the files show already what these commands did."""
    return []


_TRANSLATORS: Mapping[int, Callable[[_UpstreamStep], list[Change]]] = {
    CommandCode.CREATE_STREAM: _create_stream,
    CommandCode.UPDATE_STREAM: _update_stream,
    CommandCode.DELETE_STREAM: _delete_stream,
    CommandCode.PURGE_STREAM: _no_change,
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.UPDATE_TOPIC: _update_topic,
    CommandCode.DELETE_TOPIC: _delete_topic,
    CommandCode.PURGE_TOPIC: _no_change,
    CommandCode.CREATE_PARTITIONS: _create_partitions,
    CommandCode.DELETE_PARTITIONS: _delete_partitions,
    CommandCode.DELETE_SEGMENTS: _no_change,
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


def _read_step(
    entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings
) -> _UpstreamStep:
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
    return _UpstreamStep(entry, command, metadata, settings, new_id, new_hash)


def translate_entry(
    entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings
) -> list[Change]:
    """Tell what an entry did to the state before it.

    Raises:
        KeyError: no such command is ever logged.
        RemoteProtocolError, struct.error, UnicodeDecodeError: the command cannot be read.
        ServerFault: what it speaks of is not there, or is there already.
    """
    return _TRANSLATORS[entry.code](_read_step(entry, metadata, settings))


class ImportedState(NamedTuple):
    """What a state log amounts to."""

    metadata: Metadata
    changes: tuple[Change, ...]


def _translate(
    entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings
) -> list[Change]:
    try:
        return translate_entry(entry, metadata, settings)
    except KeyError:
        reason = f"command {entry.code} is unknown"
    except (RemoteProtocolError, struct.error, UnicodeDecodeError) as error:
        reason = f"command {entry.code} cannot be read: {error}"
    except ServerFault as error:
        reason = f"command {entry.code} cannot be applied: {error.message}"
    raise ImportRefused(UPSTREAM_LOG_PATH, entry.position, reason)


def import_state(
    data: bytes, settings: MetadataSettings, cipher: PayloadCipher | None = None
) -> ImportedState:
    """Turn the state log of Apache Iggy into changes, and into the state they lead to.

    Args:
        data: the content of ``state/log``.
        settings: what topics get that were left to the server's defaults.
        cipher: the key, where Apache Iggy had one.

    Raises:
        ImportRefused: the log is damaged, or says something that cannot be.
        MetadataLocked: it is encrypted with another key.
    """
    metadata = Metadata.EMPTY
    changes: list[Change] = []
    for entry in read_upstream_log(data, cipher):
        for change in _translate(entry, metadata, settings):
            metadata = apply(metadata, change)
            changes.append(change)
    return ImportedState(metadata, tuple(changes))


async def import_if_new(
    store: MetadataStore,
    storage: Storage,
    settings: MetadataSettings,
    *,
    encryptor: PayloadCipher | None = None,
) -> ImportedState | None:
    """Import the state log of Apache Iggy, if there is one and the store is new.

    Returns:
        What was imported; None where there is no such log, or the store is not new.

    Raises:
        ImportRefused: the log is damaged. Nothing happened.
        MetadataLocked: it is encrypted with another key. Nothing happened.
    """
    if not store.is_new:
        return None
    data = await storage.read_file(UPSTREAM_LOG_PATH)
    if not data:
        return None
    imported = import_state(data, settings, encryptor)
    await store.adopt(imported.metadata)
    LOGGER.info(
        "imported %d changes from %s: %d streams, %d users, %d tokens",
        len(imported.changes),
        UPSTREAM_LOG_PATH,
        len(imported.metadata.streams),
        len(imported.metadata.users),
        len(imported.metadata.tokens),
    )
    return imported
