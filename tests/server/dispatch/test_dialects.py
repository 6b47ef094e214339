"""Commands and replies about metadata in every dialect, through the dispatcher of a whole shard."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    CLASSIC,
    NEVER_EXPIRES,
    NO_OPTIONS,
    V0_11,
    V0_12_0,
    V0_12_2,
    ChangeKind,
    ChangesStart,
    ChangesStatus,
    CompressionAlgorithm,
    CreateStream,
    CreateTopic,
    CreateUser,
    DescribeOptions,
    Dialect,
    GetClusterMetadata,
    GetMetadataChanges,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    GetUser,
    GetUsers,
    GlobalPermissions,
    MetadataCursor,
    MetadataGroup,
    NodeRole,
    Options,
    OptionScope,
    OptionValue,
    PartitionContext,
    Permissions,
    PurgeTopic,
    StatusCode,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.session import SessionEnded
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.dispatch.dialect_client import DialectClient
from tests.server.simulated.server import Refused, open_simulated_server

pytestmark = pytest.mark.trio

VSR = (V0_11, V0_12_0, V0_12_2)
SINCE_0_12 = (V0_12_0, V0_12_2)
OPTIONS = Options({"segment_size": "2 MiB", "durability": "persisted"})


@pytest.mark.parametrize("dialect", VSR)
async def test_topic_when_created_with_options_then_every_reply_tells_them(dialect, autojump_clock):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], dialect)
        await client.ask(CreateStream("s"))

        created = await client.ask(CreateTopic("s", "t", 2, options=OPTIONS))

        assert created.options == Options(
            {"durability": "persisted", "segment_size": OptionValue.uint64(2 << 20)}
        )
        assert created.derived_options["message_expiry"].value == NEVER_EXPIRES
        assert created.message_expiry_us == NEVER_EXPIRES
        shown = await client.ask(GetTopic("s", "t"))
        assert shown is not None
        (listed,) = await client.ask(GetTopics("s"))
        stream = await client.ask(GetStream("s"))
        assert stream is not None
        for topic in (shown, listed, *stream.topics):
            assert topic.options == created.options
            assert topic.derived_options == created.derived_options


@pytest.mark.parametrize("dialect", SINCE_0_12)
async def test_partitions_when_shown_then_have_their_incarnation_and_the_position(
    dialect, autojump_clock
):
    async with open_simulated_server() as server:
        client, classic = [
            await DialectClient.log_in(server.shards[0], one) for one in (dialect, CLASSIC)
        ]
        await client.ask(CreateStream("s"))
        created = await client.ask(CreateTopic("s", "t", 2))
        await classic.ask(PurgeTopic("s", "t"))

        shown = await client.ask(GetTopic("s", "t"))

        assert shown is not None
        for before, now in zip(created.partitions, shown.partitions, strict=True):
            assert before.context.incarnation != now.context.incarnation
            assert now.context == PartitionContext(now.context.incarnation, 0, client.position)
            replicas = (0,) if dialect is V0_12_2 else ()
            assert (now.replicas, now.in_sync_replicas) == (replicas, replicas)


async def test_position_when_metadata_change_then_rises_by_one_for_each(autojump_clock):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        start = client.position

        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        with pytest.raises(Refused):
            await client.ask(CreateStream("s"))

        assert client.position == start + 2


@pytest.mark.parametrize("dialect", VSR)
async def test_classic_client_when_a_topic_has_options_then_sees_a_topic_as_always(
    dialect, autojump_clock
):
    async with open_simulated_server() as server:
        client, classic = [
            await DialectClient.log_in(server.shards[0], one) for one in (dialect, CLASSIC)
        ]
        await client.ask(CreateStream("s"))
        command = CreateTopic("s", "t", 1, CompressionAlgorithm.GZIP, 5_000_000, options=OPTIONS)
        created = await client.ask(command)

        shown = await classic.ask(GetTopic("s", "t"))

        assert shown is not None
        assert (shown.compression, shown.message_expiry_us) == (
            CompressionAlgorithm.GZIP,
            5_000_000,
        )
        assert shown.options == shown.derived_options == NO_OPTIONS
        assert shown.partitions[0].context == PartitionContext()
        assert shown.created_at_us == created.created_at_us


async def test_classic_label_when_other_dialects_ask_then_the_topic_has_one_copy(autojump_clock):
    async with open_simulated_server() as server:
        classic = await DialectClient.log_in(server.shards[0], CLASSIC)
        await classic.ask(CreateStream("s"))
        await classic.ask(CreateTopic("s", "t", 1, replication_factor=3))

        copies = [
            (await (await DialectClient.log_in(server.shards[0], dialect)).ask(GetTopics("s")))[0]
            for dialect in Dialect
        ]

        assert [topic.replication_factor for topic in copies] == [3, 1, 1, 1]
        assert copies[-1].derived_options["replication_factor"].value == 1


@pytest.mark.parametrize("dialect", SINCE_0_12)
async def test_streams_and_users_when_shown_then_tell_what_the_server_chose(
    dialect, autojump_clock
):
    source = Options({"encryption_key_source": "none"})
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], dialect)
        created = await client.ask(CreateStream("s"))
        user = await client.ask(CreateUser("joe", "secret"))

        assert created.derived_options == source
        assert [one.derived_options for one in await client.ask(GetStreams())] == [source]
        assert user.options == user.derived_options == NO_OPTIONS
        assert len(await client.ask(GetUsers())) == 2
        assert await client.ask(GetUser("joe")) == user


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({}, "none"),
        (
            {
                "SYSTEM_ENCRYPTION_ENABLED": "true",
                "SYSTEM_ENCRYPTION_KEY": "//////////////////////////////////////////8=",
            },
            "server",
        ),
    ],
)
async def test_stream_when_the_server_encrypts_then_its_key_is_the_source(
    settings, source, autojump_clock
):
    async with open_simulated_server(settings=settings) as server:
        created = await (await DialectClient.log_in(server.shards[0], V0_12_2)).ask(
            CreateStream("s")
        )

        assert created.derived_options["encryption_key_source"].value == source


@pytest.mark.parametrize(
    ("dialect", "command", "status"),
    [
        (V0_11, CreateTopic("s", "x", 1, options=Options({"bogus": "1"})), 4041),
        (V0_12_2, CreateTopic("s", "x", 1, options=Options({"segment_size": 1})), 4042),
        (V0_12_0, CreateStream("x", options=Options({"encryption_key": b"k" * 32})), 4106),
        (V0_12_0, UpdateUser(0, "joe"), StatusCode.ROOT_USER_IMMUTABLE),
        (V0_12_2, UpdateTopic("s", "t", "t", reset=frozenset({"durability"})), 4104),
    ],
)
async def test_command_when_refused_then_the_status_is_that_of_the_plan(
    dialect, command, status, autojump_clock
):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], dialect)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        if isinstance(command, UpdateTopic):
            command = UpdateTopic("s", "t", None, None, None, None, None, reset=command.reset)

        with pytest.raises(Refused) as refused:
            await client.ask(command)

        assert refused.value.status == status


async def test_options_block_when_too_large_then_status_says_so(autojump_clock):
    entries = b"".join(
        b"\2\4\0\0\0" + f"{number:04}".encode() + b"\2\1\0\0\0x" for number in range(1025)
    )
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        reply = await client.send_body(CreateStream("s"), entries)

    assert reply.status == StatusCode.OPTIONS_TOO_LARGE


@pytest.mark.parametrize("dialect", SINCE_0_12)
async def test_user_when_set_to_inactive_then_its_sessions_end(dialect, autojump_clock):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], dialect)
        await client.ask(CreateUser("joe", "secret"))
        joe = await DialectClient.log_in(server.shards[0], dialect, "joe")
        assert await joe.ask(GetUser("joe"))

        await client.ask(UpdateUser("joe", status=UserStatus.INACTIVE))

        with pytest.raises(Refused) as refused:
            await joe.ask(GetUser("joe"))
        assert refused.value.status == StatusCode.UNAUTHENTICATED
        assert not isinstance(refused.value, SessionEnded)


async def test_options_when_the_server_starts_again_then_are_the_same(autojump_clock):
    storage = SimulatedStorage()
    async with open_simulated_server(storage) as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1, options=OPTIONS))
        before, position = await client.ask(GetTopics("s")), client.position

    async with open_simulated_server(storage) as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)

        assert await client.ask(GetTopics("s")) == before
        assert client.position >= position


async def test_options_when_another_shard_is_asked_then_are_the_same(autojump_clock):
    async with open_simulated_server(shards_count=2) as server:
        writer, reader = [await DialectClient.log_in(shard, V0_12_2) for shard in server.shards]
        await writer.ask(CreateStream("s"))
        created = await writer.ask(CreateTopic("s", "t", 1, options=OPTIONS))

        (shown,) = await reader.ask(GetTopics("s"))

        assert shown.options == created.options
        assert reader.position == writer.position


@pytest.mark.parametrize("dialect", VSR)
async def test_descriptions_when_asked_then_are_those_of_the_dialect(dialect, autojump_clock):
    async with open_simulated_server(settings={"SYSTEM_SEGMENT_SIZE": "4 MiB"}) as server:
        client = await DialectClient.log_in(server.shards[0], dialect)

        described = {one.key: one for one in await client.ask(DescribeOptions(OptionScope.TOPIC))}

        assert described["segment_size"].default == (4 << 20).to_bytes(8, "little")
        assert ("replication_factor" in described) == (dialect is V0_12_2)


@pytest.mark.parametrize("dialect", list(Dialect))
async def test_statistics_when_asked_then_tell_open_files_to_those_who_know(
    dialect, autojump_clock
):
    async with open_simulated_server() as server:
        stats = await (await DialectClient.log_in(server.shards[0], dialect)).ask(GetStats())

        if dialect in SINCE_0_12:
            assert stats.open_files is not None
            assert 0 < stats.open_files.count < stats.open_files.limit
        else:
            assert stats.open_files is None


CLUSTER = {
    "CLUSTER_ENABLED": "true",
    "CLUSTER_NAME": "several",
    "CLUSTER_NODE_OTHERS_0_NAME": "other",
    "CLUSTER_NODE_OTHERS_0_IP": "127.0.0.2",
}


@pytest.mark.parametrize("dialect", VSR)
@pytest.mark.parametrize("settings", [{}, CLUSTER], ids=["alone", "cluster"])
async def test_cluster_when_a_new_client_asks_then_is_one_leader(dialect, settings, autojump_clock):
    async with open_simulated_server(settings=settings) as server:
        cluster = await (await DialectClient.log_in(server.shards[0], dialect)).ask(
            GetClusterMetadata()
        )
        classic = await (await DialectClient.log_in(server.shards[0], CLASSIC)).ask(
            GetClusterMetadata()
        )

        (node,) = cluster.nodes
        assert (node.role, node.replica_id) == (NodeRole.LEADER, 0)
        assert cluster.name == classic.name
        assert len(classic.nodes) == (2 if settings else 1)


# Changes of metadata


async def test_changes_when_followed_then_name_the_user_who_made_them(autojump_clock):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        start = await client.ask(GetMetadataChanges(ChangesStart.LATEST))
        await client.ask(CreateStream("s"))
        grants = Permissions(GlobalPermissions(manage_streams=True))
        await client.ask(CreateUser("joe", "secret", permissions=grants))
        joe = await DialectClient.log_in(server.shards[0], V0_12_0, "joe")
        await joe.ask(UpdateStream("s", "t"))

        page = await client.ask(
            GetMetadataChanges(ChangesStart.AFTER_CURSOR, start.next_cursor or MetadataCursor())
        )

        assert [(change.kind, change.actor) for change in page.changes] == [
            (ChangeKind.STREAM_CREATED, 0),
            (ChangeKind.USER_CREATED, 0),
            (ChangeKind.SESSION_REGISTERED, 1),
            (ChangeKind.STREAM_UPDATED, 1),
        ]
        assert page.changes[-1].op == page.head_op == client.position


@pytest.mark.parametrize(
    ("flags", "is_allowed"),
    [({}, False), ({"read_servers": True}, False), ({"manage_servers": True}, True)],
)
async def test_changes_when_asked_then_the_user_may_manage_servers(
    flags, is_allowed, autojump_clock
):
    async with open_simulated_server() as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        grants = Permissions(GlobalPermissions(**flags))
        await client.ask(CreateUser("joe", "secret", permissions=grants))
        joe = await DialectClient.log_in(server.shards[0], V0_12_2, "joe")

        if is_allowed:
            assert (await joe.ask(GetMetadataChanges())).status is ChangesStatus.OK
            return
        with pytest.raises(Refused) as refused:
            await joe.ask(GetMetadataChanges())
        assert refused.value.status == StatusCode.UNAUTHORIZED


async def test_changes_when_the_server_starts_again_then_a_cursor_of_before_is_reset(
    autojump_clock,
):
    storage = SimulatedStorage()
    async with open_simulated_server(storage) as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        await client.ask(CreateStream("s"))
        before = await client.ask(GetMetadataChanges())

    async with open_simulated_server(storage, seed=1) as server:
        client = await DialectClient.log_in(server.shards[0], V0_12_2)
        # A login raises the position, and is told as that of a session.
        start = client.position
        page = await client.ask(
            GetMetadataChanges(ChangesStart.AFTER_CURSOR, before.next_cursor or MetadataCursor())
        )
        state = await client.ask(
            GetMetadataChanges(ChangesStart.CURRENT_STATE, groups=(MetadataGroup.STREAMS,))
        )

        assert page.status is ChangesStatus.RESET
        assert page.log_id != before.log_id
        assert [getattr(item.body, "name", "") for item in state.items] == ["s"]
        assert state.next_cursor is not None
        assert state.next_cursor.op == start
