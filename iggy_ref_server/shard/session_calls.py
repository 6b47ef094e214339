"""The sessions of the wire from 0.9 on, as every shard reaches them: both ends of each call.

The table is on shard 0, which gives out the numbers. ``LocalSessions`` uses it directly there;
``RemoteSessions`` has the same methods and calls shard 0. When a session ends, each shard ends it
on the connections that are bound to it, and ends what they wait for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.sessions.table import (
    BoundSession,
    NewSession,
    SessionEnd,
    SessionRecord,
    SessionTable,
)
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.calls import describe_request, restore_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.clients import ClientTable
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.dispatch.deferred_slots import DeferredSlots
    from iggy_ref_server.groups.group import GroupRegistry
    from iggy_ref_server.metadata.position import MetadataPosition
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.sessions.receipts import ReplyReceipts
    from iggy_ref_server.shard.channel import ShardChannel
    from iggy_ref_server.shard.membership_reports import MembershipReports


def end_on_this_shard(clients: ClientTable, deferred: DeferredSlots, number: int) -> None:
    """End a session on its connections of this shard; their next requests find none."""
    for client in clients:
        binding = client.session.binding
        if binding is not None and binding.session == number:
            client.session.log_out()
    deferred.end_session(number)


class LocalSessions:
    """The sessions, on shard 0.

    Args:
        position: raised by each login.
        clock: tells when a session was left.
        registry: the groups that sessions are members of.
        end_here: ends a session on its connections of this shard.
        channels: the channels to the other shards.

    Attributes:
        table: the sessions.
        reports: told of sessions that begin and end.
    """

    reports: MembershipReports

    def __init__(
        self,
        position: MetadataPosition,
        clock: Clock,
        registry: GroupRegistry,
        end_here: Callable[[int], None],
        channels: Mapping[int, ShardChannel],
    ) -> None:
        self.table = SessionTable(self._on_end)
        self._position = position
        self._clock = clock
        self._registry = registry
        self._end_here = end_here
        self._channels = channels

    async def register(self, new: NewSession) -> int:
        return self.begin(new).session

    async def bind(self, client: bytes, number: int, secret_hash: bytes) -> BoundSession:
        return self.table.bind(client, number, secret_hash).bound

    def release(self, number: int) -> None:
        self.table.release(number, self._clock.now_us())

    async def check(self, number: int, on_alive: Callable[[], None]) -> None:
        self.require(number)
        on_alive()

    def require(self, number: int) -> None:
        """Raise a ``ServerFault`` if a session has ended."""
        if self.table.find(number) is None:
            raise ServerFault(StatusCode.UNAUTHENTICATED, f"session {number} has ended")

    async def log_out(self, number: int) -> None:
        session = self.table.find(number)
        if session is None:
            return
        self.table.log_out(number)
        if session.connections_count > 1:
            await self._end_everywhere(number)

    def receipts(self, number: int) -> ReplyReceipts | None:
        session = self.table.find(number)
        return None if session is None else session.receipts

    def begin(self, new: NewSession) -> BoundSession:
        """Begin a session, or return the one that the same login has begun."""
        newest = self._position.current
        # A login raises the position as a change does, so the number is never given out again.
        session = self.table.register(new, self._position.advance)
        if session.number > newest:
            self.reports.note_registered(session)
        return session.bound

    def expire(self) -> None:
        self.table.expire(self._clock.now_us())

    def follow_user(self, metadata: Metadata, user_id: int) -> None:
        """End the sessions of a user who was deleted, replaced or deactivated."""

        def may_stay(new: NewSession) -> bool:
            user = metadata.find_user(new.user_id)
            return user is not None and user.is_active and user.generation == new.user_generation

        self.table.revoke(user_id, may_stay)

    def _on_end(self, session: SessionRecord, why: SessionEnd) -> None:
        self._registry.remove_member(session.member_id)
        self.reports.note_closed(session, why)
        if not session.connections_count:
            return
        self._end_here(session.number)
        if why is not SessionEnd.LOGOUT:
            for channel in self._channels.values():
                channel.call_nowait(
                    messages.SessionEndedCall(session.number), (), lambda reply, payload: None
                )

    async def _end_everywhere(self, number: int) -> None:
        """Wait until no shard takes requests of a session any more, as a client that logs out."""

        async def call(channel: ShardChannel) -> None:
            # A shard that has ended has no connections.
            with suppress(ServerFault):
                await channel.call(messages.SessionEndedCall(number))

        async with trio.open_nursery() as nursery:
            for channel in self._channels.values():
                nursery.start_soon(call, channel)


class RemoteSessions:
    """The sessions, from every other shard."""

    def __init__(self, channel: ShardChannel) -> None:
        self._channel = channel

    async def register(self, new: NewSession) -> int:
        reply, _ = await self._channel.call(
            messages.RegisterCall(
                new.client_id,
                describe_request(new.request_id),
                new.user_id,
                new.user_generation,
                new.secret_hash,
            )
        )
        assert isinstance(reply, messages.SessionReply)
        return reply.session

    async def bind(self, client: bytes, number: int, secret_hash: bytes) -> BoundSession:
        reply, _ = await self._channel.call(messages.BindCall(client, number, secret_hash))
        assert isinstance(reply, messages.SessionReply)
        return BoundSession(reply.session, reply.user_id, reply.user_generation)

    def release(self, number: int) -> None:
        self._channel.call_nowait(
            messages.ReleaseSessionCall(number), (), lambda reply, payload: None
        )

    async def check(self, number: int, on_alive: Callable[[], None]) -> None:
        await self._channel.call(
            messages.CheckSessionCall(number), on_reply=lambda reply: on_alive()
        )

    async def log_out(self, number: int) -> None:
        await self._channel.call(messages.LogOutCall(number))

    def receipts(self, number: int) -> ReplyReceipts | None:
        raise AssertionError("requests that have receipts are answered on shard 0")

    def expire(self) -> None:
        raise AssertionError("sessions expire on shard 0")


# Shard 0


def register_session(
    sessions: LocalSessions, message: messages.RegisterCall
) -> messages.ShardMessage:
    """Begin a session for a client of another shard."""
    new = NewSession(
        message.client_id,
        restore_request(message.request_info),
        message.user_id,
        message.user_generation,
        message.secret_hash,
    )
    return messages.SessionReply(*sessions.begin(new))


def bind_session(sessions: LocalSessions, message: messages.BindCall) -> messages.ShardMessage:
    """Bind a connection of another shard."""
    session = sessions.table.bind(message.client, message.session, message.secret_hash)
    return messages.SessionReply(*session.bound)


def release_session(
    sessions: LocalSessions, message: messages.ReleaseSessionCall
) -> messages.ShardMessage:
    """Note that a connection of another shard has gone."""
    sessions.release(message.session)
    return messages.DONE_REPLY


def check_session(
    sessions: LocalSessions, message: messages.CheckSessionCall
) -> messages.ShardMessage:
    """Tell another shard whether a session has not ended."""
    sessions.require(message.session)
    return messages.DONE_REPLY
