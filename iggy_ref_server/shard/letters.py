"""What shards say to each other: one record per question, one per answer.

A letter is a small msgpack record and, beside it, a payload of raw bytes that is never packed: a
batch on its way to its partition, a reply on its way to its client.

Owns the vocabulary. Knows neither sockets nor what a shard does with a letter.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Append",
    "Ask",
    "Caller",
    "ChangeOffset",
    "Clients",
    "Committed",
    "Confirm",
    "Entry",
    "Fault",
    "Gone",
    "Groups",
    "Hello",
    "Letter",
    "NotePolled",
    "Partition",
    "Poll",
    "PolledReply",
    "Reply",
    "Resolve",
    "Show",
    "Stored",
    "Tend",
    "Totals",
    "Welcome",
]


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Which partition, which life of it, and when it was made, which no purge changes."""

    stream_id: int
    topic_id: int
    partition_id: int
    incarnation: int
    created_at_us: int


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """Who asks."""

    client_id: int
    address: str
    transport: int
    user_id: int | None
    user_incarnation: int
    is_evicted: bool = False


class _Letter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Letter, frozen=True):
    """A shard that starts asks shard 0 for the metadata."""


class Welcome(_Letter, frozen=True):
    """The metadata so far are in the payload."""


class Entry(_Letter, frozen=True):
    """A change of the metadata is in the payload; answer when all it implies is done.

    What it adds is made ready, but not shown to clients before a ``Show``, where that is said.
    """

    version: int
    is_shown: bool = True


class Show(_Letter, frozen=True):
    """All shards are ready for the change before; clients may see it from here on."""

    version: int


class Ask(_Letter, frozen=True):
    """A request of a client that only shard 0 can answer; its payload is the payload."""

    caller: Caller
    code: int


class Append(_Letter, frozen=True):
    """A whole inspected SendMessages body is in the payload."""

    partition: Partition
    shape: tuple[int, int, int, int, int, int]


class Poll(_Letter, frozen=True):
    """Read messages."""

    partition: Partition
    strategy_kind: int
    strategy_value: int
    count: int
    size_max_bytes: int
    consumer_kind: int
    consumer_id: int
    auto_commit: bool


class PolledReply(_Letter, frozen=True):
    """The messages are in the payload."""

    current_offset: int
    messages_count: int
    last_offset: int | None


class ChangeOffset(_Letter, frozen=True):
    """Store an offset, delete it (None), or only ask for it."""

    partition: Partition
    consumer_kind: int
    consumer_id: int
    offset: int | None = None
    action: str = "get"


class Stored(_Letter, frozen=True):
    """How far a consumer and its partition have come."""

    current_offset: int
    stored_offset: int | None


class Tend(_Letter, frozen=True):
    """Flush a partition, or delete some of its segments."""

    partition: Partition
    action: str
    fsync: bool = False
    segments_count: int = 0


class Totals(_Letter, frozen=True):
    """Ask for the figures of all partitions of the addressed shard, or give them."""

    partitions: tuple[tuple[int, int, int, int, int, int, int, int | None], ...] = ()


class Clients(_Letter, frozen=True):
    """Ask for the clients of the addressed shard, or give them."""

    clients: tuple[Caller, ...] = ()


class Resolve(_Letter, frozen=True):
    """Ask shard 0 which partition a member of a group may use; None is its own choice."""

    stream_id: int
    topic_id: int
    group_id: int
    client_id: int
    partition_id: int | None
    purpose: str


class Confirm(_Letter, frozen=True):
    """Shard 0's answer; no partition means that there is nothing for this member."""

    partition_id: int | None
    epoch: int = 0


class NotePolled(_Letter, frozen=True):
    """Tell shard 0 that a member gets messages; answered with whether it may still have them."""

    stream_id: int
    topic_id: int
    group_id: int
    client_id: int
    partition_id: int
    epoch: int
    polled_offset: int


class Committed(_Letter, frozen=True):
    """Tell shard 0 the stored offset of a group; None is none any more."""

    stream_id: int
    topic_id: int
    group_id: int
    partition_id: int
    offset: int | None


class Groups(_Letter, frozen=True):
    """Ask shard 0 for the memberships of clients, or give them."""

    client_ids: tuple[int, ...] = ()
    memberships: tuple[tuple[int, int, int, int], ...] = ()


class Gone(_Letter, frozen=True):
    """A client of another shard has disconnected or was evicted."""

    client_id: int


class Reply(_Letter, frozen=True):
    """Done; what a client shall be told is in the payload, or in the status of an error.

    The version is that of the metadata which the answer rests on.
    """

    version: int = 0
    status: int = 0
    is_final: bool = False


class Fault(_Letter, frozen=True):
    """Refused."""

    status: int
    message: str


Letter = (
    Hello
    | Welcome
    | Entry
    | Show
    | Ask
    | Append
    | Poll
    | PolledReply
    | ChangeOffset
    | Stored
    | Tend
    | Totals
    | Clients
    | Resolve
    | Confirm
    | NotePolled
    | Committed
    | Groups
    | Gone
    | Reply
    | Fault
)
