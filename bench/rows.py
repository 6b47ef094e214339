"""What is measured, and which of the server's targets each figure is held against.

The targets compare with Apache Iggy. Where there is no binary of it, they compare with the C store,
and the bar is scaled by the ratio of the store to Apache Iggy when both were measured together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from bench.load_runs import Figure, Load
from bench.servers import ServerPlan

__all__ = ["ROWS", "Baseline", "ClientShard", "Row", "Target", "Unit", "value_of"]


WRITTEN, MEMORY, FSYNC = ServerPlan(), ServerPlan(ack="memory"), ServerPlan(ack="fsync")
TWO, TWO_FIXED = ServerPlan(shards=2), ServerPlan(shards=2, migrates=False)


class Unit(Enum):
    """The column of a figure that counts, as it is printed."""

    MB_S = "MB/s"
    MESSAGES_S = "msg/s"
    P50_US = "us p50"
    P99_MS = "ms p99"

    @property
    def is_better_low(self) -> bool:
        """Whether less is better."""
        return self in {Unit.P50_US, Unit.P99_MS}


class Baseline(Enum):
    """What our figure is compared with."""

    SERVER = "another server"
    PLACE = "clients on the owning shard"
    FILL = "a partition with fewer messages"
    DIALECT = "the classic wire"


class ClientShard(Enum):
    """Which shard a client is connected to."""

    ANY = "any"
    OWNER = "owner"
    OTHER = "other"


class Target(NamedTuple):
    """What is asked for.

    Attributes:
        of_apache: the ratio to Apache Iggy, or to any other baseline that is not a server.
        store_of_apache: the ratio of the C store to Apache Iggy, from the notes on performance.
        bound: an absolute bound instead of a ratio.
    """

    of_apache: float = 0.0
    store_of_apache: float = 1.0
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is done.
        load: who does it.
        shows: what counts.
        plan: how the server is started.
        target: what is asked for, if anything.
        limit: the figure of the bare machine that nothing can pass, if there is one.
        beside: what goes on at the same time.
        rival: what it is compared with.
        stored: messages in the partition before it begins; kept from round to round if there are
            any.
    """

    name: str
    load: Load
    shows: Unit
    plan: ServerPlan = WRITTEN
    target: Target | None = None
    limit: str = ""
    beside: Load | None = None
    rival: Baseline = Baseline.SERVER
    stored: int = 0


def value_of(figure: Figure, row: Row) -> float:
    """Return what counts."""
    match row.shows:
        case Unit.MB_S:
            return figure.requests_s * row.load.request_bytes / 1e6
        case Unit.MESSAGES_S:
            return figure.requests_s * row.load.messages
        case Unit.P50_US:
            return figure.p50_us
        case Unit.P99_MS:
            return figure.p99_us / 1e3


def _send(messages: int, payload_bytes: int, connections: int = 1, window: int = 1) -> Load:
    return Load(
        work="send",
        messages=messages,
        payload_bytes=payload_bytes,
        connections=connections,
        window=window,
        partitions=connections,
    )


def _poll(payload_bytes: int, connections: int = 1, window: int = 1) -> Load:
    return Load(
        work="poll",
        messages=1000,
        payload_bytes=payload_bytes,
        connections=connections,
        window=window,
        stored=POLLED_COUNT,
    )


POLLED_COUNT = 100_000
FEW, MANY = 100_000, 1_000_000
LARGE, SMALL = (1000, 1000), (1000, 100)
SINGLE = _send(1, 1000)
DEEP = _send(1, 1000, window=1000)
DEEP_8 = _send(1, 1000, connections=8, window=200)
PINGS = Load(work="ping", pace_us=500)
WRITER = _send(*LARGE, window=4)

