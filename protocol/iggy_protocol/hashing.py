"""Hashes of keys, consumers, clients and partitions.

Clients and servers must compute the same numbers. A wrong hash routes to a wrong partition or shard
without an error, so recorded values of Apache Iggy check every function.
"""

from __future__ import annotations

import mmh3
import xxhash

from iggy_protocol.errors import LocalProtocolError

SEED = 0

# The packed namespace, from the lowest bit: partition 20, topic 12, stream 12, then 20 zero bits.
PARTITION_BITS = 20
TOPIC_BITS = 12
STREAM_BITS = 12


def partition_for_key(key: bytes | bytearray | memoryview, partitions_count: int) -> int:
    """Choose the partition of a messages key.

    Args:
        key: the raw key, as in the partitioning field.
        partitions_count: how many partitions the topic has.

    Returns:
        A partition id from 0 to ``partitions_count - 1``.

    Raises:
        LocalProtocolError: the topic has no partitions.
    """
    if partitions_count < 1:
        raise LocalProtocolError(f"no partition of {partitions_count} can take a key")
    return xxhash.xxh32_intdigest(key, seed=SEED) % partitions_count


def consumer_id(name: str | bytes) -> int:
    """Return the number under which a consumer with a name stores its offsets."""
    return xxhash.xxh32_intdigest(name.encode() if isinstance(name, str) else name, seed=SEED)


def client_id(address: str) -> int:
    """Return the id of the client at an address such as ``127.0.0.1:50000``."""
    return xxhash.xxh32_intdigest(address.encode(), seed=SEED)


def pack_namespace(*, stream_id: int, topic_id: int, partition_id: int) -> int:
    """Pack three ids into one number; bits that do not fit are dropped, as on every server."""
    stream = stream_id & ((1 << STREAM_BITS) - 1)
    topic = topic_id & ((1 << TOPIC_BITS) - 1)
    partition = partition_id & ((1 << PARTITION_BITS) - 1)
    return stream << (TOPIC_BITS + PARTITION_BITS) | topic << PARTITION_BITS | partition


def shard_for_namespace(namespace: int, *, shards_count: int) -> int:
    """Choose the shard that owns a partition.

    Args:
        namespace: the partition, as packed by ``pack_namespace``.
        shards_count: how many shards the server runs.

    Returns:
        A shard number from 0 to ``shards_count - 1``.

    Raises:
        LocalProtocolError: there are no shards.
    """
    if shards_count < 1:
        raise LocalProtocolError(f"no shard of {shards_count} can own a partition")
    digest: int = mmh3.hash(namespace.to_bytes(8, "little"), SEED, signed=False)
    # Unsigned: shifting a negative hash keeps its sign and would move half of all partitions.
    return (digest >> 16) % shards_count
