"""Statistics of partitions and clients, gathered from all shards.

Each shard reports its own; the calling shard puts the parts together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from iggy_protocol import Transport
from iggy_ref_server.handlers.office import Figures
from iggy_ref_server.partitions import PartitionStatistics
from iggy_ref_server.session import Session
from iggy_ref_server.shard import letters
from iggy_ref_server.shard.directory import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_ref_server.clients import Clients
    from iggy_ref_server.shard.directory import PartitionDirectory
    from iggy_ref_server.shard.wall import Hatch

__all__ = ["Census", "caller_of", "session_of"]


def caller_of(session: Session) -> letters.Caller:
    """Describe a session for another shard."""
    return letters.Caller(
        session.client_id,
        session.address,
        session.transport,
        session.user_id,
        session.user_incarnation,
        session.is_evicted,
    )


def session_of(caller: letters.Caller) -> Session:
    """Make a session from the description by another shard."""
    return Session(
        client_id=caller.client_id,
        address=caller.address,
        transport=Transport(caller.transport),
        user_id=caller.user_id,
        user_incarnation=caller.user_incarnation,
        is_evicted=caller.is_evicted,
    )


class Census:
    """Gathers statistics and clients of all shards.

    Args:
        directory: the partitions of this shard.
        clients: the clients of this shard.
        hatches: the channels to the other shards.
    """

    def __init__(
        self, directory: PartitionDirectory, clients: Clients, hatches: Mapping[int, Hatch]
    ) -> None:
        self._directory = directory
        self._clients = clients
        self._hatches = hatches

    # This shard

    def own_totals(self) -> letters.Totals:
        """Return the statistics of the partitions of this shard."""
        return letters.Totals(
            tuple((*key, *partition.statistics()) for key, partition in self._directory)
        )

    def own_clients(self) -> letters.Clients:
        """Return the clients of this shard that are not evicted."""
        sessions = (client.session for client in self._clients)
        return letters.Clients(
            tuple(caller_of(session) for session in sessions if not session.is_evicted)
        )

    # All shards

    async def figures(self) -> Figures:
        found = Figures()
        for totals in [self.own_totals(), *await self._ask_all(letters.Totals())]:
            assert isinstance(totals, letters.Totals)
            for row in totals.partitions:
                found[PartitionKey(*row[:3])] = PartitionStatistics(*row[3:])
        return found

    async def sessions(self) -> list[Session]:
        found: list[Session] = []
        for clients in [self.own_clients(), *await self._ask_all(letters.Clients())]:
            assert isinstance(clients, letters.Clients)
            found += map(session_of, clients.clients)
        return found

    async def _ask_all(self, question: letters.Letter) -> list[letters.Letter]:
        answers: list[letters.Letter] = []

        async def ask(hatch: Hatch) -> None:
            answers.append((await hatch.ask(question))[0])

        async with trio.open_nursery() as nursery:
            for hatch in self._hatches.values():
                nursery.start_soon(ask, hatch)
        return answers
