"""Polls of the official client: several partitions for a member of a group, and contexts.

A server of 0.8 chooses the partition of a group's member. Later servers want it named, so the
client asks which partitions are its own, and polls them in turn until one has messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from iggy_protocol import ConsumerKind, Identifier, PollMessages
from iggy_sdk.compat.messages import ReceiveMessage
from iggy_sdk.errors import NotAMemberError
from iggy_sdk.hooks import Hooks
from iggy_sdk.pipeline import Pipeline

if TYPE_CHECKING:
    from iggy_protocol import PartitionContext
    from iggy_sdk.client import IggyClient as OwnClient

TURNS_MAX: Final = 1_024
"""Groups whose turns are remembered; a forgotten one begins with its first partition again."""


class Poller:
    """Polls for a client.

    Args:
        client: sends the polls.
    """

    def __init__(self, client: OwnClient) -> None:
        self._client = client
        options = client.options
        self._pipeline: Pipeline[bytes] = Pipeline(
            encryptor=options.encryptor, hooks=Hooks(options.hooks)
        )
        self._turns: dict[tuple[Identifier, Identifier, Identifier], int] = {}

    async def poll(
        self, command: PollMessages, context: PartitionContext | None
    ) -> list[ReceiveMessage]:
        """Poll one partition, or those of a member of a group until one has messages.

        Raises:
            NotAMemberError: the client has not joined the group.
            IggyError: the server refuses.
        """
        is_member = command.consumer.kind is ConsumerKind.GROUP and command.partition_id is None
        if is_member and self._client.dialect.is_vsr:
            return await self._poll_in_turn(command)
        polled = await self._client.request(command, context=context)
        batch = self._pipeline.batch(polled, stream=command.stream, topic=command.topic)
        return [ReceiveMessage(message, polled.context) for message in batch]

    async def _poll_in_turn(self, command: PollMessages) -> list[ReceiveMessage]:
        place = command.stream, command.topic, command.consumer.id
        assignment = await self._client.sync_consumer_group(*place)
        if assignment is None:
            raise NotAMemberError(f"this client is not a member of group {command.consumer.id!r}")
        partitions = assignment.partitions
        first = self._turns.get(place, 0)
        for turn in range(first, first + len(partitions)):
            partition_id = partitions[turn % len(partitions)]
            self._remember(place, turn + 1)
            messages = await self.poll(replace(command, partition_id=partition_id), None)
            if messages:
                return messages
        return []

    def _remember(self, place: tuple[Identifier, Identifier, Identifier], turn: int) -> None:
        if len(self._turns) >= TURNS_MAX and place not in self._turns:
            del self._turns[next(iter(self._turns))]
        self._turns[place] = turn
