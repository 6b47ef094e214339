"""The metadata: everything that exists on the server, as one immutable value.

In look-ups a number is an id and a string is a name, even one made of digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import ClassVar, Generic, Protocol, TypeVar

from iggy_protocol import (
    CLASSIC,
    NEVER_EXPIRES,
    NO_OPTIONS,
    UNLIMITED,
    CompressionAlgorithm,
    Dialect,
    Identifier,
    Options,
    Permissions,
    StatusCode,
    UserStatus,
    record,
)
from iggy_ref_server.faults import ServerFault

# An immutable catalog of objects with a unique id and a unique name.
#
# The id that was freed last is reused first, and a new number only when none is free.


class Named(Protocol):
    """A thing with an id and a name."""

    @property
    def id(self) -> int:
        """The number of its place."""

    @property
    def name(self) -> str:
        """The text it is known by."""


T = TypeVar("T", bound=Named)


@record
class Catalog(Generic[T]):
    """Things by id and by name; every change makes a new catalog and leaves this one alone.

    Attributes:
        by_id: the things, in no particular order.
        id_by_name: where a name leads.
        free_ids: ids below the highest that are not in use, the one to be used next at the end.
    """

    by_id: Mapping[int, T] = field(default_factory=dict)
    id_by_name: Mapping[str, int] = field(default_factory=dict)
    free_ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[T]:
        """Go through the things by ascending id."""
        by_id = self.by_id
        return iter([by_id[number] for number in sorted(by_id)])

    @property
    def next_id(self) -> int:
        """The id for the thing that is created next."""
        return self.free_ids[-1] if self.free_ids else len(self.by_id)

    def find(self, identifier: Identifier) -> T | None:
        """Look a thing up: a number is an id, a text is a name, even one made of digits."""
        if isinstance(identifier, str):
            number = self.id_by_name.get(identifier)
            return None if number is None else self.by_id[number]
        return self.by_id.get(identifier)

    def fits(self, thing: T) -> bool:
        """Tell whether neither the id nor the name is taken."""
        return thing.id not in self.by_id and thing.name not in self.id_by_name

    def add(self, thing: T) -> Catalog[T]:
        """Put up a new thing that fits; ids that are skipped become free."""
        unused = len(self.by_id) + len(self.free_ids)
        free_ids = tuple(number for number in self.free_ids if number != thing.id)
        return Catalog(
            {**self.by_id, thing.id: thing},
            {**self.id_by_name, thing.name: thing.id},
            free_ids + tuple(range(unused, thing.id)),
        )

    def replace(self, thing: T) -> Catalog[T]:
        """Exchange the thing with this id for another one, possibly under another name."""
        before = self.by_id[thing.id]
        id_by_name = self.id_by_name
        if before.name != thing.name:
            renamed = {name: number for name, number in id_by_name.items() if number != thing.id}
            id_by_name = {**renamed, thing.name: thing.id}
        return Catalog({**self.by_id, thing.id: thing}, id_by_name, self.free_ids)

    def remove(self, number: int) -> Catalog[T]:
        """Take a thing away; its id is the next to be given out."""
        by_id = dict(self.by_id)
        id_by_name = dict(self.id_by_name)
        del id_by_name[by_id.pop(number).name]
        return Catalog(by_id, id_by_name, (*self.free_ids, number))


# Streams, topics, partitions, groups, users and tokens as frozen records.
#
# A generation is a number that an object gets when it is created or purged. Ids are reused,
# generations never: a cached id and generation tell when the object behind the id is another one.


ROOT_USER_ID = 0


@record
class PartitionRecord:
    """One log of a topic; generation 0 is data that Apache Iggy wrote."""

    id: int
    created_at_us: int
    generation: int

    @property
    def incarnation(self) -> int:
        """What clients from 0.10 on tell it by; it changes when the offsets start over."""
        return self.generation or self.created_at_us


@record
class GroupRecord:
    """A consumer group; who its members are is not written down."""

    id: int
    name: str
    generation: int


@record
class TopicRecord:
    """A topic, its settings with server defaults resolved, its partitions 0 to n-1 and groups.

    Attributes:
        options: the options that a client has set, but for those with a field here.
        derived: the keys of the options with a field here that no client has set.
    """

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
    options: Options = NO_OPTIONS
    derived: frozenset[str] = frozenset()

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
    """A stream, its topics, and the options that a client has set."""

    id: int
    name: str
    created_at_us: int
    topics: Catalog[TopicRecord] = field(default_factory=Catalog)
    options: Options = NO_OPTIONS

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
    generation: int
    username: str
    password_hash: str = field(repr=False)
    status: UserStatus
    created_at_us: int
    permissions: Permissions | None = None
    options: Options = NO_OPTIONS

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


# Personal access tokens, indexed by hash for logins, and by user and name for their owner.


_NO_TOKENS: Mapping[str, TokenRecord] = MappingProxyType({})


@record
class TokenIndex:
    """Tokens by hash, and by user and name; every change makes a new index."""

    by_hash: Mapping[str, TokenRecord] = field(default_factory=dict)
    by_user: Mapping[int, Mapping[str, TokenRecord]] = field(default_factory=dict)

    @classmethod
    def from_tokens(cls, tokens: Iterable[TokenRecord]) -> TokenIndex:
        """Index many tokens, whose hashes and names are unique."""
        by_hash: dict[str, TokenRecord] = {}
        by_user: dict[int, dict[str, TokenRecord]] = {}
        for token in tokens:
            by_hash[token.hash] = token
            by_user.setdefault(token.user_id, {})[token.name] = token
        return cls(by_hash, by_user)

    def __len__(self) -> int:
        return len(self.by_hash)

    def __iter__(self) -> Iterator[TokenRecord]:
        return iter(self.by_hash.values())

    def of_user(self, user_id: int) -> Mapping[str, TokenRecord]:
        """Return the tokens of a user by name, in the order in which they were made."""
        return self.by_user.get(user_id, _NO_TOKENS)

    def add(self, token: TokenRecord) -> TokenIndex:
        """Add a token, unless its hash or its name is in use."""
        own = self.of_user(token.user_id)
        if token.hash in self.by_hash or token.name in own:
            return self
        return TokenIndex(
            {**self.by_hash, token.hash: token},
            {**self.by_user, token.user_id: {**own, token.name: token}},
        )

    def remove(self, user_id: int, name: str) -> TokenIndex:
        """Remove one token; nothing happens if it does not exist."""
        own = dict(self.of_user(user_id))
        token = own.pop(name, None)
        if token is None:
            return self
        by_hash = {digest: kept for digest, kept in self.by_hash.items() if digest != token.hash}
        others = {owner: tokens for owner, tokens in self.by_user.items() if owner != user_id}
        return TokenIndex(by_hash, {**others, user_id: own} if own else others)

    def remove_user(self, user_id: int) -> TokenIndex:
        """Remove all tokens of a user."""
        if user_id not in self.by_user:
            return self
        return TokenIndex(
            {digest: kept for digest, kept in self.by_hash.items() if kept.user_id != user_id},
            {owner: tokens for owner, tokens in self.by_user.items() if owner != user_id},
        )


@record
class Metadata:
    """What exists after a number of changes.

    Attributes:
        version: how many changes led here; the next one has the number ``version + 1``.
        last_generation: the highest that was ever given out, as far as is known.
        doubtful_generation: up to this one, changes may have been lost in a repair, so that
            nothing follows from a thing not being here.
    """

    EMPTY: ClassVar[Metadata]

    version: int = 0
    streams: Catalog[StreamRecord] = field(default_factory=Catalog)
    users: Catalog[UserRecord] = field(default_factory=Catalog)
    tokens: TokenIndex = field(default_factory=TokenIndex)
    last_generation: int = 0
    doubtful_generation: int = 0

    def next_generation(self, now_us: int) -> int:
        """Return a generation number that was never used before.

        It follows the clock, so that even new metadata after a loss never reuse a number that is
        still on the disk. It only rises, even if the clock goes back. Older releases used the
        numbers of changes.
        """
        return max(now_us, self.last_generation + 1, self.version + 1)

    @property
    def newest_generation(self) -> int:
        """The highest number that a partition can have; earlier releases took those of changes."""
        return max(self.last_generation, self.version)

    def find_stream(self, stream: Identifier) -> StreamRecord | None:
        """Look up a stream."""
        return self.streams.find(stream)

    def require_stream(self, stream: Identifier) -> StreamRecord:
        """Look up a stream, or raise the fault that a client is told."""
        found = self.streams.find(stream)
        if found is None:
            raise ServerFault(StatusCode.STREAM_ID_NOT_FOUND, f"stream {stream!r} does not exist")
        return found

    def find_topic(self, stream: Identifier, topic: Identifier) -> TopicRecord | None:
        """Look up a topic; it knows the id of its stream."""
        parent = self.streams.find(stream)
        return None if parent is None else parent.topics.find(topic)

    def require_topic(self, stream: Identifier, topic: Identifier) -> TopicRecord:
        """Look up a topic, or raise the fault that a client is told."""
        return self.require_stream(stream).require_topic(topic)

    def find_group(
        self, stream: Identifier, topic: Identifier, group: Identifier
    ) -> GroupRecord | None:
        """Look up a consumer group."""
        parent = self.find_topic(stream, topic)
        return None if parent is None else parent.groups.find(group)

    def require_group(
        self, stream: Identifier, topic: Identifier, group: Identifier
    ) -> GroupRecord:
        """Look up a consumer group, or raise the fault that a client is told."""
        return self.require_topic(stream, topic).require_group(group)

    def find_user(self, user: Identifier) -> UserRecord | None:
        """Look up a user."""
        return self.users.find(user)

    def require_user(self, user: Identifier) -> UserRecord:
        """Look up a user, or raise the fault that a client is told."""
        found = self.users.find(user)
        if found is None:
            raise ServerFault(StatusCode.RESOURCE_NOT_FOUND, f"user {user!r} does not exist")
        return found

    def find_token(self, token_hash: str) -> TokenRecord | None:
        """Look up a personal access token by its hash, expired or not."""
        return self.tokens.by_hash.get(token_hash)


Metadata.EMPTY = Metadata()


# The context of a plan: the time, the user and the server's settings; and limits of metadata.

# What fits the packed number by which a partition finds its shard.
STREAMS_MAX = 4096
TOPICS_PER_STREAM_MAX = 4096
PARTITIONS_PER_TOPIC_MAX = 1_000_000


@record(kw_only=True)
class MetadataSettings:
    """The server's settings that become part of the metadata, or limit it.

    Attributes:
        message_expiry_us: what a topic gets that asks for the server's default.
        max_topic_size_bytes: the same for its size.
        segment_size_bytes: the segments of a topic without an option of its own; no topic may be
            limited to less than one segment.
        tokens_per_user_max: how many personal access tokens a user may hold, expired ones included.
        is_persisted: whether all messages and offsets are on the disk before they are answered.
        messages_required_to_save: what a topic without an option of its own has.
        bytes_required_to_save: the same in bytes.
        is_encrypted: whether the server encrypts what it stores.
    """

    message_expiry_us: int = NEVER_EXPIRES
    max_topic_size_bytes: int = UNLIMITED
    segment_size_bytes: int = 1 << 30
    tokens_per_user_max: int = 100
    is_persisted: bool = False
    messages_required_to_save: int = 1024
    bytes_required_to_save: int = 1 << 20
    is_encrypted: bool = False


@record(kw_only=True)
class PlanContext:
    """The time, the user, the settings and the dialect under which a command is planned."""

    now_us: int
    user_id: int = ROOT_USER_ID
    settings: MetadataSettings = MetadataSettings()
    dialect: Dialect = CLASSIC
