"""The names of the official Python client, so that its programs run with one line changed.

    from apache_iggy import IggyClient, SendMessage          # before
    from iggy_sdk.compat import IggyClient, SendMessage      # after

Covers ``apache-iggy`` 0.8 and what 0.9 adds for 0.8 servers. New code is better off with
``iggy_sdk`` itself: blocks that close what they open, and fewer words. What differs on purpose:
consumers commit after a message was processed unless told otherwise, a failing callback is not
committed, errors are typed, and nothing waits for ever.
"""

from __future__ import annotations

from iggy_protocol import (
    CacheMetrics,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    GlobalPermissions,
    Partition,
    Permissions,
    Stats,
    Stream,
    StreamDetails,
    StreamPermissions,
    Topic,
    TopicDetails,
    TopicPermissions,
    UserStatus,
)
from iggy_protocol import User as UserInfo
from iggy_protocol import UserDetails as UserInfoDetails
from iggy_sdk.compat.client import IggyClient
from iggy_sdk.compat.messaging import (
    IggyConsumer,
    IggyProducer,
    ProducerSendError,
    ReceiveMessage,
    SendMessage,
    UserHeaders,
)
from iggy_sdk.compat.models import (
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    AutoLogin,
    BackgroundProducerConfig,
    BackpressureMode,
    Consumer,
    DirectProducerConfig,
    HeaderKey,
    HeaderValue,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    PollingStrategy,
    ProducerSharding,
    TcpConfig,
    TcpReconnectionConfig,
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
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroupMember",
    "DirectProducerConfig",
    "GlobalPermissions",
    "HeaderKey",
    "HeaderValue",
    "IggyClient",
    "IggyConsumer",
    "IggyError",
    "IggyExpiry",
    "IggyProducer",
    "MaxTopicSize",
    "Partition",
    "Partitioning",
    "Permissions",
    "PollingStrategy",
    "ProducerSendError",
    "ProducerSharding",
    "ReceiveMessage",
    "SendMessage",
    "Stats",
    "Stream",
    "StreamDetails",
    "StreamPermissions",
    "TcpConfig",
    "TcpReconnectionConfig",
    "Topic",
    "TopicDetails",
    "TopicPermissions",
    "UserHeaders",
    "UserInfo",
    "UserInfoDetails",
    "UserStatus",
]
