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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_protocol import (
        ClientDetails,
        ClientInfo,
        ClusterMetadata,
        ClusterNode,
        CompressionAlgorithm,
        Consumer,
        ConsumerGroup,
        ConsumerGroupDetails,
        ConsumerGroupMember,
        ConsumerOffset,
        GlobalPermissions,
        HeaderColumns,
        HeaderKey,
        HeaderKind,
        HeaderValue,
        Identity,
        MessageColumns,
        Partition,
        Partitioning,
        Permissions,
        PersonalAccessTokenInfo,
        PollingStrategy,
        RawPersonalAccessToken,
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
    from iggy_sdk.connection_string import Endpoint, PasswordLogin, TokenLogin
    from iggy_sdk.consumer import (
        AutoCommit,
        BatchIterator,
        ConsumerBuilder,
        ConsumerStatistics,
        IggyConsumer,
        MessageList,
    )
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
        ConsumerGroupExists,
        ConsumerGroupNotFound,
        DecryptionError,
        DisconnectedError,
        EncryptionError,
        IggyError,
        IncompatibleServerError,
        InvalidOffset,
        InvalidRequestError,
        LimitReachedError,
        MessageTooLarge,
        NotAMember,
        NotFoundError,
        PartitionNotFound,
        PartitionNotOwned,
        PermissionDeniedError,
        ProducerClosedError,
        ProducerError,
        ProtocolError,
        RequestTimeoutError,
        SendFailedError,
        SerdeError,
        ServerError,
        StreamExists,
        StreamNotFound,
        TopicExists,
        TopicNotFound,
    )
    from iggy_sdk.hooks import (
        Hook,
    )
    from iggy_sdk.message import (
        Headers,
        Message,
        ReceivedBatch,
        ReceivedMessage,
    )
    from iggy_sdk.options import ClientOptions, Reconnect, Retry, TlsOptions
    from iggy_sdk.producer import (
        Backpressure,
        Producer,
        ProducerBuilder,
        ProducerStatistics,
        Receipt,
    )
    from iggy_sdk.serde import (
        JsonSerde,
        MsgspecSerde,
        PydanticSerde,
        RawSerde,
        Serde,
        StrSerde,
    )
    from iggy_sdk.statistics import ClientStatistics, SessionStatistics

__all__ = [
    "AlreadyExistsError",
    "AuthenticationError",
    "AutoCommit",
    "Backpressure",
    "BatchIterator",
    "BufferFullError",
    "ClientClosedError",
    "ClientDetails",
    "ClientInfo",
    "ClientOptions",
    "ClientStatistics",
    "ClusterMetadata",
    "ClusterNode",
    "Compression",
    "CompressionAlgorithm",
    "ConfigurationError",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerBuilder",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroupError",
    "ConsumerGroupExists",
    "ConsumerGroupMember",
    "ConsumerGroupNotFound",
    "ConsumerOffset",
    "ConsumerStatistics",
    "DecryptionError",
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
    "InvalidOffset",
    "InvalidRequestError",
    "JsonSerde",
    "LimitReachedError",
    "Message",
    "MessageColumns",
    "MessageList",
    "MessageTooLarge",
    "MsgspecSerde",
    "NotAMember",
    "NotFoundError",
    "Partition",
    "PartitionNotFound",
    "PartitionNotOwned",
    "Partitioning",
    "PasswordLogin",
    "PermissionDeniedError",
    "Permissions",
    "PersonalAccessTokenInfo",
    "PollingStrategy",
    "Producer",
    "ProducerBuilder",
    "ProducerClosedError",
    "ProducerError",
    "ProducerStatistics",
    "ProtocolError",
    "PydanticSerde",
    "RawPersonalAccessToken",
    "RawSerde",
    "Receipt",
    "ReceivedBatch",
    "ReceivedMessage",
    "Reconnect",
    "RequestTimeoutError",
    "Retry",
    "SendFailedError",
    "Serde",
    "SerdeError",
    "ServerError",
    "SessionStatistics",
    "Snapshot",
    "SnapshotCompression",
    "SnapshotType",
    "Stats",
    "StatusCode",
    "StrSerde",
    "Stream",
    "StreamDetails",
    "StreamExists",
    "StreamNotFound",
    "StreamPermissions",
    "TlsOptions",
    "TokenLogin",
    "Topic",
    "TopicDetails",
    "TopicExists",
    "TopicNotFound",
    "TopicPermissions",
    "User",
    "UserDetails",
    "UserStatus",
]

_HOMES = {
    "iggy_protocol": (
        "ClientDetails",
        "ClientInfo",
        "ClusterMetadata",
        "ClusterNode",
        "CompressionAlgorithm",
        "Consumer",
        "ConsumerGroup",
        "ConsumerGroupDetails",
        "ConsumerGroupMember",
        "ConsumerOffset",
        "GlobalPermissions",
        "HeaderColumns",
        "HeaderKey",
        "HeaderKind",
        "HeaderValue",
        "Identity",
        "MessageColumns",
        "Partition",
        "Partitioning",
        "Permissions",
        "PersonalAccessTokenInfo",
        "PollingStrategy",
        "RawPersonalAccessToken",
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
    "iggy_sdk.connection_string": ("Endpoint", "PasswordLogin", "TokenLogin"),
    "iggy_sdk.consumer": (
        "AutoCommit",
        "BatchIterator",
        "ConsumerBuilder",
        "ConsumerStatistics",
        "IggyConsumer",
        "MessageList",
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
        "ConsumerGroupExists",
        "ConsumerGroupNotFound",
        "DecryptionError",
        "DisconnectedError",
        "EncryptionError",
        "IggyError",
        "IncompatibleServerError",
        "InvalidOffset",
        "InvalidRequestError",
        "LimitReachedError",
        "MessageTooLarge",
        "NotAMember",
        "NotFoundError",
        "PartitionNotFound",
        "PartitionNotOwned",
        "PermissionDeniedError",
        "ProducerClosedError",
        "ProducerError",
        "ProtocolError",
        "RequestTimeoutError",
        "SendFailedError",
        "SerdeError",
        "ServerError",
        "StreamExists",
        "StreamNotFound",
        "TopicExists",
        "TopicNotFound",
    ),
    "iggy_sdk.hooks": ("Hook",),
    "iggy_sdk.message": (
        "Headers",
        "Message",
        "ReceivedBatch",
        "ReceivedMessage",
    ),
    "iggy_sdk.options": (
        "ClientOptions",
        "Reconnect",
        "Retry",
        "TlsOptions",
    ),
    "iggy_sdk.producer": (
        "Backpressure",
        "Producer",
        "ProducerBuilder",
        "ProducerStatistics",
        "Receipt",
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
        "SessionStatistics",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
