"""Queries to a server about topics: their partitions and offsets. One connection per process."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Final

from iggy_sdk import ConsumerIdentity, PollingStrategy
from iggy_sdk.blocking import IggyClient
from spark_jobs.errors import OptionError
from spark_jobs.offsets import EARLIEST_MARK, LATEST_MARK, Offsets, Position, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_jobs.options import TopicSelection


POLL_CONSUMER: Final = ConsumerIdentity.single("spark")
"""The consumer of all polls. Polls by offset store nothing on a server, so readers can share it."""


def end_offsets(place: TopicSelection) -> Offsets:
    """Return the partitions of all topics, each with the offset of its next message.

    Raises:
        StreamNotFoundError: there is no such stream.
        TopicNotFoundError: there is no such topic.
    """
    client = connection(place.server)
    ends: Offsets = {}
    for topic in place.topics:
        for partition in client.get_topic(place.stream, topic, required=True).partitions:
            # current_offset is 0 for an empty partition and for one with a single message.
            is_used = partition.messages_count or partition.current_offset
            end = partition.current_offset + 1 if is_used else 0
            ends[TopicPartition(topic, partition.id)] = end
    return ends


def earliest_offset(place: TopicSelection, at: TopicPartition) -> int | None:
    """Return the offset of the oldest message; None when there is none."""
    return _first(place, at, PollingStrategy.first())


def _first(place: TopicSelection, at: TopicPartition, strategy: PollingStrategy) -> int | None:
    batch = connection(place.server).poll_messages(
        place.stream,
        at.topic,
        consumer=POLL_CONSUMER,
        partition_id=at.partition,
        strategy=strategy,
        count=1,
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
    strategy = PollingStrategy.first()
    if position.timestamp_us is not None:
        strategy = PollingStrategy.timestamp(position.timestamp_us)
    found = {at: _first(place, at, strategy) if end else None for at, end in ends.items()}
    return {at: ends[at] if offset is None else offset for at, offset in found.items()}


def _marked(place: TopicSelection, offset: int, at: TopicPartition, ends: Offsets) -> int:
    if offset == EARLIEST_MARK:
        earliest = earliest_offset(place, at)
        return ends[at] if earliest is None else earliest
    return ends[at] if offset == LATEST_MARK else offset


def check_complete(given: Iterable[TopicPartition], ends: Offsets, *, name: str) -> None:
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

_clients: dict[tuple[int, str], IggyClient] = {}
_clients_lock = threading.Lock()


def connection(server: str) -> IggyClient:
    """Return the client of this process for a server, connected.

    Args:
        server: a connection string.

    Raises:
        ConfigurationError: the connection string cannot be read; it is not quoted.
        ConnectionFailedError: the server cannot be reached.
        AuthenticationError: the server refuses the login.
    """
    key = (os.getpid(), server)
    with _clients_lock:
        client = _clients.get(key)
        if client is None:
            client = IggyClient(server)
            client.connect()
            _evict_clients()
            _clients[key] = client
        return client


def close_all() -> None:
    """Close the clients of this process, and drop those of its parent."""
    with _clients_lock:
        for (pid, _), client in _clients.items():
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
