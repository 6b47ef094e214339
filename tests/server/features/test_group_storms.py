"""Members that come and go all the time: nothing is lost, nothing comes twice, nobody is forgotten.

Every member commits what it polls with the poll itself and waits for each answer, so each message
must come exactly once, whoever owns its partition at that moment. On both engines of storage.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from iggy_protocol import ConsumerIdentity, GetClients, GetMe, PollingStrategy
from tests.server.features.topic_calls import eventually, make_topic

PARTITIONS, STORMERS, TURNS, BATCH, BATCHES = 6, 5, 60, 10, 40
GROUP = ConsumerIdentity.group("g")
NEXT = PollingStrategy.next()


@pytest.fixture(params=["io_uring", "threads"])
def server(request, start_server):
    return start_server(shards=2, settings={"IGGY_SYSTEM_STORAGE_ENGINE": request.param})


def consume(member, count):
    """Poll once and return what came, as pairs of partition and offset."""
    polled = member.poll(NEXT, count=count, partition=None, consumer=GROUP, auto_commit=True)
    return [(polled.partition_id, message.offset) for message in polled.messages]


def storm(server, topic, seed):
    """Join, poll, leave and hang up at random; return what was delivered, in order."""
    chance = random.Random(seed)
    delivered = []
    member = None
    for _ in range(TURNS):
        if member is None:
            member = topic.seen_by(server.login())
            member.join()
        delivered += consume(member, chance.randint(1, 7))
        action = chance.random()
        if action < 0.15:
            member.leave()
            member.join()
        elif action < 0.3:
            member.client.close()
            member = None
    if member is not None:
        member.client.close()
    return delivered


def produce(topic):
    for number in range(BATCHES):
        topic.send(*(f"{number}" for _ in range(BATCH)), partition=number % PARTITIONS)
    return []


def drain(members):
    """Poll in turns until nobody gets anything for a whole round."""
    found, silent = [], 0
    while silent < PARTITIONS:
        batch = [pair for member in members for pair in consume(member, 50)]
        found += batch
        silent = 0 if batch else silent + 1
    return found


def test_storm_of_joins_and_leaves_when_it_is_over_then_each_message_came_once_and_none_is_a_ghost(
    server,
):
    topic = make_topic(server.login(), partitions=PARTITIONS)
    topic.make_group()
    with ThreadPoolExecutor() as pool:
        producing = pool.submit(produce, topic.seen_by(server.login()))
        storming = [pool.submit(storm, server, topic, seed) for seed in range(STORMERS)]
        delivered = [run.result() for run in storming]
        producing.result()

    assert eventually(lambda: topic.group().members == ())
    members = [topic.seen_by(server.login()) for _ in range(4)]
    for member in members:
        member.join()
    assert sorted(map(len, topic.shares())) == [1, 1, 2, 2]
    owned = [partition for share in topic.shares() for partition in share]
    assert sorted(owned) == list(range(PARTITIONS))
    rest = drain(members)

    everything = [pair for run in delivered for pair in run] + rest
    counts = [BATCH * len(range(partition, BATCHES, PARTITIONS)) for partition in range(PARTITIONS)]
    wanted = {
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(counts[partition])
    }
    assert len(everything) == len(set(everything))
    assert set(everything) == wanted
    for run in delivered:
        for partition in range(PARTITIONS):
            offsets = [offset for found, offset in run if found == partition]
            assert offsets == sorted(offsets)


def test_storm_when_a_member_is_gone_then_clients_and_memberships_agree(server):
    topic = make_topic(server.login(), partitions=PARTITIONS)
    topic.make_group()
    staying = topic.seen_by(server.login())
    staying.join()
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(storm, server, topic, seed) for seed in range(STORMERS)]:
            run.result()

    assert eventually(lambda: topic.shares() == [list(range(PARTITIONS))])
    me = staying.client.ask(GetMe())
    assert [(group.stream_id, group.topic_id) for group in me.consumer_groups] == [
        (topic.stream_id, topic.topic_id)
    ]
    grouped = [client for client in topic.client.ask(GetClients()) if client.consumer_groups_count]
    assert [client.client_id for client in grouped] == [me.client_id]
