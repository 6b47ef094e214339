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
from iggy_ref_server.metadata.errors import MetadataDamaged
from iggy_ref_server.metadata.log import (
    HEADER_SIZE,
    STORED_NAMES,
    FrameCipher,
    check_header,
    decrypt_payload,
    encode_frame,
    file_header,
    read_frame,
)
from iggy_ref_server.metadata.options import StoredOption, restore_options, store_options
from iggy_ref_server.metadata.state import (
    Catalog,
    GroupRecord,
    Metadata,
    Named,
    PartitionRecord,
    StreamRecord,
    TokenIndex,
    TokenRecord,
    TopicRecord,
    UserRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    T = TypeVar("T", bound=Named)


SNAPSHOT_PATH = "state/metadata.snapshot"
SNAPSHOT_MAGIC = b"iggysnap"


class PartitionImage(msgspec.Struct, frozen=True, array_like=True):
    """A partition; its id is its place in the list."""

    created_at_us: int
    generation: int


class GroupImage(msgspec.Struct, frozen=True, array_like=True):
    """A consumer group."""

    id: int
    name: str
    generation: int


class TopicImage(msgspec.Struct, frozen=True, omit_defaults=True):
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
    options: tuple[StoredOption, ...] = ()
    derived: tuple[str, ...] = ()


class StreamImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream with all it holds."""

    id: int
    name: str
    created_at_us: int
    topics: tuple[TopicImage, ...]
    free_topic_ids: tuple[int, ...]
    options: tuple[StoredOption, ...] = ()


class UserImage(msgspec.Struct, frozen=True, omit_defaults=True, rename=STORED_NAMES):
    """A user."""

    id: int
    generation: int
    username: str
    password_hash: str
    status: UserStatus
    created_at_us: int
    permissions: Permissions | None
    options: tuple[StoredOption, ...] = ()


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
    last_generation: int = 0
    doubtful_generation: int = 0


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
            PartitionImage(partition.created_at_us, partition.generation)
            for partition in topic.partitions
        ),
        groups=tuple(GroupImage(group.id, group.name, group.generation) for group in topic.groups),
        free_group_ids=topic.groups.free_ids,
        options=store_options(topic.options),
        derived=tuple(sorted(topic.derived)),
    )


def _user_image(user: UserRecord) -> UserImage:
    return UserImage(
        id=user.id,
        generation=user.generation,
        username=user.username,
        password_hash=user.password_hash,
        status=user.status,
        created_at_us=user.created_at_us,
        permissions=user.permissions,
        options=store_options(user.options),
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
                options=store_options(stream.options),
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
        last_generation=metadata.last_generation,
        doubtful_generation=metadata.doubtful_generation,
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
            PartitionRecord(number, partition.created_at_us, partition.generation)
            for number, partition in enumerate(image.partitions)
        ),
        groups=_catalog(
            (GroupRecord(group.id, group.name, group.generation) for group in image.groups),
            image.free_group_ids,
        ),
        options=restore_options(image.options),
        derived=frozenset(image.derived),
    )


def _stream(image: StreamImage) -> StreamRecord:
    topics = _catalog((_topic(image.id, topic) for topic in image.topics), image.free_topic_ids)
    options = restore_options(image.options)
    return StreamRecord(image.id, image.name, image.created_at_us, topics, options)


def _user(image: UserImage) -> UserRecord:
    return UserRecord(
        id=image.id,
        generation=image.generation,
        username=image.username,
        password_hash=image.password_hash,
        status=image.status,
        created_at_us=image.created_at_us,
        permissions=image.permissions,
        options=restore_options(image.options),
    )


def _metadata(version: int, image: MetadataImage) -> Metadata:
    return Metadata(
        version=version,
        streams=_catalog(map(_stream, image.streams), image.free_stream_ids),
        users=_catalog(map(_user, image.users), image.free_user_ids),
        tokens=TokenIndex.from_tokens(
            TokenRecord(token.user_id, token.name, token.hash, token.expires_at_us)
            for token in image.tokens
        ),
        last_generation=image.last_generation,
        doubtful_generation=image.doubtful_generation,
    )


def encode_snapshot(
    metadata: Metadata, timestamp_us: int, frame_cipher: FrameCipher | None = None
) -> bytes:
    """Write the whole metadata as a file."""
    payload = msgspec.msgpack.encode(_image(metadata))
    return file_header(SNAPSHOT_MAGIC) + encode_frame(
        metadata.version, timestamp_us, payload, frame_cipher
    )


def decode_snapshot(data: bytes, frame_cipher: FrameCipher | None = None) -> Metadata:
    """Read the whole metadata.

    Raises:
        MetadataDamaged: these are not the bytes that were written.
        MetadataLocked: they are sealed with another key.
    """
    check_header(data, SNAPSHOT_MAGIC, SNAPSHOT_PATH)
    frame = read_frame(data, HEADER_SIZE)
    if frame is None:
        raise MetadataDamaged(
            SNAPSHOT_PATH, HEADER_SIZE, "the snapshot does not match its checksum"
        )
    payload = decrypt_payload(frame, frame_cipher, SNAPSHOT_PATH)
    try:
        return _metadata(frame.version, _DECODER.decode(payload))
    except msgspec.MsgspecError as error:
        raise MetadataDamaged(
            SNAPSHOT_PATH, HEADER_SIZE, f"the snapshot is not known to this version: {error}"
        ) from error
