"""Clients of all generations on one topic: each writes, each reads, and all see the same.

One more takes part, which speaks the protocol of 0.8 by this project's own encoder: it writes what
no official client up to 0.8 can (numbers, headers, times), and says what lies on the disk.
"""

from __future__ import annotations

import struct
from collections import Counter
from itertools import groupby, islice
from typing import Any

import pytest
import xxhash

from iggy_protocol import NewMessage, decode_user_headers, encode_user_headers
from tests.interop.wheels import CLASSIC_VERSIONS, LATER_VERSIONS, VERSIONS
from tests.server.features.topic_calls import eventually, make_topic

pytestmark = pytest.mark.interop

PARTITIONS = 3
BATCH_SIZES = (1, 4, 2)
ORIGIN_US = 1_700_000_000_000_000
PER_PARTITION = (len(VERSIONS) + 1) * sum(BATCH_SIZES)
FRAME_HEAD = struct.Struct("<16sIIIIQ")


def batches_of(who: str) -> list[list[dict[str, Any]]]:
    """Return what a writer sends: three batches, with headers on every other message."""
    kinds = [*VERSIONS, "ours"]
    numbers = iter(range(sum(BATCH_SIZES)))
    return [
        [
            {
                "payload": f"{who} {number} {'ä' * number}",
                "id": str((1 << 100) + kinds.index(who) * 1000 + number * 10),
                "headers": {"who": who, "number": number} if number % 2 else {},
            }
            for number in islice(numbers, size)
        ]
        for size in BATCH_SIZES
    ]


def write_ours(topic):
    for partition in range(PARTITIONS):
        for batch in batches_of("ours"):
            messages = [
                NewMessage(
                    f"{partition}:{each['payload']}".encode(),
                    int(each["id"]) + partition,
                    encode_user_headers(each["headers"]) if each["headers"] else b"",
                    ORIGIN_US + number,
                )
                for number, each in enumerate(batch)
            ]
            topic.send(*messages, partition=partition)


def stored(topic):
    """Return all messages as they lie in the log."""
    return [
        [
            {
                "partition": partition,
                "offset": message.offset,
                "id": str(message.id),
                "payload": bytes(message.payload).decode(),
                "length": len(message.payload),
                "timestamp_us": message.timestamp_us,
                "checksum": message.checksum,
                "origin_timestamp_us": message.origin_timestamp_us,
                "headers": {
                    str(key.value): value.value
                    for key, value in decode_user_headers(message.user_headers).items()
                },
                "raw headers": bytes(message.user_headers),
            }
            for message in topic.poll(partition=partition).messages
        ]
        for partition in range(PARTITIONS)
    ]


def framed_checksum(message: dict[str, Any], first: dict[str, Any], origin_us: int) -> int:
    """Compute the checksum that a message has in the batches of 0.9 and later."""
    payload = message["payload"].encode()
    head = FRAME_HEAD.pack(
        int(message["id"]).to_bytes(16, "little"),
        message["offset"] - first["offset"],
        message["origin_timestamp_us"] - origin_us,
        len(message["raw headers"]),
        len(payload),
        0,
    )
    return xxhash.xxh3_64_intdigest(head + payload + message["raw headers"])


