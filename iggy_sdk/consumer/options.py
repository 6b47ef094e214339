"""The options of a consumer: one frozen value, and how each option is read.

``ConsumerOptions`` is the one table of options. The keywords of ``client.consumer()`` and
``client.consumer_group()`` and the methods of their builder all write into it, so they cannot
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, TypedDict

from iggy_protocol import PollingStrategy, record
from iggy_sdk.consumer.auto_commit import AutoCommit
from iggy_sdk.consumer.handover import PartitionsCallback
from iggy_sdk.consumer.start import ReplayFrom, StartIfNew, read_replay_from, read_start_if_new
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.option_checks import check_fields, check_settings, invalid_option
from iggy_sdk.serde import Serde

Partitions: TypeAlias = int | Sequence[int] | Literal["all"] | None
"""Which partitions to read: one, several or all; None leaves it to the server."""

BATCH_LENGTH_MAX: Final = 1_000_000
"""More messages than this in one reply would not fit any frame."""


PREFETCH_BYTES: Final = 8 * 2**20
"""What is fetched ahead has at most this size, beside the batch in hand."""


class _Inherited:
    """Marks an option that is inherited from the client, where None means "none"."""

    def __repr__(self) -> str:
        return "INHERITED"


INHERITED: Final = _Inherited()

NEXT: Final = PollingStrategy.next()
AFTER_EACH: Final = AutoCommit.after_each()


@record(kw_only=True)
class ConsumerOptions:
    """The options of a consumer.

    Attributes:
        partition_id: what to read; a standalone consumer reads partition 0, a group what the
            server assigns.
        start_if_new: where a group or consumer starts that has stored nothing yet. The place is
            looked up when it begins, and stored, so that it goes on from there ever after.
        replay_from: where to read again on purpose, whatever is stored: once for each partition
            that this consumer gets for the first time.
        commit_backwards: whether commits during a replay are stored although they are below what
            was stored before.
        start: deprecated; where the first poll of each partition starts. ``next`` goes on behind
            the stored offset. Any other start overrides what is stored.
        commit: when offsets are stored.
        batch_length: how many messages one poll asks for.
        prefetch_messages: how many messages are fetched ahead at most while the application works
            on a batch; 0 fetches none. It takes a consumer that is entered with ``async with``,
            no ``poll_interval``, and commits that are not made by the server.
        prefetch_bytes: how many bytes these messages have at most; 0 fetches none.
        poll_interval: the least time between two polls; None polls when something is wanted.
        polling_retry_interval: the longest wait before a failed poll is made again.
        init_retries: how often to look again for a stream or topic that is not there yet.
        init_retry_interval: the wait between two looks.
        allow_replay: whether messages are delivered again when the server sends them again,
            because the stored offset was moved back.
        until_end: whether iteration ends once every partition was read to its end.
        create_consumer_group_if_not_exists: whether a missing group is made.
        auto_join_consumer_group: whether the group is joined, and joined again when needed.
        on_assigned: called with the partitions that the consumer gets, before their first message
            is delivered.
        on_revoked: called with the partitions that go: before the commit upon which they change
            hands, or as soon as it is known that the server has taken them.
        connection: ``own`` for a connection of its own, ``shared`` for that of the client.
            Membership belongs to a connection, so groups have their own by default.
        close_timeout: how long closing may take; None takes that of the client.
        serde: how values are read.
        encryptor: opens sealed messages.
    """

    partition_id: Partitions = None
    start_if_new: StartIfNew = "earliest"
    replay_from: ReplayFrom | None = None
    commit_backwards: bool = False
    start: PollingStrategy = NEXT
    commit: AutoCommit = AFTER_EACH
    batch_length: int = 1_000
    prefetch_messages: int = 1_000
    prefetch_bytes: int = PREFETCH_BYTES
    poll_interval: Seconds | None = None
    polling_retry_interval: Seconds = 1.0
    init_retries: int = 0
    init_retry_interval: Seconds = 1.0
    allow_replay: bool = False
    until_end: bool = False
    create_consumer_group_if_not_exists: bool = True
    auto_join_consumer_group: bool = True
    on_assigned: PartitionsCallback | None = None
    on_revoked: PartitionsCallback | None = None
    connection: Literal["own", "shared"] = "shared"
    close_timeout: Seconds | None = None
    serde: Serde[Any] | None = None
    encryptor: Encryptor | _Inherited | None = INHERITED

    def __post_init__(self) -> None:
        check_fields(self)
        for name in _TIMES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, to_seconds(value, name=name))
        object.__setattr__(self, "partition_id", _read_partitions(self.partition_id))
        object.__setattr__(self, "start_if_new", read_start_if_new(self.start_if_new))
        object.__setattr__(self, "replay_from", read_replay_from(self.replay_from))
        if not 1 <= self.batch_length <= BATCH_LENGTH_MAX:
            raise invalid_option(
                "batch_length", self.batch_length, f"Use 1 to {BATCH_LENGTH_MAX:,}."
            )
        for name in ("prefetch_messages", "prefetch_bytes"):
            if getattr(self, name) < 0:
                raise invalid_option(name, getattr(self, name), "Use 0 or more.")
        if self.init_retries < 0:
            raise invalid_option("init_retries", self.init_retries, "Use 0 or more.")

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """The partitions that are named, or None when all are read or the server assigns them."""
        return self.partition_id if isinstance(self.partition_id, tuple) else None

    def encryptor_of(self, inherited: Encryptor | None) -> Encryptor | None:
        """Return the encryptor, given that of the client."""
        return inherited if isinstance(self.encryptor, _Inherited) else self.encryptor

    def check_against(self, inherited: Encryptor | None) -> None:
        """Refuse what cannot work together.

        Raises:
            ConfigurationError: the server would commit what may turn out to be unreadable.
        """
        if self.commit.by_server and self.encryptor_of(inherited) is not None:
            raise ConfigurationError(
                "AutoCommit.when_polling() with an encryptor would commit unread messages",
                advice="Use AutoCommit.after_each(), or set encryptor=None if nothing is sealed.",
            )


_TIMES: Final = ("poll_interval", "polling_retry_interval", "init_retry_interval", "close_timeout")

DEPRECATED_STARTS: Final = frozenset({"start", "polling_strategy"})
"""Options that override what is stored at every start, which loses the progress of a group."""

# The names of the official client. Its None means "the default".
_OFFICIAL: Final[Mapping[str, str]] = {"polling_strategy": "start", "auto_commit": "commit"}


class ConsumerSettings(TypedDict, total=False):
    """The keywords of ``client.consumer()`` and ``client.consumer_group()``, besides ``serde``.

    The serde is a parameter of its own, because it decides the type of the values.
    """

    partition_id: Partitions
    start_if_new: StartIfNew
    replay_from: ReplayFrom | None
    commit_backwards: bool
    start: PollingStrategy
    commit: AutoCommit
    polling_strategy: PollingStrategy | None
    auto_commit: AutoCommit | None
    batch_length: int | None
    prefetch_messages: int
    prefetch_bytes: int
    poll_interval: Seconds | None
    polling_retry_interval: Seconds | None
    init_retries: int | None
    init_retry_interval: Seconds | None
    allow_replay: bool
    until_end: bool
    create_consumer_group_if_not_exists: bool
    auto_join_consumer_group: bool
    on_assigned: PartitionsCallback | None
    on_revoked: PartitionsCallback | None
    connection: Literal["own", "shared"]
    close_timeout: Seconds | None
    encryptor: Encryptor | None


# Where None says something of its own; everywhere else it means the default.
_NONE_COUNTS: Final = frozenset(
    {
        "close_timeout",
        "encryptor",
        "on_assigned",
        "on_revoked",
        "poll_interval",
        "replay_from",
        "serde",
    }
)


def apply_options(options: ConsumerOptions, changes: Mapping[str, Any]) -> ConsumerOptions:
    """Change options by their names, official spellings included.

    Raises:
        ConfigurationError: a value is not valid.
        TypeError: there is no such option.
    """
    check_settings("consumer", changes, ConsumerOptions, ConsumerSettings, takes_none=True)
    given: dict[str, Any] = {}
    for name, value in changes.items():
        own = _OFFICIAL.get(name, name)
        if value is not None or own in _NONE_COUNTS:
            given[own] = value
    return replace(options, **given)


def _read_partitions(value: Partitions) -> int | tuple[int, ...] | Literal["all"] | None:
    if value is None or value == "all":
        return value
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if not numbers or any(number < 0 for number in numbers):
        advice = "Partitions count from 0: give one number, several numbers, or 'all'."
        raise invalid_option("partition_id", value, advice)
    if len(set(numbers)) < len(numbers):
        raise invalid_option("partition_id", value, "Name each partition once.")
    return numbers
