"""What followers of the metadata are told of members and sessions, and who causes it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from iggy_protocol import (
    ChangeKind,
    ChangesStart,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetMetadataChanges,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    LeaveReason,
    LogoutUser,
    MetadataCursor,
    MetadataGroup,
    SessionReason,
)
from tests.server.simulated.deferred_calls import V0_11, V0_12_2, World, join, settle
from tests.server.simulated.server import open_simulated_server

pytestmark = [pytest.mark.trio, pytest.mark.virtual_time]

OWN = (MetadataGroup.MEMBERS, MetadataGroup.SESSIONS)
K = ChangeKind


class Follower:
    """A client that follows members and sessions, and what it has learned."""

    def __init__(self, client):
        self.client = client
        self.cursor = MetadataCursor()

    async def begin(self):
        self.cursor = (await self._ask(ChangesStart.LATEST)).next_cursor

    async def news(self):
        await settle()
        page = await self.client.ask(
            GetMetadataChanges(ChangesStart.AFTER_CURSOR, self.cursor, groups=OWN)
        )
        self.cursor = page.next_cursor
        return page.changes

    async def _ask(self, start, **fields):
        return await self.client.ask(GetMetadataChanges(start, groups=OWN, **fields))

    async def state(self, limit=1_000):
        await settle()
        items, token = [], b""
        while True:
            page = await self._ask(ChangesStart.CURRENT_STATE, limit=limit, token=token)
            items += page.items
            if not page.has_more:
                return items
            token = page.token


async def follow(world):
    follower = Follower(await world.client(V0_12_2, 1))
    await follower.begin()
    return follower


def kinds(changes):
    return [change.kind for change in changes]


def client_of(peer):
    return int.from_bytes(peer.session.client, "little")


@asynccontextmanager
async def opened(partitions=4):
    async with (
        open_simulated_server(shards_count=2) as server,
        trio.open_nursery() as nursery,
    ):
        world = World(server, nursery, await server.log_in())
        await world.root.ask(CreateStream("s"))
        await world.root.ask(CreateTopic("s", "t", partitions))
        await world.root.ask(CreateConsumerGroup("s", "t", "g"))
        yield world
        await settle()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("dialect", [V0_11, V0_12_2], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("shard_id", [0, 1])
async def test_session_when_it_begins_and_ends_then_followers_are_told(
    autojump_clock, dialect, shard_id
):
    async with opened() as world:
        follower = await follow(world)
        client = await world.client(dialect, shard_id)
        number = client.session.session

        (registered,) = await follower.news()
        assert registered.kind == K.SESSION_REGISTERED
        assert registered.op == number
        assert (registered.body.client_id, registered.body.session) == (client_of(client), number)
        assert registered.body in [item.body for item in await follower.state()]

        await client.ask(LogoutUser())
        (closed,) = await follower.news()
        assert closed.kind == K.SESSION_CLOSED
        assert closed.body.session == number
        assert closed.body.key == registered.body.key
        assert closed.body.reason == SessionReason.LOGOUT
        assert registered.body not in [item.body for item in await follower.state()]


@pytest.mark.parametrize("dialect", [V0_11, V0_12_2], ids=lambda dialect: dialect.name)
async def test_session_when_its_connection_is_lost_then_is_told_to_have_expired(
    autojump_clock, dialect
):
    async with opened() as world:
        follower = await follow(world)
        client = await world.client(dialect, 1)
        await client.aclose()
        await settle()
        if dialect is V0_12_2:
            await trio.sleep(40)

        *_, closed = await follower.news()

        assert closed.kind == K.SESSION_CLOSED
        assert closed.body.reason == SessionReason.EXPIRED


@pytest.mark.parametrize("dialect", [V0_11, V0_12_2], ids=lambda dialect: dialect.name)
async def test_members_when_they_come_and_go_then_followers_are_told(autojump_clock, dialect):
    async with opened() as world:
        follower = await follow(world)
        first, second = [await world.client(dialect, shard_id) for shard_id in (0, 1)]
        await follower.news()

        await join(first)
        (joined,) = await follower.news()
        assert joined.kind == K.MEMBER_JOINED
        assert joined.body.client_id == client_of(first)
        assert (joined.body.members_count, joined.body.partitions) == (1, (0, 1, 2, 3))

        await join(second)
        (joined,) = await follower.news()
        assert (joined.body.members_count, len(joined.body.partitions)) == (2, 2)
        details = await world.root.ask(GetConsumerGroup("s", "t", "g"))
        assert {one.id: one.partitions for one in details.members} == {
            item.body.member_id: item.body.partitions
            for item in await follower.state()
            if item.group == MetadataGroup.MEMBERS
        }

        await first.ask(LeaveConsumerGroup("s", "t", "g"))
        left, *moved = await follower.news()
        assert left.kind == K.MEMBER_LEFT
        assert (left.body.client_id, left.body.members_count) == (client_of(first), 1)
        assert left.body.reason == LeaveReason.LEFT
        assert kinds(moved) == [K.PARTITION_HANDED_OVER] * 2
        assert {one.body.member_id for one in moved} == {joined.body.member_id}

        client_id = client_of(second)
        await second.ask(LogoutUser())
        left, *moved, closed = await follower.news()
        assert left.body.reason == LeaveReason.SESSION_ENDED
        assert left.body.client_id == client_id
        assert [one.body.member_id for one in moved] == [None] * 4
        assert closed.kind == K.SESSION_CLOSED


async def test_classic_member_when_its_connection_is_lost_then_followers_are_told(autojump_clock):
    async with opened() as world:
        follower = await follow(world)
        classic = await world.server.log_in(1)
        await classic.ask(JoinConsumerGroup("s", "t", "g"))
        (joined,) = await follower.news()
        await classic.aclose()

        left, *_ = await follower.news()

        assert left.kind == K.MEMBER_LEFT
        assert left.body.client_id == joined.body.client_id
        assert left.body.reason == LeaveReason.SESSION_ENDED


async def test_group_when_deleted_then_its_members_are_not_told_one_by_one(autojump_clock):
    async with opened() as world:
        follower = await follow(world)
        await join(await world.client())
        await follower.news()

        await world.root.ask(DeleteConsumerGroup("s", "t", "g"))

        assert await follower.news() == ()
        assert all(item.group != MetadataGroup.MEMBERS for item in await follower.state())


async def test_state_when_read_in_small_pages_then_has_each_member_and_session_once(autojump_clock):
    async with opened() as world:
        follower = await follow(world)
        await world.root.ask(CreateConsumerGroup("s", "t", "h"))
        for _ in range(5):
            client = await world.client()
            await join(client)
            await join(client, "h")

        whole = await follower.state()

        assert len(whole) == 10 + 6
        for limit in (1, 2, 3, 7):
            assert await follower.state(limit) == whole
