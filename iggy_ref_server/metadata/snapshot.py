"""The snapshot of the metadata: the file that lets the log restart, and the start of a replica.

As with changes, a field may be added with a default, and no stored name may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iggy_protocol import (  # noqa: TC001 - msgspec reads the annotations at run time
    CompressionAlgorithm,
    Permissions,
    UserStatus,
)
from iggy_ref_server.metadata.catalog import Catalog, Named
from iggy_ref_server.metadata.damage import MetadataDamaged
from iggy_ref_server.metadata.frame import (
    HEAD_SIZE,
    STORED_NAMES,
    check_head,
    encode_frame,
    file_head,
    open_payload,
    read_frame,
)
from iggy_ref_server.metadata.records import (
    GroupRecord,
    PartitionRecord,
    StreamRecord,
    TokenRecord,
    TopicRecord,
    UserRecord,
)
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.token_shelf import TokenShelf

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from iggy_ref_server.metadata.frame import Seal

    T = TypeVar("T", bound=Named)

__all__ = ["SNAPSHOT_MAGIC", "SNAPSHOT_PATH", "decode_snapshot", "encode_snapshot"]

SNAPSHOT_PATH = "state/metadata.snapshot"
SNAPSHOT_MAGIC = b"iggysnap"


class PartitionImage(msgspec.Struct, frozen=True, array_like=True):
    """A partition; its id is its place in the list."""

    created_at_us: int
    incarnation: int


class GroupImage(msgspec.Struct, frozen=True, array_like=True):
    """A consumer group."""

    id: int
    name: str
    incarnation: int


class TopicImage(msgspec.Struct, frozen=True):
    """A topic with all it holds."""

    id: int
    name: str
    created_at_us: int
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_size_bytes: int
    replication_factor: int
    partitions: tuple[PartitionImage, ...]
    groups: tuple[GroupImage, ...]
    free_group_ids: tuple[int, ...]


class StreamImage(msgspec.Struct, frozen=True):
    """A stream with all it holds."""

    id: int
    name: str
    created_at_us: int
    topics: tuple[TopicImage, ...]
    free_topic_ids: tuple[int, ...]


class UserImage(msgspec.Struct, frozen=True, rename=STORED_NAMES):
    """A user."""

    id: int
    incarnation: int
    username: str
    password_hash: str
    status: UserStatus
    created_at_us: int
    permissions: Permissions | None


class TokenImage(msgspec.Struct, frozen=True):
    """A personal access token."""

    user_id: int
    name: str
    hash: str
    expires_at_us: int | None


class MetadataImage(msgspec.Struct, frozen=True, rename=STORED_NAMES):
    """All of it."""

    streams: tuple[StreamImage, ...]
    free_stream_ids: tuple[int, ...]
    users: tuple[UserImage, ...]
    free_user_ids: tuple[int, ...]
    tokens: tuple[TokenImage, ...]
    last_incarnation: int = 0
    doubtful_incarnation: int = 0


_DECODER = msgspec.msgpack.Decoder(MetadataImage)


def _topic_image(topic: TopicRecord) -> TopicImage:
    return TopicImage(
        id=topic.id,
        name=topic.name,
        created_at_us=topic.created_at_us,
        message_expiry_us=topic.message_expiry_us,
        compression=topic.compression,
        max_size_bytes=topic.max_size_bytes,
        replication_factor=topic.replication_factor,
        partitions=tuple(
            PartitionImage(partition.created_at_us, partition.incarnation)
            for partition in topic.partitions
        ),
        groups=tuple(GroupImage(group.id, group.name, group.incarnation) for group in topic.groups),
        free_group_ids=topic.groups.free_ids,
    )


def _user_image(user: UserRecord) -> UserImage:
    return UserImage(
        id=user.id,
        incarnation=user.incarnation,
        username=user.username,
        password_hash=user.password_hash,
        status=user.status,
        created_at_us=user.created_at_us,
        permissions=user.permissions,
    )


def _image(metadata: Metadata) -> MetadataImage:
    return MetadataImage(
        streams=tuple(
            StreamImage(
                id=stream.id,
                name=stream.name,
                created_at_us=stream.created_at_us,
                topics=tuple(_topic_image(topic) for topic in stream.topics),
                free_topic_ids=stream.topics.free_ids,
            )
            for stream in metadata.streams
        ),
        free_stream_ids=metadata.streams.free_ids,
        users=tuple(_user_image(user) for user in metadata.users),
        free_user_ids=metadata.users.free_ids,
        tokens=tuple(
            TokenImage(token.user_id, token.name, token.hash, token.expires_at_us)
            for token in metadata.tokens
        ),
        last_incarnation=metadata.last_incarnation,
        doubtful_incarnation=metadata.doubtful_incarnation,
    )


def _catalog(things: Iterable[T], free_ids: tuple[int, ...]) -> Catalog[T]:
    by_id = {thing.id: thing for thing in things}
    return Catalog(by_id, {thing.name: thing.id for thing in by_id.values()}, free_ids)


def _topic(stream_id: int, image: TopicImage) -> TopicRecord:
    return TopicRecord(
        stream_id=stream_id,
        id=image.id,
        name=image.name,
        created_at_us=image.created_at_us,
        message_expiry_us=image.message_expiry_us,
        compression=image.compression,
        max_size_bytes=image.max_size_bytes,
        replication_factor=image.replication_factor,
        partitions=tuple(
            PartitionRecord(number, partition.created_at_us, partition.incarnation)
            for number, partition in enumerate(image.partitions)
        ),
        groups=_catalog(
            (GroupRecord(group.id, group.name, group.incarnation) for group in image.groups),
            image.free_group_ids,
        ),
    )


def _stream(image: StreamImage) -> StreamRecord:
    topics = _catalog((_topic(image.id, topic) for topic in image.topics), image.free_topic_ids)
    return StreamRecord(image.id, image.name, image.created_at_us, topics)


def _user(image: UserImage) -> UserRecord:
    return UserRecord(
        id=image.id,
        incarnation=image.incarnation,
        username=image.username,
        password_hash=image.password_hash,
        status=image.status,
        created_at_us=image.created_at_us,
        permissions=image.permissions,
    )


def _metadata(version: int, image: MetadataImage) -> Metadata:
    return Metadata(
        version=version,
        streams=_catalog(map(_stream, image.streams), image.free_stream_ids),
        users=_catalog(map(_user, image.users), image.free_user_ids),
        tokens=TokenShelf.holding(
            TokenRecord(token.user_id, token.name, token.hash, token.expires_at_us)
            for token in image.tokens
        ),
        last_incarnation=image.last_incarnation,
        doubtful_incarnation=image.doubtful_incarnation,
    )


def encode_snapshot(metadata: Metadata, timestamp_us: int, seal: Seal | None = None) -> bytes:
    """Write the whole metadata as a file."""
    payload = msgspec.msgpack.encode(_image(metadata))
    return file_head(SNAPSHOT_MAGIC) + encode_frame(metadata.version, timestamp_us, payload, seal)


def decode_snapshot(data: bytes, seal: Seal | None = None) -> Metadata:
    """Read the whole metadata.

    Raises:
        MetadataDamaged: these are not the bytes that were written.
        MetadataLocked: they are sealed with another key.
    """
    check_head(data, SNAPSHOT_MAGIC, SNAPSHOT_PATH)
    frame = read_frame(data, HEAD_SIZE)
    if frame is None:
        raise MetadataDamaged(SNAPSHOT_PATH, HEAD_SIZE, "the snapshot does not match its checksum")
    payload = open_payload(frame, seal, SNAPSHOT_PATH)
    try:
        return _metadata(frame.version, _DECODER.decode(payload))
    except msgspec.MsgspecError as error:
        raise MetadataDamaged(
            SNAPSHOT_PATH, HEAD_SIZE, f"the snapshot is not known to this version: {error}"
        ) from error
