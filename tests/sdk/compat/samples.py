"""One instance of every class that ``iggy_sdk.compat`` offers, made without a server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import iggy_protocol
from iggy_protocol import ChangesPhase, ChangesStatus, HeaderKind, MetadataGroup
from iggy_sdk import compat
from iggy_sdk.compat import HeaderKey, HeaderValue
from iggy_sdk.errors import SendFailedError, StreamNotFoundError

TOPIC = (1, 2, 3, 4, iggy_protocol.CompressionAlgorithm.NONE, 5, 1, 6, 7, "orders")
PARTITION = iggy_protocol.Partition(0, 1, 2, 3, 4, 5)
OPTION = iggy_protocol.OptionDescription("name", HeaderKind.UINT64, bytes(8), "The name")
MEMBER = iggy_protocol.ConsumerGroupMember(1, (0, 1))
STATS = iggy_protocol.Stats(
    *(1, 2.0, 3.0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18),
    *("host", "Linux", "1", "2", "0.8.0", 8000),
    cache_metrics=(iggy_protocol.CacheMetrics(1, 2, 3, 4, 5, 0.5),),
)
USER = (1, 2, iggy_protocol.UserStatus.ACTIVE, "somebody")
SECOND = timedelta(seconds=1)

IN_STREAM = (iggy_protocol.StreamKey(1, 2), 3, "shop")
TOPIC_KEY = iggy_protocol.TopicKey(IN_STREAM[0], 4, 5)
IN_TOPIC = (TOPIC_KEY, 6, "orders")
OF_USER = (iggy_protocol.UserKey(7, 8), "somebody")
OPTIONS = iggy_protocol.ReportedOptions(iggy_protocol.Options({"durability": "persisted"}))
CURSOR = iggy_protocol.MetadataCursor(2**100 + 5, 7, 2**127 + 9, 3)
CHANGE_BODIES: dict[type, Any] = {
    compat.MetadataStreamChange: iggy_protocol.StreamState(*IN_STREAM, OPTIONS),
    compat.MetadataStreamDeleted: iggy_protocol.StreamRemoved(*IN_STREAM, 9),
    compat.MetadataTopicChange: iggy_protocol.TopicChanged(*IN_TOPIC, 2, OPTIONS),
    compat.MetadataTopicDeleted: iggy_protocol.TopicRemoved(*IN_TOPIC),
    compat.MetadataPartitionsChanged: iggy_protocol.PartitionsChanged(TOPIC_KEY, 2, (2, 3)),
    compat.MetadataConsumerGroupCreated: iggy_protocol.ConsumerGroupAdded(*IN_TOPIC, 1),
    compat.MetadataConsumerGroupDeleted: iggy_protocol.ConsumerGroupRemoved(*IN_TOPIC, 0),
    compat.MetadataMemberJoined: iggy_protocol.MemberAdded(TOPIC_KEY, 1, 2, 3, 4, (0, 1)),
    compat.MetadataMemberLeft: iggy_protocol.MemberRemoved(
        TOPIC_KEY, 1, 2, 3, 4, iggy_protocol.LeaveReason.SESSION_ENDED
    ),
    compat.MetadataPartitionHandedOver: iggy_protocol.PartitionHandedOver(TOPIC_KEY, 1, 2),
    compat.MetadataUserChange: iggy_protocol.UserState(*OF_USER, iggy_protocol.UserStatus.ACTIVE),
    compat.MetadataUserIdentity: iggy_protocol.UserNamed(*OF_USER),
    compat.MetadataUserPermissionsUpdated: iggy_protocol.PermissionsReplaced(
        *OF_USER, iggy_protocol.Permissions(), iggy_protocol.PermissionsReason.UPDATED
    ),
    compat.MetadataTokenChange: iggy_protocol.TokenState(*OF_USER, 0),
    compat.MetadataTokenDeleted: iggy_protocol.TokenRemoved(
        *OF_USER, iggy_protocol.TokenReason.EXPIRED
    ),
    compat.MetadataSession: iggy_protocol.RegisteredSession(OF_USER[0], 1, 2),
    compat.MetadataSessionClosed: iggy_protocol.ClosedSession(
        OF_USER[0], 1, 2, iggy_protocol.SessionReason.LOGOUT
    ),
    compat.MetadataUnknownChange: b"later",
}
ITEM_BODIES: dict[type, Any] = {
    compat.MetadataTopicItem: iggy_protocol.TopicState(*IN_TOPIC, OPTIONS),
    compat.MetadataPartitionsItem: iggy_protocol.PartitionsState(TOPIC_KEY, 2),
    compat.MetadataConsumerGroupItem: iggy_protocol.ConsumerGroupState(*IN_TOPIC),
    compat.MetadataMemberItem: iggy_protocol.MemberState(TOPIC_KEY, 1, 2, 3, (0, 1)),
    compat.MetadataUnknownItem: b"later",
}


def change_with(body: Any) -> compat.MetadataChangeRecord:
    """Return a change that is about something."""
    return compat.MetadataChangeRecord(
        iggy_protocol.MetadataChange(1, 2, 3, 4, None, MetadataGroup.STREAMS, 99, body)
    )


def item_with(body: Any) -> compat.MetadataCurrentItem:
    """Return an item of the current state."""
    return compat.MetadataCurrentItem(iggy_protocol.MetadataItem(99, body))


TOKEN = compat.MetadataCurrentPageToken(
    iggy_protocol.CurrentStateToken(CURSOR, 8, 0b11, MetadataGroup.TOPICS, b"key")
)
PAGE = compat.MetadataChanges(
    iggy_protocol.MetadataChanges(
        ChangesStatus.OK, ChangesPhase.CHANGES, 1, 2, 3, 4, CURSOR, True, token=TOKEN.data
    )
)

SAMPLES: dict[type, Any] = {
    **{kind: change_with(body).change for kind, body in CHANGE_BODIES.items()},
    **{kind: item_with(body).body for kind, body in ITEM_BODIES.items()},
    compat.MetadataChangeCursor: compat.MetadataChangeCursor(1, 2, 3, 4),
    compat.MetadataChangeRecord: change_with(b""),
    compat.MetadataChangeStart.After: compat.MetadataChangeStart.After(
        compat.MetadataChangeCursor(1, 2, 3, 4)
    ),
    compat.MetadataChanges: PAGE,
    compat.MetadataCurrentItem: item_with(b""),
    compat.MetadataCurrentPageToken: TOKEN,
    compat.AutoLogin: compat.AutoLogin.username_password("u", "p"),
    compat.BackpressureMode: compat.BackpressureMode.block_with_timeout(SECOND),
    compat.CacheMetrics: STATS.cache_metrics[0],
    compat.CacheMetricsKey: compat.CacheMetricsKey(1, 2, 3),
    compat.ConsumerGroup: compat.ConsumerGroup(iggy_protocol.ConsumerGroup(1, 2, 3, "g")),
    compat.ConsumerGroupDetails: compat.ConsumerGroupDetails(
        iggy_protocol.ConsumerGroupDetails(1, 2, 1, "g", (MEMBER,))
    ),
    compat.ConsumerGroupMember: compat.ConsumerGroupMember(MEMBER),
    compat.ConsumerPosition: compat.ConsumerPosition(0, 1, compat.PartitionContext(1, 2, 3)),
    compat.IdentityInfo: compat.IdentityInfo(iggy_protocol.Identity(0)),
    compat.IggyError: StreamNotFoundError(),
    compat.OptionError: compat.OptionError(),
    compat.OptionSpec: compat.OptionSpec(OPTION),
    compat.Partition: compat.Partition(PARTITION),
    compat.PartitionContext: compat.PartitionContext(1, 2, 3),
    compat.ProducerSendError: compat.ProducerSendError(SendFailedError(StreamNotFoundError())),
    compat.SendMessagesConfirmation: compat.SendMessagesConfirmation(
        iggy_protocol.SendConfirmation(0, 1, 2, 3)
    ),
    compat.SendMessagesResponse: compat.SendMessagesResponse([]),
    compat.Stats: compat.Stats(STATS),
    compat.Stream: compat.Stream(iggy_protocol.Stream(0, 1, 2, 3, 4, "shop")),
    compat.StreamDetails: compat.StreamDetails(
        iggy_protocol.StreamDetails(0, 1, 2, 3, 4, "shop", (iggy_protocol.Topic(*TOPIC),))
    ),
    compat.Topic: compat.Topic(iggy_protocol.Topic(*TOPIC)),
    compat.TopicDetails: compat.TopicDetails(iggy_protocol.TopicDetails(*TOPIC, (PARTITION,))),
    compat.UserInfo: compat.UserInfo(iggy_protocol.User(*USER)),
    compat.UserInfoDetails: compat.UserInfoDetails(
        iggy_protocol.UserDetails(*USER, iggy_protocol.Permissions())
    ),
    compat.AutoCommit.Interval: compat.AutoCommit.Interval(SECOND),
    compat.AutoCommit.IntervalOrWhen: compat.AutoCommit.IntervalOrWhen(
        SECOND, compat.AutoCommitWhen.PollingMessages()
    ),
    compat.AutoCommit.IntervalOrAfter: compat.AutoCommit.IntervalOrAfter(
        SECOND, compat.AutoCommitAfter.ConsumingAllMessages()
    ),
    compat.AutoCommit.When: compat.AutoCommit.When(compat.AutoCommitWhen.PollingMessages()),
    compat.AutoCommit.After: compat.AutoCommit.After(compat.AutoCommitAfter.ConsumingAllMessages()),
    compat.AutoCommitWhen.ConsumingEveryNthMessage: (
        compat.AutoCommitWhen.ConsumingEveryNthMessage(2)
    ),
    compat.AutoCommitAfter.ConsumingEveryNthMessage: (
        compat.AutoCommitAfter.ConsumingEveryNthMessage(2)
    ),
    compat.Consumer.Single: compat.Consumer.Single(1),
    compat.Consumer.Group: compat.Consumer.Group("g"),
    compat.IggyExpiry.ExpireDuration: compat.IggyExpiry.ExpireDuration(SECOND),
    compat.MaxTopicSize.Custom: compat.MaxTopicSize.Custom(1),
    compat.PollingStrategy.Offset: compat.PollingStrategy.Offset(1),
    compat.PollingStrategy.Timestamp: compat.PollingStrategy.Timestamp(1),
}
HEADERS = {"Raw": b"a", "String": "a", "Bool": True, "Float32": 1.5, "Float64": 1.5}


def sample_of(kind: type) -> Any:
    """Return an instance; classes without arguments are made here."""
    if issubclass(kind, HeaderKey | HeaderValue):
        return kind(HEADERS.get(kind.__name__, 1))  # type: ignore[call-arg, arg-type]
    return SAMPLES[kind] if kind in SAMPLES else kind()