_WRITTEN = (
    Row(
        name="send 1000 x 1000 B, 1 producer",
        load=_send(*LARGE),
        shows=Unit.MB_S,
        target=Target(1.0, 0.95),
        limit="request_ack_mb_s",
    ),
    Row(
        name="send 1000 x 1000 B, 1 producer, 4 in flight",
        load=_send(*LARGE, window=4),
        shows=Unit.MB_S,
        target=Target(1.0, 1.08),
        limit="request_ack_mb_s",
    ),
    Row(
        name="send 1000 x 1000 B, 4 producers",
        load=_send(*LARGE, connections=4),
        shows=Unit.MB_S,
        target=Target(1.0, 1.05),
        limit="append_mb_s",
    ),
    Row(
        name="send 1000 x 100 B, 1 producer",
        load=_send(*SMALL),
        shows=Unit.MESSAGES_S,
        target=Target(1.0, 1.23),
    ),
    Row(
        name="send 1000 x 100 B, 1 producer, 4 in flight",
        load=_send(*SMALL, window=4),
        shows=Unit.MESSAGES_S,
        target=Target(1.0, 1.23),
    ),
    Row(
        name="send 1000 x 100 B, 4 producers",
        load=_send(*SMALL, connections=4),
        shows=Unit.MESSAGES_S,
        target=Target(1.0, 1.23),
    ),
    Row(
        name="send 1 x 1000 B, awaited",
        load=SINGLE,
        shows=Unit.P50_US,
        target=Target(1.2, 0.85),
        limit="ping_pong_us",
    ),
    Row(
        name="send 1 x 1000 B, 1 producer, 1000 in flight",
        load=DEEP,
        shows=Unit.MESSAGES_S,
        target=Target(5.0, 3.0),
    ),
    Row(
        name="send 1 x 1000 B, 8 producers, 200 in flight",
        load=DEEP_8,
        shows=Unit.MESSAGES_S,
        target=Target(5.0, 3.0),
    ),
    Row(
        name="poll 1000 x 1000 B, 1 consumer",
        load=_poll(1000),
        shows=Unit.MB_S,
        target=Target(1.5, 1.25),
        limit="sendfile_mb_s",
    ),
    Row(
        name="poll 1000 x 1000 B, 1 consumer, 4 in flight",
        load=_poll(1000, window=4),
        shows=Unit.MB_S,
        target=Target(1.5, 1.25),
        limit="sendfile_mb_s",
    ),
    Row(
        name="poll 1000 x 1000 B, 4 consumers",
        load=_poll(1000, connections=4),
        shows=Unit.MB_S,
        target=Target(1.5, 1.30),
        limit="sendfile_mb_s",
    ),
    Row(name="poll 1000 x 100 B, 1 consumer", load=_poll(100), shows=Unit.MESSAGES_S),
    Row(
        name="poll 1000 x 100 B, 4 consumers",
        load=_poll(100, connections=4),
        shows=Unit.MESSAGES_S,
    ),
    Row(
        name="ping beside a writer",
        load=PINGS,
        shows=Unit.P99_MS,
        target=Target(bound=10.0),
        beside=WRITER,
    ),
)

_FROM_MEMORY = (
    Row(
        name="ack memory: send 1000 x 1000 B, 1 producer",
        load=_send(*LARGE),
        shows=Unit.MB_S,
        plan=MEMORY,
        target=Target(1.0, 0.95),
        limit="request_ack_mb_s",
    ),
    Row(
        name="ack memory: send 1000 x 100 B, 1 producer",
        load=_send(*SMALL),
        shows=Unit.MESSAGES_S,
        plan=MEMORY,
        target=Target(1.0, 1.23),
    ),
    Row(
        name="ack memory: send 1 x 1000 B, awaited",
        load=SINGLE,
        shows=Unit.P50_US,
        plan=MEMORY,
        target=Target(1.2, 0.85),
        limit="ping_pong_us",
    ),
    Row(
        name="ack memory: send 1 x 1000 B, 1000 in flight",
        load=DEEP,
        shows=Unit.MESSAGES_S,
        plan=MEMORY,
        target=Target(5.0, 3.0),
    ),
)

