"""Consumer groups: who owns which partition, and that nobody gets a message twice."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreatePartitions,
    DeleteConsumerGroup,
    DeleteConsumerOffset,
    DeletePartitions,
    GetConsumerGroups,
    GetConsumerOffset,
    GetMe,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    StatusCode,
    StoreConsumerOffset,
)
from tests.server.features.topic_calls import eventually, make_topic
from tests.server.wire_client import Refused

SERVER_SHARDS = 2
GROUP = ConsumerIdentity.group("g")
NEXT = PollingStrategy.next()


@pytest.fixture
def gather(connect):
    """Make a topic with a group, and members of it that have not joined yet."""

    def make(*, partitions, members):
        topic = make_topic(connect(), partitions=partitions)
        topic.make_group()
        return topic, [topic.seen_by(connect()) for _ in range(members)]

    return make


def consume(member, *, count=1, auto_commit=True, partition=None):
    """Poll once as a member; return (partition, offset) of what came."""
    polled = member.poll(
        NEXT, count=count, consumer=GROUP, auto_commit=auto_commit, partition=partition
    )
    return [(polled.partition_id, message.offset) for message in polled.messages]


def assert_balanced(topic):
    """Every partition has one owner, and shares differ by one at most."""
    shares = topic.shares()
    owned = sorted(itertools.chain(*shares))
    assert owned == list(range(topic.group().partitions_count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1, shares


def test_members_when_they_join_one_by_one_then_shares_stay_equal(gather):
    topic, members = gather(partitions=3, members=3)
    members[0].join()
    assert topic.shares() == [[0, 1, 2]]

    members[1].join()
    assert sorted(len(share) for share in topic.shares()) == [1, 2]

    members[2].join()
    assert sorted(topic.shares()) == [[0], [1], [2]]


def test_members_when_six_partitions_are_joined_by_four_then_shares_differ_by_one_at_most(gather):
    topic, members = gather(partitions=6, members=4)

    for member in members:
        member.join()
        assert_balanced(topic)
    for member in members[:3]:
        member.leave()
        assert_balanced(topic)


def test_member_when_alone_then_it_reads_in_the_order_of_production(gather):
    topic, [member] = gather(partitions=3, members=1)
    member.join()
    for number in range(12):
        topic.send(str(number), partitioning=Partitioning.balanced())

    read = []
    for _ in range(12):
        read += member.read(NEXT, count=1, consumer=GROUP, auto_commit=True, partition=None)

    assert read == [str(number) for number in range(12)]
    assert consume(member) == []


def test_member_when_messages_are_keyed_then_each_comes_once_and_in_order(gather):
    topic, [member] = gather(partitions=3, members=1)
    member.join()
    for number in range(60):
        topic.send(str(number), partitioning=Partitioning.key(f"key-{number % 7}"))

    read: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(90):
        polled = member.poll(NEXT, count=1, consumer=GROUP, auto_commit=True, partition=None)
        read[polled.partition_id] += [int(text) for text in polled.messages.payloads()]

    assert sorted(itertools.chain(*read.values())) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in read.values())


def test_members_when_three_share_three_partitions_then_each_reads_every_third_message(gather):
    topic, members = gather(partitions=3, members=3)
    for member in members:
        member.join()
    for number in range(12):
        topic.send(str(number), partitioning=Partitioning.balanced())

    for member in members:
        polled = member.poll(NEXT, count=10, consumer=GROUP, auto_commit=True, partition=None)
        texts = [int(text) for text in polled.messages.payloads()]
        assert texts == [polled.partition_id + message.offset * 3 for message in polled.messages]
        assert len(texts) == 4


def test_member_when_it_comes_back_then_it_goes_on_behind_what_it_committed(gather):
    topic, [first, second] = gather(partitions=1, members=2)
    topic.send("a", "b", "c")
    first.join()
    assert consume(first, count=2) == [(0, 0), (0, 1)]
    first.client.close()
    topic.send("d")

    second.join()

    assert eventually(lambda: topic.shares() == [[0]])
    assert consume(second, count=10) == [(0, 2), (0, 3)]


def test_offset_of_a_group_when_asked_by_no_member_then_it_is_told(gather):
    topic, [member] = gather(partitions=1, members=1)
    topic.send("a", "b", "c")
    member.join()
    question = GetConsumerOffset(GROUP, topic.stream, topic.topic, 0)
    assert topic.client.ask(question) is None

    for offset in range(3):
        consume(member)
        assert topic.client.ask(question).stored_offset == offset


def test_offsets_of_a_group_when_it_is_deleted_then_they_go_with_it(gather):
    topic, [member] = gather(partitions=1, members=1)
    topic.send("a", "b")
    member.join()
    consume(member, count=2)

    topic.client.ask(DeleteConsumerGroup(topic.stream, topic.topic, "g"))
    topic.make_group()

    assert topic.client.ask(GetConsumerOffset(GROUP, topic.stream, topic.topic, 0)) is None
    member.join()
    assert consume(member, count=2) == [(0, 0), (0, 1)]


def test_newcomer_when_each_member_has_one_partition_then_it_gets_none(gather):
    topic, members = gather(partitions=2, members=3)
    members[0].join()
    members[1].join()
    before = topic.shares()

    members[2].join()

    assert sorted(len(share) for share in topic.shares()) == [0, 1, 1]
    assert [share for share in topic.shares() if share] == before
    assert consume(members[2]) == []


def pending_handover(gather):
    """The first member polled both partitions without a commit when the second one joined."""
    topic, [first, second] = gather(partitions=2, members=2)
    for partition in range(2):
        topic.send("a", "b", partition=partition)
    first.join()
    polled = consume(first, auto_commit=False) + consume(first, auto_commit=False)
    assert sorted(polled) == [(0, 0), (1, 0)]
    second.join()
    return topic, first, second


def test_partition_when_polled_without_a_commit_then_it_is_handed_over_by_the_commit(gather):
    topic, first, second = pending_handover(gather)

    # Nobody gets it on the way: the old owner's turns skip it, the new one waits for it.
    assert topic.shares() == [[0, 1], []]
    assert consume(second) == []
    for _ in range(3):
        assert {partition for partition, _ in consume(first, auto_commit=False)} == {0}

    first.store(0, partition=1, consumer=GROUP)
    assert eventually(lambda: topic.shares() == [[0], [1]])
    assert consume(second) == [(1, 1)]


def test_partition_when_handed_over_then_the_old_owner_may_neither_poll_nor_commit(gather):
    topic, first, _ = pending_handover(gather)
    first.store(0, partition=1, consumer=GROUP)
    assert eventually(lambda: topic.shares() == [[0], [1]])

    assert consume(first, partition=1) == []
    commit = StoreConsumerOffset(GROUP, topic.stream, topic.topic, 0, 1)
    assert first.client.refusal(commit) == StatusCode.NOT_RESOLVED_CONSUMER


def test_partition_when_never_polled_then_it_moves_at_once(gather):
    topic, [first, second] = gather(partitions=2, members=2)
    first.join()

    second.join()

    assert topic.shares() == [[0], [1]]


def test_partition_when_committed_automatically_then_it_moves_at_once(gather):
    topic, [first, second] = gather(partitions=2, members=2)
    for partition in range(2):
        topic.send("a", partition=partition)
    first.join()
    assert sorted(consume(first) + consume(first)) == [(0, 0), (1, 0)]

    second.join()

    assert topic.shares() == [[0], [1]]


def test_partition_when_the_commit_never_comes_then_time_hands_it_over(start_server):
    settings = {
        "IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT": "200 ms",
        "IGGY_CONSUMER_GROUP_REBALANCING_CHECK_INTERVAL": "50 ms",
    }
    server = start_server(settings=settings)

    def make(*, partitions, members):
        topic = make_topic(server.login(), partitions=partitions)
        topic.make_group()
        return topic, [topic.seen_by(server.login()) for _ in range(members)]

    topic, _, second = pending_handover(make)

    assert eventually(lambda: topic.shares() == [[0], [1]])
    assert consume(second) == [(1, 0)]


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("how", ["leaves", "disconnects"])
def test_handover_when_one_side_goes_then_everything_has_one_owner(gather, who, how):
    topic, first, second = pending_handover(gather)
    going = first if who == "source" else second

    if how == "leaves":
        going.leave()
    else:
        going.client.close()

    assert eventually(lambda: topic.shares() == [[0, 1]])
    staying = second if who == "source" else first
    assert sorted(consume(staying) + consume(staying)) == [(0, 0), (1, 0)]


def test_joins_after_a_leave_when_a_partition_is_uncommitted_then_it_is_not_given_to_two(gather):
    topic, first, second = pending_handover(gather)
    second.leave()
    assert topic.shares() == [[0, 1]]
    polled = consume(first, auto_commit=False) + consume(first, auto_commit=False)

    second.join()

    assert sorted(polled) == [(0, 0), (1, 0)]
    assert topic.shares() == [[0, 1], []]
    assert consume(second) == []


def test_slots_when_members_come_and_go_then_no_partition_goes_to_the_wrong_one(gather):
    topic, members = gather(partitions=4, members=6)
    for leaver, joiner in itertools.pairwise(members):
        leaver.join()
        joiner.join()
        leaver.leave()
        assert topic.shares() == [[0, 1, 2, 3]]
        assert len(joiner.client.ask(GetMe()).consumer_groups) == 1
        assert leaver.client.ask(GetMe()).consumer_groups == ()


def test_members_when_six_join_six_partitions_then_each_has_one(gather):
    topic, members = gather(partitions=6, members=6)

    for member in members:
        member.join()

    assert sorted(topic.shares()) == [[n] for n in range(6)]


def test_members_when_three_join_at_once_then_each_has_one(gather):
    topic, members = gather(partitions=3, members=3)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda member: member.join(), members))

    assert sorted(topic.shares()) == [[0], [1], [2]]


def test_group_when_all_create_and_join_it_at_once_then_one_creates_and_all_join(gather):
    topic, members = gather(partitions=4, members=4)

    def create_and_join(member, name):
        try:
            member.make_group(name)
        except Refused as refused:
            if refused.status != StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS:
                raise
        listed = member.client.ask(GetConsumerGroups(topic.stream, topic.topic))
        member.join(name)
        return name in [group.name for group in listed]

    for number in range(10):
        name = f"group-{number}"
        with ThreadPoolExecutor(4) as pool:
            seen = list(pool.map(create_and_join, members, [name] * 4))
        assert seen == [True] * 4
        assert sorted(topic.shares(name)) == [[0], [1], [2], [3]]


def test_partitions_when_added_and_deleted_then_members_share_them_evenly(gather):
    topic, members = gather(partitions=3, members=3)
    for member in members:
        member.join()

    topic.client.ask(CreatePartitions(topic.stream, topic.topic, 3))
    assert [len(share) for share in topic.shares()] == [2, 2, 2]
    assert_balanced(topic)

    topic.client.ask(DeletePartitions(topic.stream, topic.topic, 4))
    assert sorted(len(share) for share in topic.shares()) == [0, 1, 1]
    assert_balanced(topic)


def test_partitions_when_changed_during_a_handover_then_all_are_owned_once(gather):
    topic, _, second = pending_handover(gather)

    topic.client.ask(CreatePartitions(topic.stream, topic.topic, 2))

    assert sorted(itertools.chain(*topic.shares())) == [0, 1, 2, 3]
    consume(second)
    topic.client.ask(DeletePartitions(topic.stream, topic.topic, 3))
    assert sorted(itertools.chain(*topic.shares())) == [0]


def test_messages_when_members_join_while_polling_then_none_is_delivered_twice(gather):
    topic, members = gather(partitions=4, members=4)
    for partition in range(4):
        topic.send(*(str(number) for number in range(30)), partition=partition)
    delivered = []
    for joined in range(1, 5):
        members[joined - 1].join()
        for member in members[:joined] * 3:
            delivered += consume(member, count=2)
    while batch := [found for member in members for found in consume(member, count=50)]:
        delivered += batch

    assert len(delivered) == len(set(delivered)) == 120


def test_commit_without_a_partition_when_it_follows_a_poll_then_it_means_what_was_polled(gather):
    topic, [member] = gather(partitions=3, members=1)
    for partition in range(3):
        topic.send("a", "b", partition=partition)
    member.join()
    for wanted in (0, 1):
        polled = member.poll(NEXT, count=1, consumer=GROUP, partition=None)
        assert polled.partition_id == wanted

        member.store(0, partition=None, consumer=GROUP)

        question = GetConsumerOffset(GROUP, topic.stream, topic.topic, wanted)
        assert topic.client.ask(question).stored_offset == 0
    member.client.ask(DeleteConsumerOffset(GROUP, topic.stream, topic.topic))
    assert topic.client.ask(GetConsumerOffset(GROUP, topic.stream, topic.topic, 1)) is None


def test_poll_when_the_client_is_no_member_of_the_group_then_it_is_refused(gather):
    topic, _ = gather(partitions=1, members=0)
    poll = PollMessages(GROUP, topic.stream, topic.topic, NEXT, 1, None)

    assert topic.client.refusal(poll) == StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND


# Long enough for a busy machine to make three connections in it.
HEARTBEATS = {"IGGY_HEARTBEAT_ENABLED": "true", "IGGY_HEARTBEAT_INTERVAL": "1 s"}


@pytest.mark.parametrize("shards", [1, 2])
def test_member_when_its_heart_stops_then_it_is_removed_and_its_connection_closed(
    start_server, shards
):
    server = start_server(settings=HEARTBEATS, shards=shards)
    topic = make_topic(server.login(), partitions=2)
    topic.make_group()
    silent, lively = topic.seen_by(server.login()), topic.seen_by(server.login())
    silent.join()
    lively.join()

    def is_alone():
        lively.client.ask(Ping())
        topic.client.ask(Ping())
        return topic.shares() == [[0, 1]]

    assert eventually(is_alone)
    back = topic.seen_by(server.login())
    back.join()
    assert sorted(len(share) for share in topic.shares()) == [1, 1]
    assert silent.client.is_closed_by_peer()


def test_members_when_all_reconnect_then_exactly_one_gets_the_uncommitted_message(gather):
    topic, [*first, one, two, three] = gather(partitions=3, members=6)
    topic.send("only", partition=1)
    for member in first:
        member.join()
    got = [found for member in first for found in consume(member, auto_commit=False)]
    assert got == [(1, 0)]
    for member in first:
        member.client.close()
    assert eventually(lambda: topic.group().members_count == 0)

    for member in (one, two, three):
        member.join()
    got = [found for member in (one, two, three) for found in consume(member, auto_commit=False)]

    assert got == [(1, 0)]
