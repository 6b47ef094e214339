"""Changes of the metadata that fail half-way, at every step: they are everywhere, or nowhere."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from iggy_protocol import (
    ChangePassword,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    GetConsumerGroups,
    GetPersonalAccessTokens,
    GetStreams,
    GetTopics,
    GetUser,
    GetUsers,
    LoginUser,
    Partitioning,
    Permissions,
    PollingStrategy,
    PollMessages,
    PurgeStream,
    PurgeTopic,
    SendMessages,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan, Verb
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import (
    Client,
    ConnectionLost,
    Refused,
    SimulatedServer,
    open_simulated_server,
)

if TYPE_CHECKING:
    from iggy_protocol import Command

pytestmark = pytest.mark.trio

SHARDS = 2
PARTITIONS = 2
# Longer than it takes until what was refused is tried again.
LATER_S = 3
STEPS_ALL = 8
# With this level a power failure takes no message along, so that all there is can be compared.
SAFELY = {"SYSTEM_PARTITION_ACK": "fsync"}

COMMANDS: list[Command[Any]] = [
    CreateStream("new"),
    UpdateStream("s", "renamed"),
    PurgeStream("s"),
    DeleteStream("s"),
    CreateTopic("s", "new", 2),
    UpdateTopic("s", "t", "renamed"),
    PurgeTopic("s", "t"),
    DeleteTopic("s", "t"),
    CreatePartitions("s", "t", 2),
    DeletePartitions("s", "t", 1),
    CreateConsumerGroup("s", "t", "new"),
    DeleteConsumerGroup("s", "t", "g"),
    CreateUser("new", "secret", UserStatus.ACTIVE),
    UpdateUser("user", "renamed"),
    UpdatePermissions("user", Permissions()),
    ChangePassword("user", "secret", "changed"),
    DeleteUser("user"),
    CreatePersonalAccessToken("new"),
    DeletePersonalAccessToken("token"),
]
NAMES = [type(command).__name__ for command in COMMANDS]


class NoThreads(FaultPlan):
    """Where the disk would fail, the process gets no thread to ask it."""

    def error(self, verb: Verb, path: str) -> int | None:
        """Fail as no disk does."""
        if super().error(verb, path) is not None:
            raise RuntimeError("can't start new thread")
        return None


async def fill(client: Client) -> None:
    """Make one of everything."""
    await client.ask(CreateStream("s"))
    await client.ask(CreateTopic("s", "t", PARTITIONS))
    for number in range(PARTITIONS):
        await client.ask(SendMessages("s", "t", Partitioning.partition(number), [b"message"]))
    await client.ask(CreateConsumerGroup("s", "t", "g"))
    await client.ask(CreateUser("user", "secret", UserStatus.ACTIVE))
    await client.ask(CreatePersonalAccessToken("token"))


async def exists(client: Client) -> list[Any]:
    """List what there is, as one shard sees it, without a look at partitions."""
    seen: list[Any] = []
    for stream in await client.ask(GetStreams()):
        seen.append(stream.name)
        for topic in await client.ask(GetTopics(stream.id)):
            groups = await client.ask(GetConsumerGroups(stream.id, topic.id))
            seen.append((topic.name, topic.partitions_count, [group.name for group in groups]))
    for user in await client.ask(GetUsers()):
        details = await client.ask(GetUser(user.id))
        assert details is not None
        seen.append((user.username, details.permissions))
    seen.append([token.name for token in await client.ask(GetPersonalAccessTokens())])
    return seen


async def holds(world: SimulatedServer) -> list[Any]:
    """List all there is: every shard has to agree, and every partition to serve."""
    seen: list[Any] = []
    for shard_id in range(SHARDS):
        client = await world.log_in(shard_id)
        seen.append(await exists(client))
        for stream in await client.ask(GetStreams()):
            for topic in await client.ask(GetTopics(stream.id)):
                for number in range(topic.partitions_count):
                    start = PollingStrategy.first()
                    read = PollMessages(
                        ConsumerIdentity.single(1), stream.id, topic.id, start, 9, number
                    )
                    polled = await client.ask(read)
                    seen[-1].append((number, polled.messages.payloads()))
        for secret in ("secret", "changed"):
            with suppress(Refused):
                await world.connect(shard_id).ask(LoginUser("user", secret))
                seen[-1].append(secret)
    assert seen[0] == seen[1], "shards disagree"
    return seen[0]


async def can_send(world: SimulatedServer) -> None:
    """Insist that every partition takes messages."""
    client = await world.log_in()
    for stream in await client.ask(GetStreams()):
        for topic in await client.ask(GetTopics(stream.id)):
            for number in range(topic.partitions_count):
                to = Partitioning.partition(number)
                await client.ask(SendMessages(stream.id, topic.id, to, [b"more"]))


async def outcomes(command: Command[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return what there is before and after a command that nothing disturbs."""
    async with open_simulated_server(shards_count=SHARDS) as world:
        client = await world.log_in()
        await fill(client)
        before = await exists(client), await holds(world)
        await client.ask(command)
        return *before, await exists(client), await holds(world)


@pytest.mark.parametrize("plan_kind", [FaultPlan, NoThreads])
@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
async def test_change_when_any_step_of_it_fails_then_all_shards_agree_with_the_answer(
    command, plan_kind, autojump_clock
):
    listed_before, before, listed_after, after = await outcomes(command)
    is_done = False
    # The first steps are the log's, each of them; the others are alike.
    for step in chain(range(1, STEPS_ALL), count(STEPS_ALL, 3)):
        plan = plan_kind(seed=step)
        storage = SimulatedStorage(plan)
        async with open_simulated_server(storage, shards_count=SHARDS) as world:
            await fill(await world.log_in())
            clients = [await world.log_in(shard_id) for shard_id in range(SHARDS)]
            rule = plan.fail("*", at=step)
            is_done = True
            try:
                await clients[step % SHARDS].ask(command)
            except Refused:
                is_done = False
            plan.heal()
            for client in clients:
                assert await exists(client) == (listed_after if is_done else listed_before)
            await trio.sleep(LATER_S)
            expected = after if is_done else before
            assert await holds(world) == expected
        async with open_simulated_server(storage, shards_count=SHARDS) as world:
            assert await holds(world) == expected
            await can_send(world)
        if not rule.applied_count:
            break
    assert is_done


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
async def test_change_when_the_machine_ends_at_any_step_then_it_is_whole_or_not_there(
    command, autojump_clock
):
    _, before, _, after = await outcomes(command)
    for step in count():
        answered, left = await ended(SimulatedStorage(FaultPlan(seed=step)), command, step + 0.5)
        left.plan.heal()
        async with open_simulated_server(left, shards_count=SHARDS) as world:
            found = await holds(world)
            assert found == after or (found == before and not answered)
            await can_send(world)
        if answered:
            break


async def ended(
    storage: SimulatedStorage, command: Command[Any], after_s: float
) -> tuple[bool, SimulatedStorage]:
    """Carry out a command on a slow disk until the power fails; tell whether it was answered."""
    answered: list[bool] = []
    left: list[SimulatedStorage] = []

    async def ask(client: Client) -> None:
        with suppress(Refused, ConnectionLost):
            await client.ask(command)
            answered.append(True)

    # A server whose disk is gone does not end in order.
    with suppress(BaseExceptionGroup):
        async with open_simulated_server(storage, shards_count=SHARDS, settings=SAFELY) as world:
            client = await world.log_in()
            await fill(client)
            storage.plan.delay("*", seconds=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, client)
                await trio.sleep(after_s)
                left.append(storage.crash())
                nursery.cancel_scope.cancel()
    return bool(answered), left[0]
