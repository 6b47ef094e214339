"""Where things are placed, against the worked values of real servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.hashing import (
    client_id,
    consumer_id,
    pack_namespace,
    partition_for_key,
    shard_for_namespace,
)

KEYS = {
    b"a": (0x550D7456, {2: 0, 3: 0, 4: 2, 10: 0}),
    b"key": (0xB3D93AE0, {2: 0, 3: 0, 4: 0, 10: 8}),
    b"user-42": (0x61819A7E, {2: 0, 3: 2, 4: 2, 10: 6}),
    b"order_1": (0x96AB1DBF, {2: 1, 3: 1, 4: 3, 10: 1}),
    b"hello world": (0xCEBB6622, {2: 0, 3: 1, 4: 2, 10: 4}),
    (42).to_bytes(4, "little"): (0x454235D1, {2: 1, 3: 1, 4: 1, 10: 7}),
    (42).to_bytes(8, "little"): (0x8B06618D, {2: 1, 3: 2, 4: 1, 10: 3}),
}

# stream, topic, partition: packed, upper half of the hash, shard by number of shards
NAMESPACES = {
    (0, 0, 0): (0x0, 25477, {2: 1, 3: 1, 4: 1, 8: 5, 16: 5}),
    (0, 0, 1): (0x1, 21255, {2: 1, 3: 0, 4: 3, 8: 7, 16: 7}),
    (0, 0, 2): (0x2, 50719, {2: 1, 3: 1, 4: 3, 8: 7, 16: 15}),
    (0, 0, 3): (0x3, 41787, {2: 1, 3: 0, 4: 3, 8: 3, 16: 11}),
    (0, 1, 0): (0x100000, 15097, {2: 1, 3: 1, 4: 1, 8: 1, 16: 9}),
    (1, 0, 0): (0x100000000, 15064, {2: 0, 3: 1, 4: 0, 8: 0, 16: 8}),
    (1, 2, 3): (0x100200003, 4377, {2: 1, 3: 0, 4: 1, 8: 1, 16: 9}),
    (5, 7, 42): (0x50070002A, 35827, {2: 1, 3: 1, 4: 3, 8: 3, 16: 3}),
    (4095, 4095, 999999): (0xFFFFFFF423F, 38146, {2: 0, 3: 1, 4: 2, 8: 2, 16: 2}),
}

COUNTS = st.integers(min_value=1, max_value=2**32)
IDS = st.integers(min_value=0, max_value=2**32 - 1)


@pytest.mark.parametrize("key", KEYS)
def test_partition_for_key_when_worked_by_hand_then_agrees(key):
    digest, partitions = KEYS[key]

    assert partition_for_key(key, 2**32) == digest
    assert {count: partition_for_key(key, count) for count in partitions} == partitions


@pytest.mark.parametrize("count", [0, -1])
def test_partition_for_key_when_there_are_no_partitions_then_refuses(count):
    with pytest.raises(LocalProtocolError):
        partition_for_key(b"key", count)


@given(st.binary(max_size=255), COUNTS)
def test_partition_for_key_when_any_key_then_names_one_of_the_partitions(key, count):
    assert 0 <= partition_for_key(key, count) < count


@given(st.binary(max_size=255))
def test_partition_for_key_when_given_another_kind_of_buffer_then_agrees(key):
    expected = partition_for_key(key, 1000)

    assert partition_for_key(bytearray(key), 1000) == expected
    assert partition_for_key(memoryview(key), 1000) == expected


def test_consumer_id_when_worked_by_hand_then_agrees():
    assert consumer_id("consumer-1") == 1338303147
    assert consumer_id(b"consumer-1") == 1338303147


@given(st.text(max_size=50))
def test_consumer_id_when_text_or_its_bytes_then_is_the_same_32_bits(name):
    assert consumer_id(name) == consumer_id(name.encode())
    assert 0 <= consumer_id(name) < 2**32


def test_client_id_when_worked_by_hand_then_agrees():
    assert client_id("127.0.0.1:50000") == 163361442
    assert client_id("[::1]:50000") == 410843984


def test_client_id_when_recorded_over_http_then_agrees():
    assert client_id("127.0.0.1:41132") == 1730949473


@pytest.mark.parametrize("ids", NAMESPACES)
def test_pack_namespace_when_worked_by_hand_then_agrees(ids):
    stream_id, topic_id, partition_id = ids

    packed = pack_namespace(stream_id=stream_id, topic_id=topic_id, partition_id=partition_id)

    assert packed == NAMESPACES[ids][0]


@given(IDS, IDS, IDS)
def test_pack_namespace_when_ids_are_too_large_then_only_their_low_bits_count(
    stream_id, topic_id, partition_id
):
    packed = pack_namespace(stream_id=stream_id, topic_id=topic_id, partition_id=partition_id)

    assert packed & 0xFFFFF == partition_id % 2**20
    assert packed >> 20 & 0xFFF == topic_id % 2**12
    assert packed >> 32 == stream_id % 2**12


@pytest.mark.parametrize("ids", NAMESPACES)
def test_shard_for_namespace_when_worked_by_hand_then_agrees(ids):
    packed, upper, shards = NAMESPACES[ids]

    assert shard_for_namespace(packed, shards_count=2**16) == upper
    assert {count: shard_for_namespace(packed, shards_count=count) for count in shards} == shards


@pytest.mark.parametrize("count", [0, -1])
def test_shard_for_namespace_when_there_are_no_shards_then_refuses(count):
    with pytest.raises(LocalProtocolError):
        shard_for_namespace(0, shards_count=count)


@given(st.integers(min_value=0, max_value=2**44 - 1), st.integers(min_value=1, max_value=2**16))
def test_shard_for_namespace_when_any_partition_then_names_one_of_the_shards(namespace, count):
    assert 0 <= shard_for_namespace(namespace, shards_count=count) < count
