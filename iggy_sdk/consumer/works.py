"""The core of a consumer: its parts, its timer task, opening and closing.

Closing has an order: stop polling, store what is due, leave the group, close an own connection. It
is shielded from cancellation and limited in time, so that leaving a block neither loses commits
nor hangs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from iggy_sdk.consumer.commits import Commits
from iggy_sdk.consumer.cursor import Cursors
from iggy_sdk.consumer.handout import Handout
from iggy_sdk.consumer.intake import Intake
from iggy_sdk.consumer.ledger import LedgerBook
from iggy_sdk.consumer.membership import Membership
from iggy_sdk.consumer.patience import Patience
from iggy_sdk.consumer.poller import Poller
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import IggyError
from iggy_sdk.hooks import Hooks
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import PolledMessages, PollingStrategy
    from iggy_sdk.consumer.membership import Seat
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.place import Place
    from iggy_sdk.consumer.poller import Rotation
    from iggy_sdk.door import ClientDoor
    from iggy_sdk.message import Committer, ReceivedBatch

__all__ = ["Works"]

T = TypeVar("T")

logger = logging.getLogger("iggy_sdk.consumer")


class Works(Generic[T]):
    """The parts of a consumer.

    Args:
        rotation: the partitions to read, or None when the server chooses.
        owns_client: whether the connection is closed with the consumer.
    """

    def __init__(
        self,
        client: ClientDoor,
        *,
        seat: Seat,
        place: Place,
        options: ConsumerOptions,
        rotation: Rotation | None,
        owns_client: bool,
    ) -> None:
        inherited = client.options
        self.options, self.place, self.seat = options, place, seat
        self.hooks = Hooks(inherited.hooks)
        self.is_closed = False
        self.committer: Committer | None = None
        own = options.close_timeout
        self.close_timeout = inherited.close_timeout if own is None else to_seconds(own)
        self._client = client
        self._owns_client = owns_client
        self._failure: IggyError | None = None
        self._pipeline: Pipeline[T] = Pipeline(
            options.serde, encryptor=options.encryptor_of(inherited.encryptor)
        )
        self.book = LedgerBook(options.commit)
        self.cursors = Cursors(options.start, allow_replay=options.allow_replay)
        self.poller = Poller(
            seat=seat,
            place=place,
            options=options,
            cursors=self.cursors,
            book=self.book,
            rotation=rotation,
            make_batch=self._make_batch,
        )
        patience = Patience(
            inherited,
            longest=to_seconds(options.polling_retry_interval),
            what=f"{place}: polling",
        )
        self.intake: Intake[T] = Intake(
            poller=self.poller,
            cursors=self.cursors,
            book=self.book,
            options=options,
            patience=patience,
        )
        self.commits = Commits(
            seat=seat, place=place, book=self.book, mode=options.commit, on_lost=self.intake.lose
        )
        self.handout: Handout[T] = Handout(
            intake=self.intake, commits=self.commits, mode=options.commit, hooks=self.hooks
        )
        if isinstance(seat, Membership):
            seat.on_rejoin = self._resume_membership

    def _make_batch(self, polled: PolledMessages) -> ReceivedBatch[Any]:
        place = self.place
        return self._pipeline.batch(
            polled, stream=place.stream, topic=place.topic, committer=self.committer
        )

    # Position

    async def seek(self, strategy: PollingStrategy, partition_id: int | None) -> None:
        """Continue elsewhere, after storing what is acknowledged."""
        self.handout.close_account()
        await self.commits.flush()
        self.intake.give_back(partition_id)
        self.cursors.seek(strategy, partition_id)
        for ledger in self.book:
            if partition_id in (None, ledger.partition_id):
                self.book.forget(ledger.partition_id)
        self.intake.announce()

    def pause(self, partition_ids: Iterable[int]) -> None:
        """Stop polling some partitions, or all."""
        wanted = frozenset(partition_ids)
        if not wanted:
            self.intake.is_paused = True
            self.intake.give_back()
        self.poller.paused |= wanted
        for partition_id in wanted:
            self.intake.give_back(partition_id)
        self.intake.announce()

    def resume(self, partition_ids: Iterable[int]) -> None:
        """Poll partitions again, or all of them."""
        wanted = frozenset(partition_ids)
        self.intake.is_paused = False
        self.poller.paused = self.poller.paused - wanted if wanted else frozenset()
        self.intake.announce()

    def stop(self) -> None:
        """Stop reading."""
        self.intake.is_stopped = True
        self.intake.give_back()
        self.intake.announce()

    async def delete_offset(self, partition_id: int) -> None:
        """Delete a stored offset."""
        await self.seat.request(self.place.delete_offset_command(partition_id))
        ledger = self.book.find(partition_id)
        if ledger is not None:
            ledger.stored = None

    def last_partition(self) -> int | None:
        """Tell the partition of the message that was delivered last."""
        return None if self.intake.ledger is None else self.intake.ledger.partition_id

    def last_handed_out(self, partition_id: int) -> int | None:
        """Tell the offset of the last message of a partition that was delivered."""
        self.handout.close_account()
        ledger = self.book.find(partition_id)
        return None if ledger is None else ledger.handed_out

    # Rejoining the group

    async def _resume_membership(self) -> None:
        """Drop state that another member may have advanced meanwhile.

        The buffer is polled again. Where the stored offset is beyond the position of this
        consumer, it continues from the stored offset.
        """
        self.intake.give_back()
        for partition_id, position in self.positions().items():
            try:
                stored = await self._client.request(self.place.get_offset_command(partition_id))
            except IggyError as error:
                logger.info("%s: reading the stored offsets failed: %s", self.place, error)
                return
            if stored is not None and stored.stored_offset >= position:
                self.intake.lose(partition_id)

    def positions(self) -> dict[int, int]:
        """Tell the offset that is delivered next, for all partitions where it is known."""
        positions = self.cursors.positions()
        if self.intake.buffer:
            first = self.intake.buffer[0]
            positions[first.partition_id] = first.offset
        return positions

    # Background

    async def run_commit_timer(self) -> None:
        """Store offsets at the commit interval, until this is cancelled."""
        seconds = self.options.commit.pulse
        if seconds is None:
            return
        self.handout.trust_host()
        self.commits.is_hosted = True
        while True:
            await anyio.sleep(seconds)
            self.handout.close_account()
            try:
                await self.commits.on_pulse()
            except Exception as error:
                self._remember(error)

    def raise_failure(self) -> None:
        """Raise the failure of the timer task since the last call.

        Raises:
            IggyError: the server refuses to store offsets.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _remember(self, error: Exception) -> None:
        if not isinstance(error, IggyError):
            logger.exception("%s: storing offsets failed", self.place)
            return
        logger.warning("%s: storing offsets failed: %s", self.place, error)
        if not self.is_closed:
            self._failure = error

    # Closing

    async def aclose(self) -> None:
        """Store what is due, leave, and close; a second call does nothing."""
        if self.is_closed:
            return
        self.stop()
        self.is_closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self.close_timeout) as scope:
                await self._settle_and_leave()
            if scope.cancelled_caught:
                logger.warning("%s: closing took longer than %s s", self.place, self.close_timeout)
            self.seat.give_up()
            if self._owns_client:
                await self._client.aclose()

    async def _settle_and_leave(self) -> None:
        self.handout.close_account()
        try:
            await self.commits.finish()
        except IggyError as error:
            logger.warning("%s: the last offsets are not stored: %s", self.place, error)
        await self.seat.leave()
