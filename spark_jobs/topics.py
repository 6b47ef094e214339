"""Queries to a server about topics: their partitions and offsets. One connection per process.

A server may be away for as long as the ``request_timeout`` of the connection string says: what was
asked meanwhile is asked again.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from iggy_sdk import (
    ConnectionFailedError,
    ConsumerIdentity,
    IggyError,
    IncompatibleServerError,
    PollingStrategy,
    ServerProtocol,
    resolve_options,
)
from iggy_sdk.blocking import IggyClient
from spark_jobs.errors import OptionError
from spark_jobs.offsets import EARLIEST_MARK, LATEST_MARK, Offsets, Position, TopicPartition
from spark_jobs.query_offset import PartitionIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from iggy_sdk import ClientOptions, Topic, TopicDetails
    from spark_jobs.options import TopicSelection


R = TypeVar("R")

POLL_CONSUMER: Final = ConsumerIdentity.single("spark")
"""The consumer of all polls. Polls by offset store nothing on a server, so readers can share it."""


class PartitionState(NamedTuple):
    """What the server tells of a partition.

    Attributes:
        end: the offset of its next message.
        identity: which partition it is.
    """

    end: int
    identity: PartitionIdentity


def find_partitions(place: TopicSelection) -> dict[TopicPartition, PartitionState]:
    """Return the partitions of all topics.

    Raises:
        StreamNotFoundError: there is no such stream.
        TopicNotFoundError: there is no such topic.
    """
    found: dict[TopicPartition, PartitionState] = {}
    for topic in _topics(place):
        for one in topic.partitions:
            # current_offset is 0 for an empty partition and for one with a single message.
            is_used = one.messages_count or one.current_offset
            found[TopicPartition(topic.name, one.id)] = PartitionState(
                one.current_offset + 1 if is_used else 0,
                PartitionIdentity(topic.id, one.created_at_us, one.context.incarnation),
            )
    return found


def _topics(place: TopicSelection) -> Iterator[TopicDetails]:
    """Ask for the topics, one after another."""
    names: Iterable[str] = place.topics
    if place.topic_pattern is not None:
        known = request(place.server, partial(_known_topics, stream=place.stream))
        names = sorted(topic.name for topic in known if place.includes(topic.name))
    for name in names:
        found = request(place.server, partial(_topic, stream=place.stream, name=name))
        if found is not None:
            yield found
        elif place.topic_pattern is None:
            # Raises the error that tells whether the stream or the topic is missing.
            request(place.server, partial(_topic, stream=place.stream, name=name, required=True))


def _known_topics(client: IggyClient, *, stream: str) -> Sequence[Topic]:
    known = client.get_topics(stream)
    if not known:
        # Servers tell of no topics in a stream that does not exist, too.
        client.get_stream(stream, required=True)
    return known


def _topic(
    client: IggyClient, *, stream: str, name: str, required: bool = False
) -> TopicDetails | None:
    return client.get_topic(stream, name, required=required)


def end_offsets(place: TopicSelection) -> Offsets:
    """Return the partitions of all topics, each with the offset of its next message.

    Raises:
        StreamNotFoundError: there is no such stream.
        TopicNotFoundError: there is no such topic.
    """
    return {at: state.end for at, state in find_partitions(place).items()}


def earliest_offset(place: TopicSelection, at: TopicPartition) -> int | None:
    """Return the offset of the oldest message; None when there is none."""
    return _first(place, at, PollingStrategy.first())


def first_offset(place: TopicSelection, at: TopicPartition, end: int) -> int:
    """Return where reading a partition from its beginning begins; its end if it is empty."""
    earliest = earliest_offset(place, at) if end else None
    return end if earliest is None else earliest


def _first(place: TopicSelection, at: TopicPartition, strategy: PollingStrategy) -> int | None:
    batch = request(
        place.server,
        lambda client: client.poll_messages(
            place.stream,
            at.topic,
            consumer=POLL_CONSUMER,
            partition_id=at.partition,
            strategy=strategy,
            count=1,
        ),
    )
    return batch.first_offset


def resolve(place: TopicSelection, position: Position, ends: Offsets, *, name: str) -> Offsets:
    """Resolve a position to one offset for each partition.

    Args:
        place: where the topics are.
        position: what the user asked for.
        ends: all partitions, with their ends.
        name: the option that gave the position, for errors.

    Raises:
        OptionError: it names partitions that do not exist, or leaves some out.
    """
    if position.kind == "latest":
        return dict(ends)
    if position.offsets is not None:
        check_complete(position.offsets, ends, name=name)
        return {at: _marked(place, position.offsets[at], at, ends) for at in ends}
    if position.timestamps_us is not None:
        check_complete(position.timestamps_us, ends, name=f"{name}ByTimestamp")
    return {at: _at_time(place, position, at, end) for at, end in ends.items()}


def _at_time(place: TopicSelection, position: Position, at: TopicPartition, end: int) -> int:
    """Return the offset of the first message from a time on, or of any if there is no time."""
    time_us = (position.timestamps_us or {}).get(at, position.timestamp_us)
    strategy = PollingStrategy.first()
    if time_us is not None:
        strategy = PollingStrategy.timestamp(time_us)
    found = _first(place, at, strategy) if end else None
    if found is None and position.needs_message:
        raise OptionError(
            f"{at} has no message from {time_us // 1000 if time_us else 0} ms since 1970 on; give "
            "an earlier time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return end if found is None else found


def _marked(place: TopicSelection, offset: int, at: TopicPartition, ends: Offsets) -> int:
    if offset == EARLIEST_MARK:
        return first_offset(place, at, ends[at])
    return ends[at] if offset == LATEST_MARK else offset


def check_complete(
    given: Iterable[TopicPartition], ends: Iterable[TopicPartition], *, name: str
) -> None:
    """Refuse offsets that do not name each partition exactly once.

    Raises:
        OptionError: some are missing, or do not exist.
    """
    unknown, missing = sorted(set(given) - set(ends)), sorted(set(ends) - set(given))
    if unknown:
        raise OptionError(f"{name} names partitions that do not exist: {_listed(unknown)}")
    if missing:
        raise OptionError(
            f"{name} lacks {_listed(missing)}; "
            "add them, with -2 for the earliest or -1 for the latest"
        )


def _listed(places: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, places))


# One connection per server in each Python process, kept while the process lives.
#
# Spark runs tasks in processes that it forks and uses again and again. A connection cannot be used
# after a fork, so each belongs to the process that opened it.

CLIENTS_MAX: Final = 8
"""Servers that one process is connected to at a time; the oldest connection is closed first."""

DIAL_PAUSE_SECONDS_MAX: Final = 1.0
"""How long a server that is back may go unnoticed; clients elsewhere wait up to 30 s."""

REPEAT_PAUSE_SECONDS: Final = 0.1
"""How long to wait before asking again; a server that closes every connection is not flooded."""

_ClientKey: TypeAlias = tuple[int, str, bool]
"""The process, the connection string, and whether it is one for bulk reads."""

_clients: dict[_ClientKey, IggyClient] = {}
_clients_lock = threading.Lock()


def answers_classic(server: str) -> bool:
    """Tell whether polls may use the protocol of 0.8, although requests use a newer one.

    Servers answer such polls with the bytes of their files; for newer protocols they read,
    convert and sum up each batch, and the client does that once more.
    """
    client = connection(server)
    options = client.options
    if options.transport != "tcp" or options.protocol is not ServerProtocol.AUTO:
        return False
    return client.dialect.is_vsr and request(server, IggyClient.answers_classic)


def request(server: str, ask: Callable[[IggyClient], R], *, is_classic: bool = False) -> R:
    """Ask a server, and ask again while it is away or restarts.

    Args:
        server: a connection string.
        ask: what to ask; it may be called several times.
        is_classic: whether to ask in the protocol of 0.8, because ``answers_classic`` said so.

    Raises:
        ConfigurationError: the connection string cannot be read; it is not quoted.
        AuthenticationError: the server refuses the login.
        IggyError: the server refuses what was asked, or was away for longer than the
            ``request_timeout`` of the connection string.
    """
    begun_at = time.monotonic()
    while True:
        try:
            return ask(_connected(server, is_classic=is_classic))
        except IncompatibleServerError:
            if not is_classic:
                raise
            # Another server has taken its place, and speaks other protocols.
            is_classic = False
        except IggyError as error:
            is_passing = error.retriable or isinstance(error, ConnectionFailedError)
            waited_seconds = time.monotonic() - begun_at
            if not is_passing or waited_seconds >= _client_options(server).request_timeout:
                raise
        threading.Event().wait(REPEAT_PAUSE_SECONDS)


def connection(server: str) -> IggyClient:
    """Return the client of this process for a server, connected.

    Raises:
        ConfigurationError: the connection string cannot be read; it is not quoted.
        AuthenticationError: the server refuses the login.
        IggyError: the server cannot be reached within ``request_timeout``.
    """
    return request(server, lambda client: client)


def _connected(server: str, *, is_classic: bool) -> IggyClient:
    """Return the client of this process for a server, after one attempt to connect it."""
    key = (os.getpid(), server, is_classic)
    with _clients_lock:
        client = _clients.get(key)
        if client is None:
            options = _client_options(server)
            if is_classic:
                options = replace(options, protocol=ServerProtocol.V0_8)
            client = IggyClient.from_options(options)
            client.connect()
            _evict_clients()
            _clients[key] = client
    if not client.is_connected:
        client.connect()
    return client


@lru_cache(maxsize=CLIENTS_MAX)
def _client_options(server: str) -> ClientOptions:
    options = resolve_options(server)
    pause_seconds = options.reconnect.max_delay
    assert isinstance(pause_seconds, float), "Reconnect makes seconds of all durations"
    return replace(
        options,
        connect_timeout=min(options.connect_timeout, options.request_timeout),
        reconnect=replace(options.reconnect, max_delay=min(pause_seconds, DIAL_PAUSE_SECONDS_MAX)),
    )


def close_all() -> None:
    """Close the clients of this process, and drop those of its parent."""
    with _clients_lock:
        for (pid, *_), client in _clients.items():
            if pid == os.getpid():
                client.close()
        _clients.clear()


def _evict_clients() -> None:
    """Drop the clients of the parent process unclosed, and close the oldest of this one."""
    for key in [key for key in _clients if key[0] != os.getpid()]:
        del _clients[key]
    while len(_clients) >= CLIENTS_MAX:
        _clients.pop(next(iter(_clients))).close()


atexit.register(close_all)
