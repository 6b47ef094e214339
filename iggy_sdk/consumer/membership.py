"""The seat of a consumer: membership in its group, kept through reconnects, or no seat at all.

Membership belongs to a connection. When the client has another one, or the server knows of no
membership, the group is joined again before the next request. Whoever holds state that the old
membership stood for is told through ``on_rejoin``.

Owns joining and leaving. Knows nothing of polls and offsets.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio

from iggy_protocol import CreateConsumerGroup, JoinConsumerGroup, LeaveConsumerGroup
from iggy_sdk.consumer.patience import Patience
from iggy_sdk.errors import (
    ConfigurationError,
    ConsumerGroupExists,
    ConsumerGroupNotFound,
    IggyError,
    NotAMember,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import Command, Identifier
    from iggy_sdk.door import ClientDoor

__all__ = ["Independence", "Membership", "Seat", "Withdrawn"]

R = TypeVar("R")

logger = logging.getLogger("iggy_sdk.consumer")

REJOINS_MAX: Final = 5
"""How often one request may find the membership gone; more means that somebody evicts us."""

RETRY_SECONDS_MAX: Final = 5.0
"""The longest wait between two attempts to join."""

_seats: WeakKeyDictionary[ClientDoor, set[tuple[Identifier, ...]]] = WeakKeyDictionary()
"""Which groups each client is in through consumers of ours, so that none is joined twice."""


class Withdrawn(Exception):
    """A request is not wanted any more, now that the membership is another one."""


def _always() -> bool:
    return True


class Seat(Protocol):
    """How a consumer sends requests that may need a membership."""

    async def request(self, command: Command[R], wanted: Callable[[], bool] = _always) -> R:
        """Send a command, if it is still wanted when its time has come, and return the answer."""

    async def take(self) -> None:
        """Begin."""

    async def leave(self) -> None:
        """End, as politely as the connection allows."""

    def give_up(self) -> None:
        """End without a word."""

    @property
    def joins_count(self) -> int:
        """How often a group was joined."""


class Independence:
    """A consumer that belongs to no group, or that joins and leaves by itself."""

    joins_count = 0

    def __init__(self, client: ClientDoor) -> None:
        self._client = client

    async def request(self, command: Command[R], wanted: Callable[[], bool] = _always) -> R:
        """Send a command, if it is wanted, and return the answer."""
        if not wanted():
            raise Withdrawn
        return await self._client.request(command)

    async def take(self) -> None:
        """Do nothing: there is nothing to join."""

    async def leave(self) -> None:
        """Do nothing: there is nothing to leave."""

    def give_up(self) -> None:
        """Do nothing: there is nothing to give up."""


async def _nothing() -> None:
    """Be told of a new membership, and hold nothing that depends on it."""


class Membership:
    """A seat in a group.

    Args:
        client: whose connection is the member.
        stream: where the group is.
        topic: where the group is.
        group: the group.
        create: whether a missing group is made.
    """

    def __init__(
        self,
        client: ClientDoor,
        *,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        create: bool,
    ) -> None:
        self.on_rejoin: Callable[[], Awaitable[None]] = _nothing
        self.joins_count = 0
        self._client = client
        self._stream, self._topic, self._group = stream, topic, group
        self._create = create
        self._key = (stream, topic, group)
        # The epoch of the connection that is a member, if any is.
        self._epoch: int | None = None
        self._joining = anyio.Lock()

    async def take(self) -> None:
        """Join the group, which is made if need be.

        Raises:
            ConfigurationError: another consumer of this client is in the group already.
            ConsumerGroupNotFound: there is no such group and none may be made.
            IggyError: the server refuses.
        """
        seats = _seats.setdefault(self._client, set())
        if self._key in seats:
            raise ConfigurationError(
                f"two consumers of group {self._group!r} on one connection are one member",
                advice="Leave connection='shared' away, so that each has a connection of its own.",
            )
        seats.add(self._key)
        try:
            await self._join()
        except BaseException:
            self.give_up()
            raise

    async def request(self, command: Command[R], wanted: Callable[[], bool] = _always) -> R:
        """Send a command as a member, joining again when the membership is gone.

        Args:
            command: what to ask.
            wanted: asked before each attempt; what an old membership stood for may be over.

        Raises:
            Withdrawn: it is not wanted any more.
            IggyError: whatever the server answered.
        """
        for attempt in itertools.count():
            await self._ensure()
            if not wanted():
                raise Withdrawn
            joins = self.joins_count
            try:
                return await self._client.request(command)
            except (NotAMember, ConsumerGroupNotFound) as error:
                if attempt >= REJOINS_MAX:
                    raise
                logger.info("group %r knows us no more, joining again: %s", self._group, error)
                if self.joins_count == joins:
                    self._epoch = None
        raise AssertionError("counting has no end")

    async def leave(self) -> None:
        """Leave the group; a connection that is gone has left already."""
        was_member = self._epoch is not None and self._epoch == self._client.epoch
        self._epoch = None
        try:
            if was_member and self._client.is_connected:
                command = LeaveConsumerGroup(self._stream, self._topic, self._group)
                await self._client.request(command)
        except IggyError as error:
            logger.info("leaving group %r failed, the server will notice: %s", self._group, error)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Let others of this client take the seat."""
        _seats.get(self._client, set()).discard(self._key)

    async def _ensure(self) -> None:
        if self._epoch == self._client.epoch:
            return
        async with self._joining:
            if self._epoch == self._client.epoch:
                return
            again = self.joins_count > 0
            await self._join()
            if again:
                logger.info("joined group %r again", self._group)
                await self.on_rejoin()

    async def _join(self) -> None:
        """Join, with patience; the epoch is that of the connection that the answer came on."""
        patience = Patience(
            self._client.options,
            longest=RETRY_SECONDS_MAX,
            what=f"joining group {self._group!r}",
        )
        while True:
            try:
                await self._join_once()
            except IggyError as error:
                await self._bear(patience, error)
            else:
                self._epoch = self._client.epoch
                self.joins_count += 1
                return

    async def _bear(self, patience: Patience, error: IggyError) -> None:
        try:
            await patience.bear(error)
        except IggyError:
            # Nobody else shall begin anew with this.
            error.retriable = False
            raise

    async def _join_once(self) -> None:
        join = JoinConsumerGroup(self._stream, self._topic, self._group)
        try:
            await self._client.request(join)
        except ConsumerGroupNotFound:
            if not self._create or not isinstance(self._group, str):
                raise
            await self._make_group(self._group)
            await self._client.request(join)

    async def _make_group(self, name: str) -> None:
        try:
            await self._client.request(CreateConsumerGroup(self._stream, self._topic, name))
        except ConsumerGroupExists:
            logger.debug("somebody else made group %r first", name)
