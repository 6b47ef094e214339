"""Settings of topics, streams and users in the official spelling, and the options they become.

Servers from 0.9 on take settings as options by name. A setting that an older server has as a field
travels as the field; the others are refused for such a server before anything is sent.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from base64 import b64decode
from datetime import timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    Options,
    OptionValue,
)
from iggy_sdk.compat.variants import ByValue, SequenceVariant, variant
from iggy_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_sdk.families.topic_settings import CompressionLabel, Expiry, TopicSize

# How long and how much a topic keeps.


class IggyExpiry(ByValue, ABC):
    """How long messages are kept."""

    __slots__ = ()
    ServerDefault: ClassVar[type[DefaultExpiry]]
    ExpireDuration: ClassVar[type[ExpiryDuration]]
    NeverExpire: ClassVar[type[NoExpiry]]

    @property
    @abstractmethod
    def own(self) -> Expiry:
        """The expiry as this SDK spells it."""


@variant(IggyExpiry, "ServerDefault")
class DefaultExpiry(IggyExpiry, SequenceVariant):
    """As the server is set to."""

    __slots__ = ()

    @property
    def own(self) -> None:
        """The expiry as this SDK spells it."""


@variant(IggyExpiry, "ExpireDuration")
class ExpiryDuration(IggyExpiry):
    """So long."""

    __slots__ = ("duration",)
    __match_args__ = ("duration",)

    def __init__(self, duration: timedelta) -> None:
        self.duration: timedelta = duration

    @property
    def own(self) -> timedelta:
        """The expiry as this SDK spells it."""
        return self.duration


@variant(IggyExpiry, "NeverExpire")
class NoExpiry(IggyExpiry, SequenceVariant):
    """For ever."""

    __slots__ = ()

    @property
    def own(self) -> Literal["never"]:
        """The expiry as this SDK spells it."""
        return "never"


AnyExpiry: TypeAlias = IggyExpiry | timedelta | Literal["never"] | None
"""How long messages are kept, in either spelling."""


def own_expiry(expiry: AnyExpiry) -> Expiry:
    """Return an expiry as this SDK spells it, in either spelling."""
    return expiry.own if isinstance(expiry, IggyExpiry) else expiry


def expiry_of(expiry_us: int) -> IggyExpiry:
    """Read the expiry of a topic."""
    if expiry_us == SERVER_DEFAULT:
        return DefaultExpiry()
    if expiry_us == NEVER_EXPIRES:
        return NoExpiry()
    return ExpiryDuration(timedelta(microseconds=expiry_us))


class MaxTopicSize(ByValue, ABC):
    """How large a topic may get."""

    __slots__ = ()
    ServerDefault: ClassVar[type[DefaultSize]]
    Custom: ClassVar[type[SizeInBytes]]
    Unlimited: ClassVar[type[NoSizeLimit]]

    @property
    @abstractmethod
    def own(self) -> TopicSize:
        """The size as this SDK spells it."""


@variant(MaxTopicSize, "ServerDefault")
class DefaultSize(MaxTopicSize, SequenceVariant):
    """As the server is set to."""

    __slots__ = ()

    @property
    def own(self) -> None:
        """The size as this SDK spells it."""


@variant(MaxTopicSize, "Custom")
class SizeInBytes(MaxTopicSize):
    """So many bytes."""

    __slots__ = ("bytes",)
    __match_args__ = ("bytes",)

    def __init__(self, bytes: int) -> None:  # noqa: A002  official name
        self.bytes: int = bytes

    @property
    def own(self) -> int:
        """The size as this SDK spells it."""
        return self.bytes


@variant(MaxTopicSize, "Unlimited")
class NoSizeLimit(MaxTopicSize, SequenceVariant):
    """Without a bound."""

    __slots__ = ()

    @property
    def own(self) -> Literal["unlimited"]:
        """The size as this SDK spells it."""
        return "unlimited"


AnySize: TypeAlias = MaxTopicSize | int | str | None
"""How large a topic may get, in either spelling."""


def own_size(size: AnySize) -> TopicSize:
    """Return a size as this SDK spells it, in either spelling."""
    return size.own if isinstance(size, MaxTopicSize) else size


def size_of(size_bytes: int) -> MaxTopicSize:
    """Read the size limit of a topic."""
    if size_bytes == SERVER_DEFAULT:
        return DefaultSize()
    return NoSizeLimit() if size_bytes == UNLIMITED else SizeInBytes(size_bytes)


# Names and choices.


class Durability(str, Enum):  # noqa: UP042  the official text is "Durability.REPLICATED"
    """When a server from 0.9 on answers a send: replicated, or persisted on disk."""

    REPLICATED = "replicated"
    PERSISTED = "persisted"


class PartitionResizePolicy(StrEnum):
    """Whether partitions may be added to a topic and deleted; servers from 0.10 on."""

    Mutable = "mutable"
    Fixed = "fixed"


class OptionKey(StrEnum):
    """The name of an option; ``str()`` is how the server spells it."""

    Name = "name"
    Username = "username"
    Status = "status"
    CompressionAlgorithm = "compression_algorithm"
    MessageExpiry = "message_expiry"
    MaxTopicSize = "max_topic_size"
    SegmentSize = "segment_size"
    Durability = "durability"
    ConsumerOffsetDurability = "consumer_offset_durability"
    PartitionResizePolicy = "partition_resize_policy"
    MessagesRequiredToSave = "messages_required_to_save"
    SizeOfMessagesRequiredToSave = "size_of_messages_required_to_save"
    PreallocateSegments = "preallocate_segments"
    EncryptionKey = "encryption_key"
    EncryptionKeySource = "encryption_key_source"
    EncryptionKeyFingerprint = "encryption_key_fingerprint"
    EncryptionKekFingerprint = "encryption_kek_fingerprint"


# Options of new resources.


class TopicOptions(ByValue):
    """The settings of a new topic; what is None the server chooses."""

    __slots__ = __match_args__ = (
        *("partitions_count", "compression_algorithm", "message_expiry", "max_topic_size"),
        *("segment_size", "durability", "consumer_offset_durability", "partition_resize_policy"),
        *("messages_required_to_save", "size_of_messages_required_to_save"),
        *("preallocate_segments", "raw"),
    )

    def __init__(
        self,
        *,
        partitions_count: int = 1,
        compression_algorithm: CompressionLabel = None,
        message_expiry: AnyExpiry = None,
        max_topic_size: AnySize = None,
        segment_size: int | None = None,
        durability: Durability | None = None,
        consumer_offset_durability: Durability | None = None,
        partition_resize_policy: PartitionResizePolicy | None = None,
        messages_required_to_save: int | None = None,
        size_of_messages_required_to_save: int | None = None,
        preallocate_segments: bool | None = None,
        raw: Mapping[str, str] | None = None,
    ) -> None:
        """Take the settings; all but the first four ask for a server from 0.9 on.

        Args:
            partitions_count: how many partitions it gets.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: how long messages are kept.
            max_topic_size: how large it may get.
            segment_size: bytes of a segment.
            durability: when a send is answered.
            consumer_offset_durability: when a stored offset is answered.
            partition_resize_policy: whether partitions may be added and deleted; from 0.10 on.
            messages_required_to_save: how many messages may wait in memory.
            size_of_messages_required_to_save: how many bytes may wait in memory.
            preallocate_segments: whether a segment takes its full size on disk at once.
            raw: further options by name, as texts; a setting above counts more.
        """
        self.partitions_count = partitions_count
        self.compression_algorithm = compression_algorithm
        self.message_expiry = message_expiry
        self.max_topic_size = max_topic_size
        self.segment_size = segment_size
        self.durability = durability
        self.consumer_offset_durability = consumer_offset_durability
        self.partition_resize_policy = partition_resize_policy
        self.messages_required_to_save = messages_required_to_save
        self.size_of_messages_required_to_save = size_of_messages_required_to_save
        self.preallocate_segments = preallocate_segments
        self.raw: dict[str, str] = dict(raw or {})

    def options(self) -> Options:
        """Return the settings that are no fields of a request, as options."""
        typed = {
            "segment_size": _u64(self.segment_size),
            "durability": _text(self.durability),
            "consumer_offset_durability": _text(self.consumer_offset_durability),
            "partition_resize_policy": _text(self.partition_resize_policy),
            "messages_required_to_save": _u32(self.messages_required_to_save),
            "size_of_messages_required_to_save": _u64(self.size_of_messages_required_to_save),
            "preallocate_segments": _flag(self.preallocate_segments),
        }
        fields = {
            "compression_algorithm": self.compression_algorithm,
            "message_expiry": self.message_expiry,
            "max_topic_size": self.max_topic_size,
        }
        taken = {name for name, value in {**typed, **fields}.items() if value is not None}
        given = {name: text for name, text in self.raw.items() if name not in taken}
        return Options(
            {**text_options(given), **{key: one for key, one in typed.items() if one is not None}}
        )


def _u32(count: int | None) -> OptionValue | None:
    return None if count is None else OptionValue.uint32(count)


def _u64(count: int | None) -> OptionValue | None:
    return None if count is None else OptionValue.uint64(count)


def _text(choice: Durability | PartitionResizePolicy | None) -> OptionValue | None:
    return None if choice is None else OptionValue.string(choice.value)


def _flag(flag: bool | None) -> OptionValue | None:
    return None if flag is None else OptionValue.boolean(flag)


def text_options(texts: Mapping[str, str] | None) -> Options:
    """Return options that are given as texts, which the server reads."""
    return Options({key: OptionValue.string(text) for key, text in (texts or {}).items()})


class StreamOptions(ByValue):
    """The options of a new stream; its key is never shown."""

    __slots__ = ("_key", "raw")
    __match_args__ = ("has_encryption_key", "raw")

    def __init__(
        self, *, encryption_key: bytes | str | None = None, raw: Mapping[str, str] | None = None
    ) -> None:
        """Take the options, which ask for a server from 0.10 on.

        Args:
            encryption_key: the key with which the server encrypts the stream: 32 bytes, or base64.
            raw: further options by name, as texts.

        Raises:
            ConfigurationError: the key cannot be one.
        """
        self._key = None if encryption_key is None else _key_bytes(encryption_key)
        self.raw: dict[str, str] = dict(raw or {})

    @property
    def has_encryption_key(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def options(self) -> Options:
        """Return what travels."""
        key = {} if self._key is None else {"encryption_key": OptionValue.raw_bytes(self._key)}
        return Options({**text_options(self.raw), **key})


class UserOptions(ByValue):
    """The options of a new user, by name."""

    __slots__ = __match_args__ = ("raw",)

    def __init__(self, *, raw: Mapping[str, str] | None = None) -> None:
        """Take options as texts, which ask for a server from 0.9 on."""
        self.raw: dict[str, str] = dict(raw or {})

    def options(self) -> Options:
        """Return what travels."""
        return text_options(self.raw)


KEY_BYTES: Final = 32
FINGERPRINT_LABEL: Final = b"iggy/stream-key-fingerprint/v1"
FINGERPRINT_BYTES: Final = 8


def _key_bytes(key: bytes | str) -> bytes:
    try:
        given = b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except ValueError:
        given = b""
    if len(given) != KEY_BYTES:
        # The key is not quoted, and the cause would quote it.
        raise ConfigurationError(
            "the encryption key cannot be used",
            advice=f"Give {KEY_BYTES} bytes, or the same as base64.",
        ) from None
    return given


def encryption_key_fingerprint(key: bytes | str) -> str:
    """Return what a server reports of a stream that is encrypted with this key.

    Args:
        key: 32 bytes, or base64.

    Raises:
        ConfigurationError: it cannot be a key.
    """
    digest = hashlib.sha256(FINGERPRINT_LABEL + _key_bytes(key)).digest()
    return digest[:FINGERPRINT_BYTES].hex()
