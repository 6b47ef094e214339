"""The Python SDK of Apache Iggy, on asyncio and on trio.

    import anyio
    from iggy_sdk import IggyClient

    async def main() -> None:
        async with IggyClient("iggy://iggy:secret@localhost:8090") as client:
            await client.create_stream("shop", exist_ok=True)
            await client.create_topic("shop", "orders", partitions_count=3, exist_ok=True)
            async with client.producer("shop", "orders") as producer:
                await producer.send(b"tea", key="ada")
            async with client.consumer_group("till", "shop", "orders") as consumer:
                async for message in consumer:
                    print(message.partition_id, message.offset, message.payload)

    anyio.run(main)

The public names are here, in ``iggy_sdk.blocking`` (without await), ``iggy_sdk.testing`` (a server
for tests), ``iggy_sdk.otel`` (tracing) and ``iggy_sdk.compat`` (the names of the official client).
A name is imported on first use, because pytest imports this package for its plugin in every
project that has it installed.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_protocol import (
        ChangesStart,
        ClientDetails,
        ClientInfo,
        ClusterMetadata,
        ClusterNode,
        CompressionAlgorithm,
        ConsumerGroup,
        ConsumerGroupAssignment,
        ConsumerGroupDetails,
        ConsumerGroupMember,
        ConsumerIdentity,
        ConsumerOffset,
        Dialect,
        GlobalPermissions,
        HeaderColumns,
        HeaderKey,
        HeaderKind,
        HeaderValue,
        Identity,
        MessageColumns,
        MetadataChanges,
        MetadataCursor,
        MetadataGroup,
        OptionDescription,
        OptionScope,
        Partition,
        PartitionContext,
        Partitioning,
        Permissions,
        PersonalAccessTokenInfo,
        PollingStrategy,
        RawPersonalAccessToken,
        SendConfirmation,
        Snapshot,
        SnapshotCompression,
        SnapshotType,
        Stats,
        StatusCode,
        Stream,
        StreamDetails,
        StreamPermissions,
        Topic,
        TopicDetails,
        TopicPermissions,
        User,
        UserDetails,
        UserStatus,
    )
    from iggy_sdk.client import (
        IggyClient,
    )
    from iggy_sdk.compression import (
        Compression,
    )
    from iggy_sdk.connection_string import (
        Endpoint,
        PasswordLogin,
        ServerProtocol,
        TokenLogin,
    )
    from iggy_sdk.consumer import (
        AutoCommit,
        BatchIterator,
        ConsumerBuilder,
        ConsumerOptions,
        ConsumerSettings,
        ConsumerStatistics,
        IggyConsumer,
        MessageList,
        PartitionsCallback,
        ReplayFrom,
        ReplayPlace,
        StartIfNew,
    )
    from iggy_sdk.durations import Seconds
    from iggy_sdk.encryption import (
        Encryptor,
    )
    from iggy_sdk.errors import (
        AlreadyExistsError,
        AuthenticationError,
        BufferFullError,
        ClientClosedError,
        ConfigurationError,
        ConnectionFailedError,
        ConsumerGroupError,
        ConsumerGroupExistsError,
        ConsumerGroupNotFoundError,
        DecryptionError,
        DisconnectedError,
        EncryptionError,
        IggyError,
        IncompatibleServerError,
        InvalidOffsetError,
        InvalidRequestError,
        LimitReachedError,
        MessageTooLargeError,
        NotAMemberError,
        NotFoundError,
        PartitionNotFoundError,
        PartitionNotOwnedError,
        PartitionRestartedError,
        PermissionDeniedError,
        ProducerClosedError,
        ProducerError,
        ProtocolError,
        RequestTimeoutError,
        SendFailedError,
        SerdeError,
        ServerError,
        StreamExistsError,
        StreamNotFoundError,
        TopicDiffersError,
        TopicDiffersWarning,
        TopicExistsError,
        TopicNotFoundError,
        UnsupportedByServerError,
    )
    from iggy_sdk.families.topic_settings import TopicOptions
    from iggy_sdk.hooks import (
        Hook,
    )
    from iggy_sdk.message import (
        Headers,
        Message,
        ReceivedBatch,
        ReceivedMessage,
    )
    from iggy_sdk.options import (
        ClientOptions,
        ClientSettings,
        Reconnect,
        Retry,
        TlsOptions,
        resolve_options,
    )
    from iggy_sdk.producer import (
        BackgroundMode,
        Backpressure,
        DirectMode,
        NewTopic,
        Producer,
        ProducerBuilder,
        ProducerOptions,
        ProducerSettings,
        ProducerStatistics,
        Receipt,
    )
    from iggy_sdk.request_reply import (
        RemoteHandlerError,
        ReplyTimeoutError,
        RequestReply,
        RequestReplyStatistics,
        Responder,
        ResponderStatistics,
    )
    from iggy_sdk.serde import (
        JsonSerde,
        MsgspecSerde,
        PydanticSerde,
        RawSerde,
        Serde,
        StrSerde,
    )
    from iggy_sdk.statistics import ClientStatistics, LatencySummary, SessionStatistics
    from iggy_sdk.value_types import Payload

__all__ = [
    "AlreadyExistsError",
    "AuthenticationError",
    "AutoCommit",
    "BackgroundMode",
    "Backpressure",
    "BatchIterator",
    "BufferFullError",
    "ChangesStart",
    "ClientClosedError",
    "ClientDetails",
    "ClientInfo",
    "ClientOptions",
    "ClientSettings",
    "ClientStatistics",
    "ClusterMetadata",
    "ClusterNode",
    "Compression",
    "CompressionAlgorithm",
    "ConfigurationError",
    "ConnectionFailedError",
    "ConsumerBuilder",
    "ConsumerGroup",
    "ConsumerGroupAssignment",
    "ConsumerGroupDetails",
    "ConsumerGroupError",
    "ConsumerGroupExistsError",
    "ConsumerGroupMember",
    "ConsumerGroupNotFoundError",
    "ConsumerIdentity",
    "ConsumerOffset",
    "ConsumerOptions",
    "ConsumerSettings",
    "ConsumerStatistics",
    "DecryptionError",
    "Dialect",
    "DirectMode",
    "DisconnectedError",
    "EncryptionError",
    "Encryptor",
    "Endpoint",
    "GlobalPermissions",
    "HeaderColumns",
    "HeaderKey",
    "HeaderKind",
    "HeaderValue",
    "Headers",
    "Hook",
    "Identity",
    "IggyClient",
    "IggyConsumer",
    "IggyError",
    "IncompatibleServerError",
    "InvalidOffsetError",
    "InvalidRequestError",
    "JsonSerde",
    "LatencySummary",
    "LimitReachedError",
    "Message",
    "MessageColumns",
    "MessageList",
    "MessageTooLargeError",
    "MetadataChanges",
    "MetadataCursor",
    "MetadataGroup",
    "MsgspecSerde",
    "NewTopic",
    "NotAMemberError",
    "NotFoundError",
    "OptionDescription",
    "OptionScope",
    "Partition",
    "PartitionContext",
    "PartitionNotFoundError",
    "PartitionNotOwnedError",
    "PartitionRestartedError",
    "Partitioning",
    "PartitionsCallback",
    "PasswordLogin",
    "Payload",
    "PermissionDeniedError",
    "Permissions",
    "PersonalAccessTokenInfo",
    "PollingStrategy",
    "Producer",
    "ProducerBuilder",
    "ProducerClosedError",
    "ProducerError",
    "ProducerOptions",
    "ProducerSettings",
    "ProducerStatistics",
    "ProtocolError",
    "PydanticSerde",
    "RawPersonalAccessToken",
    "RawSerde",
    "Receipt",
    "ReceivedBatch",
    "ReceivedMessage",
    "Reconnect",
    "RemoteHandlerError",
    "ReplayFrom",
    "ReplayPlace",
    "ReplyTimeoutError",
    "RequestReply",
    "RequestReplyStatistics",
    "RequestTimeoutError",
    "Responder",
    "ResponderStatistics",
    "Retry",
    "Seconds",
    "SendConfirmation",
    "SendFailedError",
    "Serde",
    "SerdeError",
    "ServerError",
    "ServerProtocol",
    "SessionStatistics",
    "Snapshot",
    "SnapshotCompression",
    "SnapshotType",
    "StartIfNew",
    "Stats",
    "StatusCode",
    "StrSerde",
    "Stream",
    "StreamDetails",
    "StreamExistsError",
    "StreamNotFoundError",
    "StreamPermissions",
    "TlsOptions",
    "TokenLogin",
    "Topic",
    "TopicDetails",
    "TopicDiffersError",
    "TopicDiffersWarning",
    "TopicExistsError",
    "TopicNotFoundError",
    "TopicOptions",
    "TopicPermissions",
    "UnsupportedByServerError",
    "User",
    "UserDetails",
    "UserStatus",
    "resolve_options",
]

_HOMES = {
    "iggy_protocol": (
        "ChangesStart",
        "ClientDetails",
        "ClientInfo",
        "ClusterMetadata",
        "ClusterNode",
        "CompressionAlgorithm",
        "ConsumerIdentity",
        "ConsumerGroup",
        "ConsumerGroupAssignment",
        "ConsumerGroupDetails",
        "ConsumerGroupMember",
        "ConsumerOffset",
        "Dialect",
        "GlobalPermissions",
        "HeaderColumns",
        "HeaderKey",
        "HeaderKind",
        "HeaderValue",
        "Identity",
        "MessageColumns",
        "MetadataChanges",
        "MetadataCursor",
        "MetadataGroup",
        "OptionDescription",
        "OptionScope",
        "Partition",
        "PartitionContext",
        "Partitioning",
        "Permissions",
        "PersonalAccessTokenInfo",
        "PollingStrategy",
        "RawPersonalAccessToken",
        "SendConfirmation",
        "Snapshot",
        "SnapshotCompression",
        "SnapshotType",
        "Stats",
        "StatusCode",
        "Stream",
        "StreamDetails",
        "StreamPermissions",
        "Topic",
        "TopicDetails",
        "TopicPermissions",
        "User",
        "UserDetails",
        "UserStatus",
    ),
    "iggy_sdk.client": ("IggyClient",),
    "iggy_sdk.compression": ("Compression",),
    "iggy_sdk.connection_string": ("Endpoint", "PasswordLogin", "ServerProtocol", "TokenLogin"),
    "iggy_sdk.consumer": (
        "AutoCommit",
        "BatchIterator",
        "ConsumerBuilder",
        "ConsumerOptions",
        "ConsumerSettings",
        "ConsumerStatistics",
        "IggyConsumer",
        "MessageList",
        "PartitionsCallback",
        "ReplayFrom",
        "ReplayPlace",
        "StartIfNew",
    ),
    "iggy_sdk.encryption": ("Encryptor",),
    "iggy_sdk.errors": (
        "AlreadyExistsError",
        "AuthenticationError",
        "BufferFullError",
        "ClientClosedError",
        "ConfigurationError",
        "ConnectionFailedError",
        "ConsumerGroupError",
        "ConsumerGroupExistsError",
        "ConsumerGroupNotFoundError",
        "DecryptionError",
        "DisconnectedError",
        "EncryptionError",
        "IggyError",
        "IncompatibleServerError",
        "InvalidOffsetError",
        "InvalidRequestError",
        "LimitReachedError",
        "MessageTooLargeError",
        "NotAMemberError",
        "NotFoundError",
        "PartitionNotFoundError",
        "PartitionNotOwnedError",
        "PartitionRestartedError",
        "PermissionDeniedError",
        "ProducerClosedError",
        "ProducerError",
        "ProtocolError",
        "RequestTimeoutError",
        "SendFailedError",
        "SerdeError",
        "ServerError",
        "StreamExistsError",
        "StreamNotFoundError",
        "TopicDiffersError",
        "TopicDiffersWarning",
        "TopicExistsError",
        "TopicNotFoundError",
        "UnsupportedByServerError",
    ),
    "iggy_sdk.families.topic_settings": ("TopicOptions",),
    "iggy_sdk.hooks": ("Hook",),
    "iggy_sdk.message": (
        "Headers",
        "Message",
        "ReceivedBatch",
        "ReceivedMessage",
    ),
    "iggy_sdk.options": (
        "ClientOptions",
        "ClientSettings",
        "Reconnect",
        "Retry",
        "TlsOptions",
        "resolve_options",
    ),
    "iggy_sdk.producer": (
        "BackgroundMode",
        "Backpressure",
        "DirectMode",
        "NewTopic",
        "Producer",
        "ProducerBuilder",
        "ProducerOptions",
        "ProducerSettings",
        "ProducerStatistics",
        "Receipt",
    ),
    "iggy_sdk.request_reply": (
        "RemoteHandlerError",
        "ReplyTimeoutError",
        "RequestReply",
        "RequestReplyStatistics",
        "Responder",
        "ResponderStatistics",
    ),
    "iggy_sdk.serde": (
        "JsonSerde",
        "MsgspecSerde",
        "PydanticSerde",
        "RawSerde",
        "Serde",
        "StrSerde",
    ),
    "iggy_sdk.statistics": (
        "ClientStatistics",
        "LatencySummary",
        "SessionStatistics",
    ),
    "iggy_sdk.durations": ("Seconds",),
    "iggy_sdk.value_types": ("Payload",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


# Type checkers must not see this: to them a module with it has every name, misspelt ones included.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            return _by_old_name(name)
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value

    def _by_old_name(name: str) -> object:
        from iggy_sdk.old_names import OLD_NAMES

        new = OLD_NAMES.get(name)
        if new is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # The caller of __getattr__ is one step farther away.
        warnings.warn(f"{__name__}.{name} is now {new}", DeprecationWarning, stacklevel=3)
        return getattr(import_module(_HOME_OF[new]), new)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# What type checkers see of the old names.
if TYPE_CHECKING:
    from typing_extensions import deprecated

    Consumer = ConsumerIdentity

    @deprecated("it is now ConsumerGroupExistsError")
    class ConsumerGroupExists(ConsumerGroupExistsError):
        """Now ``ConsumerGroupExistsError``."""

    @deprecated("it is now ConsumerGroupNotFoundError")
    class ConsumerGroupNotFound(ConsumerGroupNotFoundError):
        """Now ``ConsumerGroupNotFoundError``."""

    @deprecated("it is now InvalidOffsetError")
    class InvalidOffset(InvalidOffsetError):
        """Now ``InvalidOffsetError``."""

    @deprecated("it is now MessageTooLargeError")
    class MessageTooLarge(MessageTooLargeError):
        """Now ``MessageTooLargeError``."""

    @deprecated("it is now NotAMemberError")
    class NotAMember(NotAMemberError):
        """Now ``NotAMemberError``."""

    @deprecated("it is now PartitionNotFoundError")
    class PartitionNotFound(PartitionNotFoundError):
        """Now ``PartitionNotFoundError``."""

    @deprecated("it is now PartitionNotOwnedError")
    class PartitionNotOwned(PartitionNotOwnedError):
        """Now ``PartitionNotOwnedError``."""

    @deprecated("it is now PartitionRestartedError")
    class PartitionRestarted(PartitionRestartedError):
        """Now ``PartitionRestartedError``."""

    @deprecated("it is now StreamExistsError")
    class StreamExists(StreamExistsError):
        """Now ``StreamExistsError``."""

    @deprecated("it is now StreamNotFoundError")
    class StreamNotFound(StreamNotFoundError):
        """Now ``StreamNotFoundError``."""

    @deprecated("it is now TopicExistsError")
    class TopicExists(TopicExistsError):
        """Now ``TopicExistsError``."""

    @deprecated("it is now TopicNotFoundError")
    class TopicNotFound(TopicNotFoundError):
        """Now ``TopicNotFoundError``."""
