"""The changes of the metadata, as they are written to the log.

One struct for each kind of change. It holds every decision: ids, times, hashes, settings. So
applying a change needs neither a clock nor random numbers.

These are bytes on disk: a field may be added with a default, and readers skip fields that they do
not know; no stored name may change, nor its meaning. Hashes are kept out of ``repr``, so that log
lines can name a change.
"""

from __future__ import annotations

import msgspec

from iggy_protocol import (  # noqa: TC001 - msgspec reads the annotations at run time
    CompressionAlgorithm,
    Permissions,
    UserStatus,
)
from iggy_ref_server.metadata.log import STORED_NAMES
from iggy_ref_server.metadata.options import (  # noqa: TC001 - msgspec reads the annotations
    StoredOption,
)


class StreamCreated(msgspec.Struct, frozen=True, tag="stream+", omit_defaults=True):
    """A stream without topics came to be."""

    id: int
    name: str
    created_at_us: int
    options: tuple[StoredOption, ...] = ()


class StreamRenamed(msgspec.Struct, frozen=True, tag="stream="):
    """A stream took another name."""

    id: int
    name: str


class StreamDeleted(msgspec.Struct, frozen=True, tag="stream-"):
    """A stream went away with everything in it, and with the permissions that named it."""

    id: int


class StreamPurged(msgspec.Struct, frozen=True, tag="stream0", rename=STORED_NAMES):
    """All partitions of a stream were emptied."""

    id: int
    generation: int


class TopicCreated(
    msgspec.Struct, frozen=True, tag="topic+", omit_defaults=True, rename=STORED_NAMES
):
    """A topic came to be, with its first partitions; ``derived`` names fields that nobody set."""

    stream_id: int
    id: int
    name: str
    created_at_us: int
    partitions_count: int
    generation: int
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_size_bytes: int
    replication_factor: int
    options: tuple[StoredOption, ...] = ()
    derived: tuple[str, ...] = ()


class TopicUpdated(msgspec.Struct, frozen=True, tag="topic=", omit_defaults=True):
    """A topic took another name and other settings."""

    stream_id: int
    id: int
    name: str
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_size_bytes: int
    replication_factor: int
    derived: tuple[str, ...] = ()


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic-"):
    """A topic went away with everything in it, and with the permissions that named it."""

    stream_id: int
    id: int


class TopicPurged(msgspec.Struct, frozen=True, tag="topic0", rename=STORED_NAMES):
    """All partitions of a topic were emptied."""

    stream_id: int
    id: int
    generation: int


class PartitionsAdded(msgspec.Struct, frozen=True, tag="partitions+", rename=STORED_NAMES):
    """Partitions were added behind the last one."""

    stream_id: int
    topic_id: int
    first_id: int
    count: int
    created_at_us: int
    generation: int


class PartitionsRemoved(msgspec.Struct, frozen=True, tag="partitions-"):
    """The last partitions went away; ``kept_count`` are left."""

    stream_id: int
    topic_id: int
    kept_count: int


class GroupCreated(msgspec.Struct, frozen=True, tag="group+", rename=STORED_NAMES):
    """A consumer group came to be."""

    stream_id: int
    topic_id: int
    id: int
    name: str
    generation: int


class GroupDeleted(msgspec.Struct, frozen=True, tag="group-"):
    """A consumer group went away."""

    stream_id: int
    topic_id: int
    id: int


class UserCreated(
    msgspec.Struct, frozen=True, tag="user+", omit_defaults=True, rename=STORED_NAMES
):
    """A user came to be."""

    id: int
    generation: int
    username: str
    password_hash: str
    status: UserStatus
    created_at_us: int
    permissions: Permissions | None = None
    options: tuple[StoredOption, ...] = ()

    def __repr__(self) -> str:
        return f"UserCreated(id={self.id}, username={self.username!r}, status={self.status!r})"


class UserUpdated(
    msgspec.Struct, frozen=True, tag="user=", omit_defaults=True, rename=STORED_NAMES
):
    """A user took another name or another status; ``None`` left it as it was.

    Sessions of the user end when there is an incarnation.
    """

    id: int
    username: str | None = None
    status: UserStatus | None = None
    generation: int | None = None


class UserDeleted(msgspec.Struct, frozen=True, tag="user-"):
    """A user went away with its tokens."""

    id: int


class PasswordChanged(msgspec.Struct, frozen=True, tag="password="):
    """A user has another password."""

    user_id: int
    password_hash: str

    def __repr__(self) -> str:
        return f"PasswordChanged(user_id={self.user_id})"


class PermissionsChanged(msgspec.Struct, frozen=True, tag="permissions=", omit_defaults=True):
    """A user has other permissions, or none at all."""

    user_id: int
    permissions: Permissions | None = None


class TokenCreated(msgspec.Struct, frozen=True, tag="token+", omit_defaults=True):
    """A user made a personal access token."""

    user_id: int
    name: str
    hash: str
    expires_at_us: int | None = None

    def __repr__(self) -> str:
        return f"TokenCreated(user_id={self.user_id}, name={self.name!r})"


class TokenDeleted(msgspec.Struct, frozen=True, tag="token-"):
    """A user gave up a personal access token."""

    user_id: int
    name: str


class TokensExpired(msgspec.Struct, frozen=True, tag="tokens-"):
    """The tokens whose time had come by then went away."""

    now_us: int


Change = (
    StreamCreated
    | StreamRenamed
    | StreamDeleted
    | StreamPurged
    | TopicCreated
    | TopicUpdated
    | TopicDeleted
    | TopicPurged
    | PartitionsAdded
    | PartitionsRemoved
    | GroupCreated
    | GroupDeleted
    | UserCreated
    | UserUpdated
    | UserDeleted
    | PasswordChanged
    | PermissionsChanged
    | TokenCreated
    | TokenDeleted
    | TokensExpired
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)


def encode_change(change: Change) -> bytes:
    """Write a change as bytes."""
    return _ENCODER.encode(change)


def decode_change(data: bytes) -> Change:
    """Read a change.

    Raises:
        msgspec.MsgspecError: the bytes are no change that this version knows.
    """
    return _DECODER.decode(data)
