"""Streams, topics, partitions, groups, users and tokens as frozen records.

A generation is a number that an object gets when it is created or purged. Ids are reused,
generations never: a cached id and generation tell when the object behind the id is another one.
"""

from __future__ import annotations

from dataclasses import field

from iggy_protocol import (
    CompressionAlgorithm,
    Identifier,
    Permissions,
    StatusCode,
    UserStatus,
    record,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.catalog import Catalog

__all__ = [
    "ROOT_USER_ID",
    "GroupRecord",
    "PartitionRecord",
    "StreamRecord",
    "TokenRecord",
    "TopicRecord",
    "UserRecord",
]

ROOT_USER_ID = 0


@record
class PartitionRecord:
    """One log of a topic; incarnation 0 is data that Apache Iggy wrote."""

    id: int
    created_at_us: int
    incarnation: int


@record
class GroupRecord:
    """A consumer group; who its members are is not written down."""

    id: int
    name: str
    incarnation: int


@record
class TopicRecord:
    """A topic, its settings with server defaults resolved, its partitions 0 to n-1 and groups."""

    stream_id: int
    id: int
    name: str
    created_at_us: int
    message_expiry_us: int
    compression: CompressionAlgorithm
    max_size_bytes: int
    replication_factor: int
    partitions: tuple[PartitionRecord, ...] = ()
    groups: Catalog[GroupRecord] = field(default_factory=Catalog)

    def find_group(self, group: Identifier) -> GroupRecord | None:
        """Look up a consumer group."""
        return self.groups.find(group)

    def require_group(self, group: Identifier) -> GroupRecord:
        """Look up a consumer group, or raise the fault that a client is told."""
        found = self.groups.find(group)
        if found is None:
            raise ServerFault(
                StatusCode.CONSUMER_GROUP_ID_NOT_FOUND,
                f"topic {self.id} of stream {self.stream_id} has no consumer group {group!r}",
            )
        return found

    def find_partition(self, partition_id: int) -> PartitionRecord | None:
        """Look up a partition."""
        if 0 <= partition_id < len(self.partitions):
            return self.partitions[partition_id]
        return None

    def require_partition(self, partition_id: int) -> PartitionRecord:
        """Look up a partition, or raise the fault that a client is told."""
        found = self.find_partition(partition_id)
        if found is None:
            raise ServerFault(
                StatusCode.PARTITION_NOT_FOUND,
                f"topic {self.id} of stream {self.stream_id} has no partition {partition_id}",
            )
        return found


@record
class StreamRecord:
    """A stream and its topics."""

    id: int
    name: str
    created_at_us: int
    topics: Catalog[TopicRecord] = field(default_factory=Catalog)

    def find_topic(self, topic: Identifier) -> TopicRecord | None:
        """Look up a topic."""
        return self.topics.find(topic)

    def require_topic(self, topic: Identifier) -> TopicRecord:
        """Look up a topic, or raise the fault that a client is told."""
        found = self.topics.find(topic)
        if found is None:
            raise ServerFault(
                StatusCode.TOPIC_ID_NOT_FOUND, f"stream {self.id} has no topic {topic!r}"
            )
        return found


@record
class UserRecord:
    """A user; a session that remembers another incarnation of the same id has ended.

    The incarnation changes when the user is created and when it is deactivated.
    """

    id: int
    incarnation: int
    username: str
    password_hash: str = field(repr=False)
    status: UserStatus
    created_at_us: int
    permissions: Permissions | None = None

    @property
    def name(self) -> str:
        """The name by which users are told apart."""
        return self.username

    @property
    def is_root(self) -> bool:
        """Whether this is the user that cannot be locked out."""
        return self.id == ROOT_USER_ID

    @property
    def is_active(self) -> bool:
        """Whether the user may log in."""
        return self.status is UserStatus.ACTIVE


@record
class TokenRecord:
    """A personal access token; the token itself is known only to its owner."""

    user_id: int
    name: str
    hash: str = field(repr=False)
    expires_at_us: int | None = None

    def is_expired(self, now_us: int) -> bool:
        """Tell whether the token is of no use any more."""
        return self.expires_at_us is not None and self.expires_at_us <= now_us
