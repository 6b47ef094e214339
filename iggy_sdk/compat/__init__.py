"""The names of the official Python client, so that its programs run with one line changed.

    from apache_iggy import IggyClient, SendMessage          # before
    from iggy_sdk.compat import IggyClient, SendMessage      # after

Covers ``apache-iggy`` 0.8 and 0.9, and what the preview 0.9.1.dev5 of 0.10 adds. New code is
better off with ``iggy_sdk`` itself: blocks that close what they open, and fewer words. Every object
has the one of this SDK as ``own``, so a program can change over call by call.

What differs on purpose, with all details in docs/sdk-migration.md:

- Consumers commit a message after it was processed, unless told otherwise, and the After modes are
  honoured by iteration as well. A callback that raises ends the loop, and is not committed.
- Members of groups have a connection of their own, which ``shutdown()`` closes.
- Certificates are checked over every transport, unless a configuration says otherwise.
- Errors are typed: each is a ``RuntimeError`` with ``code`` and ``advice``.
- What a server is too old for is refused before anything is sent; confirmations of sends are those
  of the server, so there are none from 0.8.
- Nothing waits for ever.

The names:
"""

from __future__ import annotations

from iggy_protocol import CacheMetrics, GlobalPermissions
from iggy_sdk.compat.auto_commit import AutoCommit, AutoCommitAfter, AutoCommitWhen
from iggy_sdk.compat.choices import (
    BackpressureMode,
    Consumer,
    Partitioning,
    PollingStrategy,
    ProducerSharding,
    UserStatus,
)
from iggy_sdk.compat.client import IggyClient
from iggy_sdk.compat.config_parts import (
    AutoLogin,
    PendingOperationsConfig,
    QuicReconnectionConfig,
    TcpReconnectionConfig,
    WebSocketFramingConfig,
    WebSocketReconnectionConfig,
)
from iggy_sdk.compat.configs import HttpConfig, QuicConfig, TcpConfig, WebSocketConfig
from iggy_sdk.compat.consumer import IggyConsumer
from iggy_sdk.compat.errors import OptionError, ProducerSendError
from iggy_sdk.compat.headers import HeaderKey, HeaderValue, UserHeaders
from iggy_sdk.compat.messages import (
    ReceiveMessage,
    SendMessage,
    SendMessagesConfirmation,
    SendMessagesResponse,
)
from iggy_sdk.compat.metadata_bodies import (
    MetadataConsumerGroupCreated,
    MetadataConsumerGroupDeleted,
    MetadataConsumerGroupItem,
    MetadataMemberItem,
    MetadataMemberJoined,
    MetadataMemberLeft,
    MetadataMemberLeftReason,
    MetadataPartitionHandedOver,
    MetadataPartitionsChanged,
    MetadataPartitionsItem,
    MetadataPermissionsUpdatedReason,
    MetadataSession,
    MetadataSessionClosed,
    MetadataSessionClosedReason,
    MetadataStreamChange,
    MetadataStreamDeleted,
    MetadataTokenChange,
    MetadataTokenDeleted,
    MetadataTokenDeletedReason,
    MetadataTopicChange,
    MetadataTopicDeleted,
    MetadataTopicItem,
    MetadataUnknownChange,
    MetadataUnknownItem,
    MetadataUserChange,
    MetadataUserIdentity,
    MetadataUserPermissionsUpdated,
)
from iggy_sdk.compat.metadata_changes import (
    MetadataChangeCursor,
    MetadataChangeGroup,
    MetadataChangeKind,
    MetadataChangePhase,
    MetadataChangeRecord,
    MetadataChanges,
    MetadataChangeStart,
    MetadataChangeStatus,
    MetadataCurrentItem,
    MetadataCurrentPageToken,
)
from iggy_sdk.compat.producer import BackgroundProducerConfig, DirectProducerConfig, IggyProducer
from iggy_sdk.compat.records import (
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    ConsumerPosition,
    OptionSpec,
    Partition,
    PartitionContext,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
)
from iggy_sdk.compat.settings import (
    Durability,
    IggyExpiry,
    MaxTopicSize,
    OptionKey,
    PartitionResizePolicy,
    StreamOptions,
    TopicOptions,
    UserOptions,
    encryption_key_fingerprint,
)
from iggy_sdk.compat.statistics import CacheMetricsKey, Stats
from iggy_sdk.compat.users import (
    IdentityInfo,
    Permissions,
    StreamPermissions,
    TopicPermissions,
    UserInfo,
    UserInfoDetails,
)
from iggy_sdk.errors import IggyError

__all__ = [
    "AutoCommit",
    "AutoCommitAfter",
    "AutoCommitWhen",
    "AutoLogin",
    "BackgroundProducerConfig",
    "BackpressureMode",
    "CacheMetrics",
    "CacheMetricsKey",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroupMember",
    "ConsumerPosition",
    "DirectProducerConfig",
    "Durability",
    "GlobalPermissions",
    "HeaderKey",
    "HeaderValue",
    "HttpConfig",
    "IdentityInfo",
    "IggyClient",
    "IggyConsumer",
    "IggyError",
    "IggyExpiry",
    "IggyProducer",
    "MaxTopicSize",
    "MetadataChangeCursor",
    "MetadataChangeGroup",
    "MetadataChangeKind",
    "MetadataChangePhase",
    "MetadataChangeRecord",
    "MetadataChangeStart",
    "MetadataChangeStatus",
    "MetadataChanges",
    "MetadataConsumerGroupCreated",
    "MetadataConsumerGroupDeleted",
    "MetadataConsumerGroupItem",
    "MetadataCurrentItem",
    "MetadataCurrentPageToken",
    "MetadataMemberItem",
    "MetadataMemberJoined",
    "MetadataMemberLeft",
    "MetadataMemberLeftReason",
    "MetadataPartitionHandedOver",
    "MetadataPartitionsChanged",
    "MetadataPartitionsItem",
    "MetadataPermissionsUpdatedReason",
    "MetadataSession",
    "MetadataSessionClosed",
    "MetadataSessionClosedReason",
    "MetadataStreamChange",
    "MetadataStreamDeleted",
    "MetadataTokenChange",
    "MetadataTokenDeleted",
    "MetadataTokenDeletedReason",
    "MetadataTopicChange",
    "MetadataTopicDeleted",
    "MetadataTopicItem",
    "MetadataUnknownChange",
    "MetadataUnknownItem",
    "MetadataUserChange",
    "MetadataUserIdentity",
    "MetadataUserPermissionsUpdated",
    "OptionError",
    "OptionKey",
    "OptionSpec",
    "Partition",
    "PartitionContext",
    "PartitionResizePolicy",
    "Partitioning",
    "PendingOperationsConfig",
    "Permissions",
    "PollingStrategy",
    "ProducerSendError",
    "ProducerSharding",
    "QuicConfig",
    "QuicReconnectionConfig",
    "ReceiveMessage",
    "SendMessage",
    "SendMessagesConfirmation",
    "SendMessagesResponse",
    "Stats",
    "Stream",
    "StreamDetails",
    "StreamOptions",
    "StreamPermissions",
    "TcpConfig",
    "TcpReconnectionConfig",
    "Topic",
    "TopicDetails",
    "TopicOptions",
    "TopicPermissions",
    "UserHeaders",
    "UserInfo",
    "UserInfoDetails",
    "UserOptions",
    "UserStatus",
    "WebSocketConfig",
    "WebSocketFramingConfig",
    "WebSocketReconnectionConfig",
    "encryption_key_fingerprint",
]