def in_frames(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored messages as readers of 0.9 and later see them: one batch for each time."""
    framed = []
    for _, found in groupby(messages, key=lambda message: message["timestamp_us"]):
        batch = list(found)
        origin_us = min(message["origin_timestamp_us"] for message in batch)
        framed += [
            {**message, "checksum": framed_checksum(message, batch[0], origin_us)}
            for message in batch
        ]
    return framed


@pytest.fixture(scope="module", params=[1, 2], ids=["one shard", "two shards"])
def written(request, official, shared_server):
    """Have all of them write, one after the other, and return the topic and where it is."""
    server = shared_server(request.param)
    host, port = server.address
    url = f"iggy+tcp://iggy:iggy@{host}:{port}"
    with server.login() as client:
        topic = make_topic(client, partitions=PARTITIONS)
        given = {
            "url": url,
            "stream": topic.stream,
            "topic": topic.topic,
            "partitions": PARTITIONS,
        }
        for version in VERSIONS:
            official(version).run("write", batches=batches_of(version), **given)
        write_ours(topic)
        yield topic, given


def test_log_when_all_clients_have_written_then_holds_what_each_has_sent(written):
    topic, _ = written
    for partition, messages in enumerate(stored(topic)):
        assert [message["offset"] for message in messages] == list(range(PER_PARTITION))
        assert [message["payload"] for message in messages] == [
            f"{partition}:{each['payload']}"
            for who in (*VERSIONS, "ours")
            for batch in batches_of(who)
            for each in batch
        ]
        assert len({message["id"] for message in messages}) == PER_PARTITION
        sent = {
            f"{partition}:{each['payload']}": (str(int(each["id"]) + partition), each["headers"])
            for who in (*LATER_VERSIONS, "ours")
            for batch in batches_of(who)
            for each in batch
        }
        kept = {message["payload"]: (message["id"], message["headers"]) for message in messages}
        assert {payload: kept[payload] for payload in sent} == sent


def test_batches_when_written_then_each_has_one_time_and_origins_before_it(written):
    topic, _ = written
    for messages in stored(topic):
        times = [message["timestamp_us"] for message in messages]
        assert times == sorted(times)
        runs = [len(list(batch)) for _, batch in groupby(times)]
        assert sum(runs) == PER_PARTITION
        assert set(runs) <= {*BATCH_SIZES, sum(BATCH_SIZES[:2]), sum(BATCH_SIZES)}
        assert all(0 < each["origin_timestamp_us"] <= each["timestamp_us"] for each in messages)
        ours = [each["origin_timestamp_us"] for each in messages if ":ours" in each["payload"]]
        assert ours == [ORIGIN_US + number for size in BATCH_SIZES for number in range(size)]


@pytest.mark.parametrize("version", VERSIONS)
def test_reader_when_all_clients_have_written_then_sees_all_of_it(official, written, version):
    topic, given = written
    seen = official(version).run("read", **given).returned

    on_disk = stored(topic)
    if version in LATER_VERSIONS:
        on_disk = [in_frames(messages) for messages in on_disk]
    told = {"offset", "id", "payload", "length", "timestamp_us", "checksum", "partition"}
    if version not in CLASSIC_VERSIONS:
        told |= {"origin_timestamp_us", "headers"}
    for messages, kept in zip(seen, on_disk, strict=True):
        assert all(message.keys() == told for message in messages)
        assert messages == [{name: message[name] for name in told} for message in kept]


GROUP = "all generations"
GROUP_PARTITIONS = 2 * len(VERSIONS)
TO_EACH = 15


@pytest.mark.parametrize("shards", [1, 2], ids=["one shard", "two shards"])
def test_group_when_its_members_are_of_all_generations_then_each_message_is_handled_once(
    official, shared_server, shards
):
    server = shared_server(shards)
    host, port = server.address
    url = f"iggy+tcp://iggy:iggy@{host}:{port}"
    with server.login() as client:
        topic = make_topic(client, partitions=GROUP_PARTITIONS)
        place = {"url": url, "stream": topic.stream, "topic": topic.topic, "group": GROUP}
        for version in VERSIONS:
            official(version).run("join", name=topic.stream, **place)
        assert eventually(
            lambda: sorted(len(share) for share in topic.shares(GROUP)) == [2] * len(VERSIONS)
        ), topic.shares(GROUP)

        for number in range(TO_EACH):
            for partition in range(GROUP_PARTITIONS):
                topic.send(f"{partition}:{number}", partition=partition)
        # Each member owns two partitions, so it is told when it has handled what they got.
        handled = {
            version: official(version).run("taken", name=topic.stream, least=2 * TO_EACH).returned
            for version in VERSIONS
        }
        for version in VERSIONS:
            official(version).run("leave", name=topic.stream)

    for version, messages in handled.items():
        owned = {partition for partition, *_ in messages}
        assert len(owned) == 2, (version, owned)
        for owner in owned:
            texts = [payload for partition, _, payload, _ in messages if partition == owner]
            assert texts == [f"{owner}:{number}" for number in range(TO_EACH)], version
    everything = Counter(payload for messages in handled.values() for _, _, payload, _ in messages)
    assert set(everything.values()) == {1}
    assert len(everything) == GROUP_PARTITIONS * TO_EACH
