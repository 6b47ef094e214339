"""The JSON bodies and the queries of requests.

Unknown keys are ignored, except at the top of a send, where Apache Iggy 0.8 refuses them too.
Only types are checked here; handlers check the values.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from iggy_protocol.rest.shapes import (
    MESSAGE_ID_MAX,
    U8,
    U32,
    U64,
    CompressionName,
    PermissionsShape,
    SecretStruct,
    UserHeadersField,
    UserStatusName,
)

U64_MAX: Final = 2**64 - 1

# A sign and leading zeros are accepted, as in Apache Iggy 0.8; 39 digits hold 128 bits.
_DECIMAL: Final = re.compile(r"\+?0*([0-9]{1,39})")

# Apache Iggy 0.8 ignores the case of this name only.
CompressionText: TypeAlias = Annotated[str, Meta(pattern=r"\A(?i:none|gzip)\Z")]
PartitioningName: TypeAlias = Literal["balanced", "partition_id", "messages_key"]
SnapshotCompressionName: TypeAlias = Literal["Stored", "Deflated", "Bzip2", "Zstd", "Lzma", "Xz"]
SnapshotTypeName: TypeAlias = Literal[
    "FilesystemOverview",
    "ProcessList",
    "ResourceUsage",
    "Test",
    "ServerLogs",
    "ServerConfig",
    "All",
]
StrategyName: TypeAlias = Literal["offset", "timestamp", "first", "last", "next"]
StrategyText: TypeAlias = Literal[
    "offset", "timestamp", "first", "last", "next", "o", "t", "f", "l", "n"
]

# An option as JSON: a text as in a configuration file, or a number that JSON can hold.
OptionJson: TypeAlias = bool | int | str
OptionsField: TypeAlias = dict[str, OptionJson]
ResourcePatch: TypeAlias = dict[str, OptionJson | list[str] | OptionsField | None]
"""An update from 0.9 on: options by key, null for one that stays, ``reset``, and ``options``."""

_STRATEGIES: Final[dict[str, StrategyName]] = {
    "o": "offset",
    "t": "timestamp",
    "f": "first",
    "l": "last",
    "n": "next",
}


def parse_message_id(value: int | str) -> int:
    """Read a message id in any form that a send body may hold.

    Args:
        value: an integer of 64 bits, a decimal text of 128 bits, or a UUID of 32 hexadecimal
            digits with or without dashes, read as a big-endian number.

    Raises:
        ValueError: the value is none of them.
    """
    if isinstance(value, int):
        if 0 <= value <= U64_MAX:
            return value
        raise ValueError("a message id as a number has 64 bits; write a larger one as text")
    decimal = _DECIMAL.fullmatch(value)
    if decimal is not None and int(decimal[1]) <= MESSAGE_ID_MAX:
        return int(decimal[1])
    digits = value.replace("-", "")
    if len(digits) == 32 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
        return int(digits, 16)
    raise ValueError("a message id as text is a decimal number of 128 bits or a UUID")


def format_message_id(message_id: int) -> int | str:
    """Write a message id so that a server accepts it: as text above 64 bits."""
    return message_id if message_id <= U64_MAX else str(message_id)


def _demand_u64(**fields: int) -> None:
    for name, value in fields.items():
        if value > U64_MAX:
            raise ValueError(f"{name} has at most 64 bits")


class LoginBody(SecretStruct, frozen=True):
    """Log in with a password."""

    username: str
    password: str
    version: str | None = None
    context: str | None = None


class RefreshTokenBody(SecretStruct, frozen=True):
    """Swap a JWT for a fresh one."""

    token: str


class LoginWithTokenBody(SecretStruct, frozen=True):
    """Log in with a personal access token."""

    token: str


class CreateUserBody(SecretStruct, frozen=True):
    """Create a user."""

    username: str
    password: str
    status: UserStatusName
    permissions: PermissionsShape | None = None
    options: OptionsField | UnsetType = UNSET


class UpdateUserBody(Struct, frozen=True):
    """Change a user; what is absent stays."""

    username: str | None = None
    status: UserStatusName | None = None


class UpdatePermissionsBody(Struct, frozen=True):
    """Replace a user's permissions."""

    permissions: PermissionsShape | None = None


class ChangePasswordBody(SecretStruct, frozen=True):
    """Change a user's password."""

    current_password: str
    new_password: str


