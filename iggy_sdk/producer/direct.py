"""A producer whose every call waits for the server.

Many tasks may send at the same time; their requests share the connection and overlap. Lists are
divided into requests, which go one after another, so the order of a list is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from iggy_protocol import PAYLOAD_BYTES_MAX, Identifier, MessageRows, Partitioning
from iggy_sdk.durations import Seconds, spell_seconds, to_seconds
from iggy_sdk.errors import IggyError, RequestTimeoutError, SendFailedError
from iggy_sdk.producer.encoder import OVERHEAD_BYTES, key_of, split_batches, with_overrides
from iggy_sdk.producer.options import REQUEST_BYTES_MAX, DirectMode, ProducerOptions
from iggy_sdk.producer.producer import (
    Producer,
    explicit_partitioning,
    is_list_of_messages,
    overridden,
)
from iggy_sdk.producer.receipts import DELIVERED, Receipt, confirmed_receipt
from iggy_sdk.producer.retrying_sender import log_given_up
from iggy_sdk.producer.routing import Destination, TopicRoute, key_bytes
from iggy_sdk.statistics import ProducerStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_protocol import SendConfirmation
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.deadline import Deadline
    from iggy_sdk.message import Headers, Message


T = TypeVar("T")

PLAIN_TYPES: Final = frozenset({bytes})


class DirectProducer(Producer[T]):
    """Sends and waits."""

    def __init__(
        self,
        client: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        options: ProducerOptions,
    ) -> None:
        """Take what the builder collected; nothing is sent yet."""
        super().__init__(client, stream, topic, options)
        assert isinstance(options.mode, DirectMode)
        self._mode = options.mode
        self._pace = to_seconds(options.mode.linger_time)
        self._next_at = 0.0
        # A payload of this size is below every limit of its own.
        self._plain_bytes_max = min(options.mode.batch_size or PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX)
        self._accepted_count = 0
        self._failed_count = 0

    def statistics(self) -> ProducerStatistics:
        """Return the counters of the producer."""
        return ProducerStatistics(
            accepted_count=self._accepted_count,
            delivered_count=self._retrying_sender.messages_count,
            failed_count=self._failed_count,
            batches_count=self._retrying_sender.batches_count,
            retries_count=self._retrying_sender.retries_count,
        )

    async def send(
        self,
        value: T | Message[T],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send one message; see ``Producer.send``."""
        explicit = explicit_partitioning(partition_id, partitioning)
        if is_list_of_messages(value):
            messages: Any = value
            return await self._send_all(
                self._route, list(messages), key, explicit, headers, timeout
            )
        self._check_open()
        deadline = self._deadline(timeout)
        if key is None and not headers and self._fits_as_it_is([value]):
            original: Any = value
            wire: Any = value
            destination = self._usual_destination if explicit is None else self._route.to(explicit)
        else:
            original = with_overrides(value, key=key, headers=headers)
            wire, destination = self._prepared(original, explicit)
        assert destination is not None
        if self._pace:
            await self._wait_for_pace(deadline)
        self._accepted_count += 1
        confirmation = await self._send_piece(
            destination, [wire], [original], [original], [wire], deadline
        )
        return DELIVERED if confirmation is None else confirmed_receipt([confirmation], 1)

    def _prepared(self, original: Any, explicit: Partitioning | None) -> tuple[Any, Destination]:
        """Encode one message, and choose its destination."""
        route = self._route
        wire, _ = self._encoder.encode_one(original, stream=route.stream, topic=route.topic)
        destination = self._common_destination(route, (original,), explicit)
        if destination is None:
            # The server hashes a single key, as it always knows the number of partitions.
            key = key_of(original)
            assert key is not None
            destination = route.to(Partitioning.key(key_bytes(key)))
        return wire, destination

    async def _send_all(
        self,
        route: TopicRoute,
        values: list[Any],
        key: str | bytes | None,
        explicit: Partitioning | None,
        headers: Headers | None,
        timeout: Seconds | None,
    ) -> Receipt:
        self._check_open()
        if not values:
            return DELIVERED
        deadline = self._deadline(timeout)
        if self._pace:
            await self._wait_for_pace(deadline)
        if key is None and not headers and self._fits_as_it_is(values):
            self._accepted_count += len(values)
            destination = self._common_destination(route, values[:1], explicit)
            assert destination is not None
            confirmation = await self._send_piece(
                destination, values, values, values, values, deadline
            )
            return confirmed_receipt([confirmation], len(values))
        originals = overridden(values, key, headers)
        wires, sizes = self._encoder.encode_many(originals, stream=route.stream, topic=route.topic)
        destination = self._common_destination(route, originals, explicit)
        self._accepted_count += len(originals)
        if destination is not None:
            confirmations = await self._send_pieces(destination, originals, wires, sizes, deadline)
        else:
            confirmations = await self._send_by_key(route, originals, wires, sizes, deadline)
        return confirmed_receipt(confirmations, len(originals))

    async def _send_rows(
        self, destination: Destination, rows: MessageRows, timeout: Seconds | None
    ) -> Receipt:
        self._check_open()
        deadline = self._deadline(timeout)
        pieces = self._pieces_of_rows(rows, self._mode.batch_length, self._mode.batch_size)
        if self._pace and pieces:
            await self._wait_for_pace(deadline)
        self._accepted_count += len(rows)
        confirmations = []
        start = 0
        for piece, _ in pieces:
            rest = rows[start:]
            start += len(piece)
            confirmations.append(
                await self._send_piece(destination, piece, piece, rest, rest, deadline)
            )
        return confirmed_receipt(confirmations, len(rows)) if pieces else DELIVERED

    def _fits_as_it_is(self, values: list[Any]) -> bool:
        """Tell whether a list is plain bytes and fits one request, without a loop in Python."""
        length = self._mode.batch_length
        return (
            self._passes_bytes
            and (length is None or len(values) <= length)
            and PLAIN_TYPES.issuperset(map(type, values))
            and sum(map(len, values)) + OVERHEAD_BYTES * len(values) <= self._plain_bytes_max
        )

    async def _send_pieces(
        self,
        destination: Destination,
        originals: Sequence[Any],
        wires: Sequence[Any],
        sizes: Sequence[int],
        deadline: Deadline,
    ) -> list[SendConfirmation | None]:
        """Send messages of one destination, in their order."""
        confirmations = []
        for start, stop in self._pieces(sizes):
            if stop - start == len(wires):
                sent = await self._send_piece(
                    destination, wires, originals, originals, wires, deadline
                )
            else:
                sent = await self._send_piece(
                    destination,
                    wires[start:stop],
                    originals[start:stop],
                    originals[start:],
                    wires[start:],
                    deadline,
                )
            confirmations.append(sent)
        return confirmations

    async def _send_by_key(
        self,
        route: TopicRoute,
        originals: list[Any],
        wires: Sequence[Any],
        sizes: Sequence[int],
        deadline: Deadline,
    ) -> list[SendConfirmation | None]:
        """Send messages of several destinations, each in the order of the list."""
        now = anyio.current_time()
        if route.is_stale(now):
            await route.refresh_partitions(now=now, seconds=deadline.rest())
        groups: dict[Destination, list[int]] = {}
        for at, original in enumerate(originals):
            groups.setdefault(self._keyed_destination(route, original), []).append(at)
        unsent = dict.fromkeys(range(len(originals)))
        confirmations = []
        for destination, places in groups.items():
            for start, stop in self._pieces([sizes[at] for at in places]):
                piece = places[start:stop]
                sent = await self._send_piece(
                    destination,
                    [wires[at] for at in piece],
                    [originals[at] for at in piece],
                    [originals[at] for at in unsent],
                    [wires[at] for at in unsent],
                    deadline,
                )
                confirmations.append(sent)
                for at in piece:
                    del unsent[at]
        return confirmations

    def _pieces(self, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Split messages into requests."""
        length, size_bytes = self._mode.batch_length, self._mode.batch_size
        limit = REQUEST_BYTES_MAX if size_bytes is None else size_bytes
        if (length is None or len(sizes) <= length) and sum(sizes) <= limit:
            return iter(((0, len(sizes)),))
        return split_batches(
            sizes, length=length, size_bytes=size_bytes, bytes_max=REQUEST_BYTES_MAX
        )

    async def _send_piece(
        self,
        destination: Destination,
        wires: Sequence[Any],
        originals: Sequence[Any],
        unsent_originals: Sequence[Any],
        unsent_wires: Sequence[Any],
        deadline: Deadline,
    ) -> SendConfirmation | None:
        """Send one request; if it fails, name all messages of the call that were not sent."""
        try:
            return await self._transmit(destination, wires, originals, deadline)
        except IggyError as error:
            unsent = self._encoder.unsent(unsent_originals, unsent_wires)
            self._failed_count += len(unsent)
            failure = SendFailedError(error, unsent)
            log_given_up(destination, failure)
            raise failure from error

    async def _wait_for_pace(self, deadline: Deadline) -> None:
        """Wait until ``linger_time`` has passed since the previous call.

        Raises:
            RequestTimeoutError: the turn of this call comes after its deadline.
        """
        now = anyio.current_time()
        turn = max(now, self._next_at)
        if turn > deadline.at:
            raise RequestTimeoutError(
                f"the turn of this call, with linger_time {self._pace:g} s, does not come within"
                f" {spell_seconds(deadline.seconds)}",
                advice="Raise the timeout, shorten linger_time, or send several messages at once.",
                sent=False,
            )
        self._next_at = turn + self._pace
        await anyio.sleep_until(turn)

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    async def flush(self, *, timeout: Seconds | None = None) -> None:
        """Do nothing: every call has waited already."""

    async def aclose(self, *, timeout: Seconds | None = None) -> None:
        """Accept no further messages."""
        self._is_closed = True
