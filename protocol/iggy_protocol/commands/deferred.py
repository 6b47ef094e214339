"""Polls that wait on the server until there are messages, from 0.10 on.

A client may send other requests on the connection meanwhile. CancelDeferred ends one that waits; it
has no reply. WaitForMessages exists before 0.12.2 only, FetchMessages from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.batch_vsr import SMALLEST_BATCH_BYTES
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.messages import POLL_RANGE_FIELDS, POLL_TARGET_FIELDS
from iggy_protocol.commands.polled import (
    CONTEXT,
    POLLED_CODECS,
    POLLED_HEAD_V0_12_SIZE,
    decode_batches,
    encode_batches,
)
from iggy_protocol.dialect import V0_12_0, V0_12_2
from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    TrailingBytes,
    TruncatedField,
)
from iggy_protocol.fields import CountPrefixedArray, RecordStruct
from iggy_protocol.framing import size_of
from iggy_protocol.layout import Buffer, Layout
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
    Identifier,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.primitives import BOOL, CONSUMER, IDENTIFIER, POLLING_STRATEGY, U32, U64
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, RecordCodec, command, reply_of_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


WAIT_US_MAX: Final = 600_000_000
TIMEOUT_US_MAX: Final = 630_000_000
TIMEOUT_MARGIN_US: Final = 1_000_000
"""How much longer than the wait a client must be willing to wait for the reply."""
DEFERRED_BYTES_MIN: Final = POLLED_HEAD_V0_12_SIZE + SMALLEST_BATCH_BYTES
"""The smallest limit of a reply: one message without content."""
TARGETS_MAX: Final = 1_000
"""Partitions in one request."""
START_KINDS: Final = frozenset({PollingKind.OFFSET, PollingKind.NEXT})
"""Where a poll of several partitions may start."""


class Rule(NamedTuple):
    """A limit of a request, which has status 3.

    Attributes:
        field: the field at fault.
        holds: tells whether a command keeps the rule.
        text: what the rule is.
    """

    field: str
    holds: Callable[[Any], bool]
    text: str


class StrictCodec(RecordCodec):
    """A request without trailing bytes, and with rules that clients and servers check."""

    def __init__(self, layout: Layout[Any], rules: tuple[Rule, ...] = ()) -> None:
        super().__init__(Layout(layout.name, layout.construct))
        self.rules = rules

    def decode(self, payload: Buffer) -> Any:
        """Read the record, and check the rules."""
        value = super().decode(payload)
        broken = self._broken(value)
        if broken is not None:
            raise InvalidField(broken.text, field=broken.field, status=INVALID_COMMAND)
        return value

    def encode(self, value: Any) -> list[Buffer]:
        """Write the record if it keeps the rules."""
        encoded = super().encode(value)
        broken = self._broken(value)
        if broken is not None:
            raise LocalProtocolError(broken.text, field=broken.field)
        return encoded

    def _broken(self, value: Any) -> Rule | None:
        return next((rule for rule in self.rules if not rule.holds(value)), None)


def _has_unique_partitions(value: Any) -> bool:
    return len({target.partition_id for target in value.targets}) == len(value.targets)


_WAIT = Rule("wait_us", lambda value: value.wait_us <= WAIT_US_MAX, "the wait is at most 600 s")
_TIMEOUT_MAX = Rule(
    "timeout_us", lambda value: value.timeout_us <= TIMEOUT_US_MAX, "the timeout is at most 630 s"
)
_TIMEOUT = Rule(
    "timeout_us",
    lambda value: value.timeout_us >= value.wait_us + TIMEOUT_MARGIN_US,
    "the timeout is at least one second longer than the wait",
)
_TIMEOUT_OF_WAIT = Rule(
    "timeout_us", lambda value: not value.wait_us or _TIMEOUT.holds(value), _TIMEOUT.text
)
_MESSAGES_MIN = Rule(
    "messages_min",
    lambda value: 1 <= value.messages_min <= value.count,
    "the least number of messages is between 1 and the largest",
)
_BYTES_MAX = Rule(
    "bytes_max",
    lambda value: value.bytes_max >= DEFERRED_BYTES_MIN,
    f"the limit of the reply is at least {DEFERRED_BYTES_MIN} bytes",
)
_UNIQUE = Rule("targets", _has_unique_partitions, "a partition is asked for once")
_STARTS = Rule(
    "targets",
    lambda value: all(target.strategy.kind in START_KINDS for target in value.targets),
    "a partition is read from an offset or from the next message on",
)


@command(
    CommandCode.POLL_DEFERRED,
    *POLL_TARGET_FIELDS,
    *POLL_RANGE_FIELDS,
    "wait_us" / U64,
    "messages_min" / U32,
    "bytes_max" / U32,
    "timeout_us" / U64,
    codec=partial(
        StrictCodec, rules=(_WAIT, _MESSAGES_MIN, _BYTES_MAX, _TIMEOUT_MAX, _TIMEOUT_OF_WAIT)
    ),
    reply=POLLED_CODECS,
    since=V0_12_0,
)
@record
class PollDeferred(Command[PolledMessages]):
    """Ask for messages; the server replies when there are enough, or when the wait is over.

    Attributes:
        wait_us: how long the server may wait; 0 polls at once.
        messages_min: how many messages are enough.
        bytes_max: how large the reply may be; the server leaves out messages that do not fit.
        timeout_us: how long the client waits for the reply, longer than the server.
    """

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    strategy: PollingStrategy
    count: int
    wait_us: int
    timeout_us: int
    messages_min: int = 1
    bytes_max: int = 1 << 20
    partition_id: int | None = None
    auto_commit: bool = False


class TargetArray(CountPrefixedArray):
    """The partitions of a request, behind their number, which is checked before they are read."""

    def __init__(self, target: RecordStruct) -> None:
        super().__init__(target, count_size=4)

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> tuple[Any, ...]:
        """Read the count, and so many partitions."""
        start = stream.tell()
        count = int.from_bytes(stream.read(self.count_size), "little")
        if not 1 <= count <= TARGETS_MAX:
            raise InvalidField(
                f"{count} partitions; allowed are 1 to {TARGETS_MAX}",
                offset=start,
                status=INVALID_COMMAND,
            )
        return tuple([parse(index) for index in range(count)])

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        """Write the count and the partitions."""
        if not 1 <= len(obj) <= TARGETS_MAX:
            raise LocalProtocolError(f"{len(obj)} partitions; allowed are 1 to {TARGETS_MAX}")
        super().build_elements(obj, stream, build)


@record
class WaitTarget:
    """A partition, and from where on it is read."""

    partition_id: int
    strategy: PollingStrategy


WAIT_TARGET = RecordStruct(WaitTarget, "partition_id" / U32, "strategy" / POLLING_STRATEGY)


@command(
    CommandCode.WAIT_FOR_MESSAGES,
    "consumer" / CONSUMER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "wait_us" / U64,
    "timeout_us" / U64,
    "targets" / TargetArray(WAIT_TARGET),
    codec=partial(StrictCodec, rules=(_WAIT, _TIMEOUT_MAX, _TIMEOUT_OF_WAIT, _UNIQUE, _STARTS)),
    reply=reply_of_one(CountPrefixedArray(U32, count_size=4), "partitions"),
    since=V0_12_0,
    changes={V0_12_2: None},
)
@record
class WaitForMessages(Command[tuple[int, ...]]):
    """Ask which partitions have a message at their start; none when the wait is over."""

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    wait_us: int
    timeout_us: int
    targets: tuple[WaitTarget, ...]


@command(CommandCode.CANCEL_DEFERRED, codec=StrictCodec, reply=EMPTY, since=V0_12_0)
@record
class CancelDeferred(Command[None]):
    """End a request that waits; the frame has its number, and neither of them is answered."""


# Several partitions in one reply.


@record
class FetchTarget:
    """A partition, from where on it is read, and the state that the client knows of it.

    Attributes:
        bytes_max: how large the messages of the partition may be.
    """

    partition_id: int
    strategy: PollingStrategy
    bytes_max: int
    incarnation: int = 0
    owner_generation: int = 0


FETCH_TARGET = RecordStruct(
    FetchTarget,
    "partition_id" / U32,
    "strategy" / POLLING_STRATEGY,
    "bytes_max" / U32,
    "incarnation" / U64,
    "owner_generation" / U64,
)


class FetchedHead(NamedTuple):
    """The head of the messages of one partition; all heads come before all messages."""

    partition_id: int
    status: int
    current_offset: int
    messages_count: int
    context: PartitionContext
    next_offset: int
    batches_bytes: int


FETCHED_HEAD = RecordStruct(
    FetchedHead,
    "partition_id" / U32,
    "status" / U32,
    "current_offset" / U64,
    "messages_count" / U32,
    "context" / CONTEXT,
    "next_offset" / U64,
    "batches_bytes" / U32,
)
FETCHED_HEAD_SIZE: Final = 56
_FETCHED_HEADS: Layout[tuple[FetchedHead, ...]] = Layout(
    "FetchedPartition", CountPrefixedArray(FETCHED_HEAD, count_size=4), surplus_allowed=True
)


@record
class FetchedPartition:
    """What a fetch returned of one partition.

    Attributes:
        status: why the partition could not be read; 0 if it could.
        next_offset: where the next fetch goes on.
        messages: the messages; none where there is a status.
        fault: why there are fewer messages than the server sent, as in ``PolledMessages``.
    """

    partition_id: int
    status: int
    current_offset: int
    messages_count: int
    next_offset: int
    messages: MessageBatch
    context: PartitionContext = PartitionContext()
    fault: InvalidField | TruncatedField | None = None


class FetchedPartitionsCodec:
    """u32 count, so many heads of 56 bytes, then the batches of all partitions."""

    def decode(self, payload: Buffer) -> tuple[FetchedPartition, ...]:
        """Decode the heads, and convert the messages to the classic form.

        A partition whose batches cannot be read does not harm the others: it has a fault.

        Raises:
            RemoteProtocolError: the heads cannot be read, or are not those of the batches.
        """
        body = memoryview(payload)
        heads = _FETCHED_HEADS.decode(body)
        at = 4 + FETCHED_HEAD_SIZE * len(heads)
        fetched = []
        for index, head in enumerate(heads):
            end = at + head.batches_bytes
            _check_section(index, head, at, len(body))
            messages, fault = decode_batches(body[at:end], V0_12_2, at)
            fetched.append(
                FetchedPartition(
                    head.partition_id,
                    head.status,
                    head.current_offset,
                    head.messages_count,
                    head.next_offset,
                    messages,
                    head.context,
                    fault,
                )
            )
            at = end
        if at < len(body):
            raise TrailingBytes(
                f"the batches end at byte {at}, but {len(body) - at} more follow",
                offset=at,
                have=len(body) - at,
            )
        return tuple(fetched)

    def encode(self, value: Iterable[FetchedPartition]) -> list[Buffer]:
        """Encode the heads, and convert the messages to batches.

        Raises:
            LocalProtocolError: a message does not match its checksum, or a partition has both a
                status and messages.
        """
        sections: list[tuple[FetchedHead, Sequence[Buffer]]] = []
        for one in value:
            head = FetchedHead(
                one.partition_id,
                one.status,
                one.current_offset,
                one.messages_count,
                one.context,
                one.next_offset,
                0,
            )
            sections.append((head, [encode_batches(one.messages, one.partition_id)]))
        return encode_fetched(sections)


def _check_section(index: int, head: FetchedHead, at: int, end: int) -> None:
    field = f"{index}.batches"
    if head.batches_bytes > end - at:
        raise TruncatedField(
            f"the batches of partition {head.partition_id} are cut",
            field=field,
            offset=at,
            need=head.batches_bytes,
            have=end - at,
        )
    if head.status and head.batches_bytes:
        raise InvalidField(
            f"partition {head.partition_id} has a status and batches", field=field, offset=at
        )


def encode_fetched(sections: Iterable[tuple[FetchedHead, Sequence[Buffer]]]) -> list[Buffer]:
    """Write the reply to a fetch; the size in each head is that of the batches beside it.

    Raises:
        LocalProtocolError: a number does not fit its field, or a partition has both a status and
            batches.
    """
    heads: list[FetchedHead] = []
    batches: list[Buffer] = []
    for head, buffers in sections:
        size = size_of(buffers)
        if head.status and size:
            raise LocalProtocolError(f"partition {head.partition_id} has a status and batches")
        heads.append(head._replace(batches_bytes=size))
        batches += buffers
    return [_FETCHED_HEADS.encode(tuple(heads)), *batches]


@command(
    CommandCode.FETCH_MESSAGES,
    "consumer" / CONSUMER,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "wait_us" / U64,
    "timeout_us" / U64,
    "messages_min" / U32,
    "count" / U32,
    "bytes_max" / U32,
    "auto_commit" / BOOL,
    "targets" / TargetArray(FETCH_TARGET),
    codec=partial(
        StrictCodec, rules=(_WAIT, _TIMEOUT_MAX, _TIMEOUT, _MESSAGES_MIN, _UNIQUE, _STARTS)
    ),
    reply=FetchedPartitionsCodec(),
    since=V0_12_2,
)
@record
class FetchMessages(Command[tuple[FetchedPartition, ...]]):
    """Ask for messages of several partitions; the server waits as for PollDeferred.

    Attributes:
        wait_us: how long the server may wait.
        timeout_us: how long the client waits for the reply, longer than the server.
        messages_min: how many messages are enough, of all partitions together.
        count: how many messages to return at most.
        bytes_max: how large the reply may be.
    """

    consumer: ConsumerIdentity
    stream: Identifier
    topic: Identifier
    wait_us: int
    timeout_us: int
    targets: tuple[FetchTarget, ...]
    count: int
    messages_min: int = 1
    bytes_max: int = 1 << 20
    auto_commit: bool = False