class CreatePersonalAccessTokenBody(Struct, frozen=True):
    """Create a personal access token that lives this many microseconds; zero means for ever."""

    name: str
    expiry: U64

    def __post_init__(self) -> None:
        _demand_u64(expiry=self.expiry)


class CreateStreamBody(Struct, frozen=True):
    """Create a stream."""

    name: str
    options: OptionsField | UnsetType = UNSET


class UpdateStreamBody(Struct, frozen=True):
    """Rename a stream."""

    name: str


class UpdateTopicBody(Struct, frozen=True):
    """Change a topic."""

    name: str
    compression_algorithm: CompressionText
    message_expiry: U64
    max_topic_size: U64
    replication_factor: U8 | None = None

    def __post_init__(self) -> None:
        _demand_u64(message_expiry=self.message_expiry, max_topic_size=self.max_topic_size)

    @property
    def compression(self) -> CompressionName:
        """The algorithm, in the case in which servers answer it."""
        return cast("CompressionName", self.compression_algorithm.lower())


class CreateTopicBody(UpdateTopicBody, frozen=True, kw_only=True):
    """Create a topic."""

    partitions_count: U32


class NewTopicBody(Struct, frozen=True):
    """Create a topic with options, which clients from 0.9 on do; 0.9 has three beside them."""

    name: str
    partitions_count: U32
    options: OptionsField | None = None
    compression_algorithm: OptionJson | None = None
    message_expiry: OptionJson | None = None
    max_topic_size: OptionJson | None = None


class CreatePartitionsBody(Struct, frozen=True):
    """Add partitions to a topic."""

    partitions_count: U32


class DeletePartitionsQuery(Struct, frozen=True):
    """Remove partitions from the end of a topic."""

    partitions_count: U32


class DeleteSegmentsQuery(Struct, frozen=True):
    """Remove the oldest segments of a partition."""

    segments_count: U32


class PartitioningBody(Struct, frozen=True):
    """Where a batch goes; the value is required even when it is empty."""

    kind: PartitioningName
    value: bytes


class MessageBody(Struct, frozen=True, omit_defaults=True):
    """A message to send; id zero asks the server for one."""

    payload: Annotated[bytes, Meta(min_length=1)]
    id: int | str = 0
    user_headers: UserHeadersField | None = None

    def __post_init__(self) -> None:
        if self.id != 0:
            parse_message_id(self.id)

    @property
    def message_id(self) -> int:
        """The id as a number, in whichever form it came."""
        return parse_message_id(self.id)


class SendContextBody(Struct, frozen=True):
    """The state of the partition that a client from 0.10 on has read."""

    incarnation: U64
    owner_generation: U64 = 0
    metadata_op: U64 = 0


class SendMessagesBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Send a batch."""

    partitioning: PartitioningBody
    messages: tuple[MessageBody, ...]
    context: SendContextBody | UnsetType = UNSET


class SendQuery(Struct, frozen=True):
    """How a send is answered: with ``none`` before its messages are stored."""

    ack: str | None = None


class PollQuery(Struct, frozen=True):
    """Poll as a single consumer."""

    consumer_id: str = "1"
    partition_id: U32 = 0
    kind: StrategyText = "offset"
    value: U64 = 0
    count: U32 = 10
    auto_commit: bool = False

    def __post_init__(self) -> None:
        _demand_u64(value=self.value)

    @property
    def strategy(self) -> StrategyName:
        """The kind, written out when it came as a letter."""
        return _STRATEGIES[self.kind[0]]


class ConsumerOffsetQuery(Struct, frozen=True):
    """Ask for a stored offset."""

    consumer_id: str = "1"
    partition_id: U32 | None = None


class DeleteConsumerOffsetQuery(Struct, frozen=True):
    """Forget a stored offset."""

    partition_id: U32 | None = None


class StoreConsumerOffsetBody(Struct, frozen=True):
    """Store an offset; digits as text are a number all the same."""

    offset: U64
    consumer_id: U32 | str = 1
    partition_id: U32 | None = None

    def __post_init__(self) -> None:
        _demand_u64(offset=self.offset)


class CreateConsumerGroupBody(Struct, frozen=True):
    """Create a consumer group."""

    name: str


class SnapshotBody(Struct, frozen=True):
    """Collect diagnostics; names are case-sensitive."""

    compression: SnapshotCompressionName
    snapshot_types: tuple[SnapshotTypeName, ...]