_SYNCED = (
    Row(
        name="ack fsync: send 1000 x 1000 B, 1 producer",
        load=_send(*LARGE),
        shows=Unit.MB_S,
        plan=FSYNC,
        target=Target(1.1, 1.16),
        limit="fdatasync_mb_s",
    ),
    Row(
        name="ack fsync: send 1000 x 1000 B, 4 producers",
        load=_send(*LARGE, connections=4),
        shows=Unit.MB_S,
        plan=FSYNC,
        target=Target(1.5, 1.21),
        limit="fdatasync_mb_s",
    ),
    Row(
        name="ack fsync: send 1 x 1000 B, awaited",
        load=SINGLE,
        shows=Unit.P50_US,
        plan=FSYNC,
        limit="fdatasync_us",
    ),
    Row(
        name="ack fsync: send 1 x 1000 B, 1000 in flight",
        load=DEEP,
        shows=Unit.MESSAGES_S,
        plan=FSYNC,
        target=Target(100.0, 2.4),
    ),
    Row(
        name="ack fsync: ping beside a writer",
        load=PINGS,
        shows=Unit.P99_MS,
        plan=FSYNC,
        target=Target(bound=10.0),
        beside=WRITER,
    ),
)


def _across(plan: ServerPlan, what: str) -> tuple[Row, ...]:
    """Compare clients that are not on the owning shard with clients that are."""
    target = Target(0.7)
    return (
        Row(
            name=f"2 shards, {what}: send 1000 x 1000 B",
            load=_send(*LARGE),
            shows=Unit.MB_S,
            plan=plan,
            target=target,
            rival=Baseline.PLACE,
        ),
        Row(
            name=f"2 shards, {what}: send 1 x 1000 B, 1000 deep",
            load=DEEP,
            shows=Unit.MESSAGES_S,
            plan=plan,
            target=target,
            rival=Baseline.PLACE,
        ),
        Row(
            name=f"2 shards, {what}: poll 1000 x 1000 B",
            load=_poll(1000),
            shows=Unit.MB_S,
            plan=plan,
            target=target,
            rival=Baseline.PLACE,
        ),
    )


_GROWN = (
    Row(
        name="send 1 x 1000 B, 10^6 messages stored",
        load=DEEP,
        shows=Unit.MESSAGES_S,
        target=Target(0.8),
        rival=Baseline.FILL,
        stored=MANY,
    ),
    Row(
        name="poll 100 x 100 B, 10^6 messages stored",
        load=Load(work="poll", messages=100, payload_bytes=100),
        shows=Unit.P50_US,
        target=Target(1.25),
        rival=Baseline.FILL,
        stored=MANY,
    ),
)


def _of_dialect(dialect: str, release: str) -> tuple[Row, ...]:
    """Compare a generation of the wire with the classic one, on the same server."""

    def row(name: str, load: Load, shows: Unit, ratio: float) -> Row:
        return Row(
            name=f"wire of {release}: {name}",
            load=replace(load, dialect=dialect),
            shows=shows,
            target=Target(ratio),
            rival=Baseline.DIALECT,
        )

    return (
        row("send 1000 x 1000 B", _send(*LARGE), Unit.MB_S, 0.8),
        row("send 1000 x 100 B", _send(*SMALL), Unit.MESSAGES_S, 0.8),
        row("send 1 x 1000 B, 1000 in flight", DEEP, Unit.MESSAGES_S, 0.8),
        row("poll 1000 x 1000 B", _poll(1000), Unit.MB_S, 0.5),
        row("poll 1000 x 100 B", _poll(100), Unit.MESSAGES_S, 0.5),
    )


ROWS = (
    *_WRITTEN,
    *_GROWN,
    *_FROM_MEMORY,
    *_SYNCED,
    *_across(TWO, "handed over"),
    *_across(TWO_FIXED, "forwarded"),
    *_of_dialect("0.11", "0.9"),
    *_of_dialect("0.12.0", "0.10 (preview)"),
    *_of_dialect("0.12.2", "0.10"),
)
