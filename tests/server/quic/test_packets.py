"""The QUIC listener on a bad network: what is lost, doubled, late, forged or moved."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from aioquic.quic.connection import QuicConnection

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    decode_reply,
)
from iggy_protocol.quic import QuicClientCore
from tests.server.features.topic_calls import frame_of
from tests.server.quic.peer import Closed, QuicPeer
from tests.server.quic.quic_harness import SERVER, open_harness

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

PONG = bytes(8)
PING = frame_of(Ping())
COUNT = 20
SIZE_BYTES = 20_000


async def make_topic(peer):
    await peer.log_in()
    assert (await peer.ask(frame_of(CreateStream("s"))))[:4] == bytes(4)
    assert (await peer.ask(frame_of(CreateTopic("s", "t", partitions_count=1))))[:4] == bytes(4)


def message(number):
    return random.Random(number).randbytes(SIZE_BYTES)


def send_of(number):
    where = Partitioning.partition(0)
    return frame_of(SendMessages("s", "t", where, [message(number)]))


def poll_of(count):
    return frame_of(
        PollMessages(
            ConsumerIdentity.single(1),
            "s",
            "t",
            PollingStrategy.offset(0),
            count=count,
            partition_id=0,
            auto_commit=False,
        )
    )


async def stored(peer, count=1000):
    reply = await peer.ask(poll_of(count))
    assert reply[:4] == bytes(4)
    polled = decode_reply(PollMessages.CODE, memoryview(reply)[8:])
    return [bytes(one.payload) for one in polled.messages]


WEATHERS: dict[str, Any] = {
    "fine": {},
    "losing": {"loss": 0.05},
    "doubling": {"doubles": 0.3},
    "shuffling": {"jitter_s": 0.02},
    "everything": {"loss": 0.03, "doubles": 0.2, "jitter_s": 0.01},
}


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("core", [QuicConnection, QuicClientCore], ids=["library", "client"])
async def test_messages_when_the_network_is_bad_then_all_are_stored_once(
    tmp_path, autojump_clock, weather, seed, core
):
    async with (
        open_harness(tmp_path, seed=seed, **WEATHERS[weather]) as harness,
        harness.peer(core=core) as peer,
    ):
        await make_topic(peer)
        streams = [peer.send(send_of(number)) for number in range(COUNT)]
        assert [await peer.reply(stream_id) for stream_id in streams] == [PONG] * COUNT

        assert sorted(await stored(peer)) == sorted(map(message, range(COUNT)))


@pytest.mark.parametrize("core", [QuicConnection, QuicClientCore], ids=["library", "client"])
async def test_small_requests_when_one_follows_another_then_each_way_takes_one_datagram(
    tmp_path, autojump_clock, core
):
    sent: list[Any] = []
    async with open_harness(tmp_path) as harness, harness.peer(core=core) as peer:
        await peer.log_in()
        await trio.sleep(1)
        harness.network.watch = lambda data, source, target: sent.append(target)

        for _ in range(50):
            assert await peer.ask(PING) == PONG

        to_server = sum(target == SERVER for target in sent)
        assert 50 <= len(sent) - to_server <= 55
        assert 50 <= to_server <= 105, "the library acknowledges by itself"


async def test_datagrams_when_replayed_later_then_change_nothing(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness:
        recorded = []
        async with harness.peer() as peer:
            await make_topic(peer)
            harness.network.watch = lambda data, source, target: (
                recorded.append(data) if target == SERVER else None
            )
            assert await peer.ask(send_of(1)) == PONG
            harness.network.watch = lambda data, source, target: None
            attacker = harness.network.plug(("127.0.0.1", 666))
            for data in recorded * 20:
                attacker.send([(data, SERVER)])
                peer.datagrams.send([(data, SERVER)])
            await trio.sleep(1)

            assert await stored(peer) == [message(1)]


async def test_first_datagram_when_replayed_then_the_clients_that_are_there_do_not_notice(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path, settings={"LIMITS_QUIC_MAX_HANDSHAKES": "8"}) as harness:
        initials = []
        harness.network.watch = lambda data, source, target: (
            initials.append(data) if target == SERVER and data[0] & 0xF0 == 0xC0 else None
        )
        async with harness.peer() as peer:
            await peer.log_in()
            for number in range(100):
                attacker = harness.network.plug(("127.0.0.1", number + 1))
                attacker.send([(initials[0], SERVER)])
            await trio.sleep(1)

            assert await peer.ask(PING) == PONG
            assert len(harness.shard.clients) == 1
        await trio.sleep(60)
        assert not harness.listener._connections
        assert not harness.listener._routes


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_when_it_comes_then_other_clients_are_served(tmp_path, autojump_clock, seed):
    luck = random.Random(seed)
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        seen = []
        harness.network.watch = lambda data, source, target: (
            seen.append(data) if target == SERVER else None
        )
        assert await peer.ask(PING) == PONG
        harness.network.watch = lambda data, source, target: None
        attacker = harness.network.plug(("127.0.0.1", 666))
        for _ in range(300):
            data = bytearray(luck.choice([*seen, luck.randbytes(1300)]))
            if data:
                data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
            cut = luck.choice([len(data), luck.randrange(len(data) + 1)])
            luck.choice([attacker, peer.datagrams]).send([(bytes(data[:cut]), SERVER)])
        await trio.sleep(1)

        assert await peer.ask(PING) == PONG


async def test_first_datagram_when_it_is_garbage_then_nothing_is_kept_of_it(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness:
        other = harness.network.plug(("127.0.0.1", 1))
        head = b"\xc0\0\0\0\1\x08" + bytes(8) + b"\x08" + bytes(8) + b"\0\x44\x00"
        other.send([(head.ljust(1300, b"\0"), SERVER)])
        begun = []
        harness.network.watch = lambda data, source, target: begun.append(data)
        await trio.sleep(0.1)

        assert not harness.listener._connections
        assert not harness.listener._routes
        assert not begun, "and nothing is answered"


async def test_version_when_unknown_then_the_client_is_told_which_there_are(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness:
        other = harness.network.plug(("127.0.0.1", 1))
        unknown = b"\xc0\x1a\x2a\x3a\x4a\x08" + bytes(8) + b"\x08" + bytes(8)
        other.send([(unknown.ljust(1200, b"\0"), SERVER)])
        with trio.fail_after(1):
            ((offer, _),) = await other.receive()
        assert offer[1:5] == bytes(4)
        assert b"\0\0\0\1" in offer

        other.send([(unknown, SERVER), (offer.ljust(1200, b"\0"), SERVER)])
        with trio.move_on_after(10) as nothing:
            await other.receive()
        assert nothing.cancelled_caught, "small datagrams and other servers' offers get no answer"


async def test_client_when_it_moves_then_its_login_and_requests_move_with_it(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await make_topic(peer)
        begun = peer.send(send_of(1)[:5_000], finish=False)
        await trio.sleep(0.1)

        peer.core.change_connection_id()
        peer.datagrams = harness.network.plug(("127.0.0.1", 50_001))
        peer.send(send_of(1)[5_000:], stream=begun)
        assert await peer.reply(begun) == PONG

        assert await stored(peer) == [message(1)]
        assert len(harness.shard.clients) == 1


async def test_client_when_it_moves_to_another_machine_then_datagrams_become_small(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await make_topic(peer)
        assert await peer.ask(send_of(1)) == PONG
        sizes = []
        harness.network.watch = lambda data, source, target: (
            sizes.append(len(data)) if source == SERVER else None
        )
        assert await stored(peer) == [message(1)]
        assert max(sizes) > 4_000, "on one machine they are large"

        peer.datagrams = harness.network.plug(("192.0.2.1", 50_001))
        assert await peer.ask(PING) == PONG
        sizes.clear()
        assert await stored(peer) == [message(1)]
        assert max(sizes) <= 1_200


# Handshakes


async def test_client_when_many_handshakes_are_unfinished_then_has_to_prove_its_address(
    tmp_path, autojump_clock
):
    settings = {"LIMITS_QUIC_MAX_HANDSHAKES": "4"}
    async with open_harness(tmp_path, settings=settings) as harness:
        await fill_with_handshakes(harness, 2)
        retries = []
        harness.network.watch = lambda data, source, target: (
            retries.append(data) if source == SERVER and data[0] & 0xF0 == 0xF0 else None
        )
        async with harness.peer() as peer:
            assert await peer.ask(PING) == PONG

        assert len(retries) == 1


async def fill_with_handshakes(harness, count):
    """Begin handshakes that nobody goes on with."""
    for number in range(count):
        plug = harness.network.plug(("127.0.0.1", 1_000 + number))
        mute = QuicPeer(plug, SERVER)
        mute.core.connect(SERVER, trio.current_time())
        mute.flush()
    await trio.sleep(0.01)


async def test_token_when_it_is_forged_then_the_client_is_refused(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness:
        with pytest.raises(Closed):
            async with harness.peer(token=b"x" * 60):
                raise AssertionError("a forged token was taken")
        assert not harness.listener._connections


async def test_handshakes_when_there_are_too_many_then_the_oldest_goes(tmp_path, autojump_clock):
    settings = {"LIMITS_QUIC_MAX_HANDSHAKES": "3"}
    async with open_harness(tmp_path, settings=settings) as harness:
        await fill_with_handshakes(harness, 1)
        (oldest,) = harness.listener._connections
        # Each of these comes back with its token, so the bound is reached.
        async with harness.peer(1), harness.peer(2):
            await fill_with_handshakes(harness, 10)
            assert len(harness.listener._handshakes) <= 3
        await trio.sleep(20)
        assert oldest not in harness.listener._connections
        assert not harness.listener._connections


async def test_handshake_when_it_never_ends_then_is_given_up_in_time(tmp_path, autojump_clock):
    settings = {
        "LIMITS_QUIC_HANDSHAKE_TIMEOUT": "3 s",
        "QUIC_MAX_IDLE_TIMEOUT": "1 h",
    }
    async with open_harness(tmp_path, settings=settings) as harness:
        await fill_with_handshakes(harness, 3)
        assert len(harness.listener._connections) == 3
        await trio.sleep(5)
        assert not harness.listener._connections


async def test_connections_when_there_are_enough_then_the_next_one_is_told(
    tmp_path, autojump_clock
):
    settings = {"LIMITS_QUIC_MAX_CONNECTIONS": "1"}
    async with open_harness(tmp_path, settings=settings) as harness, harness.peer(1) as first:
        with pytest.raises(Closed):
            async with harness.peer(2):
                raise AssertionError("a second connection was taken")

        assert await first.ask(PING) == PONG


# Silence


async def test_connection_when_idle_then_keepalives_keep_it(tmp_path, autojump_clock):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        await peer.log_in()
        await trio.sleep(3_600)

        assert await peer.ask(PING) == PONG


async def test_connection_when_the_client_is_gone_then_ends_with_the_idle_timeout(
    tmp_path, autojump_clock
):
    async with open_harness(tmp_path) as harness, harness.peer() as peer:
        assert await peer.ask(PING) == PONG
        harness.network._loss = 1.0
        await trio.sleep(25)

        assert not harness.listener._connections
        assert not len(harness.shard.clients)


async def test_connection_when_without_requests_for_too_long_then_is_closed(
    tmp_path, autojump_clock
):
    settings = {"LIMITS_QUIC_IDLE_TIMEOUT": "60 s"}
    async with open_harness(tmp_path, settings=settings) as harness, harness.peer() as peer:
        await peer.log_in()
        began = trio.current_time()
        end = await peer.ended()

        assert 59 < trio.current_time() - began < 62
        assert "idle for too long" in end.reason_phrase
