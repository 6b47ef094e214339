"""What a task sends of its rows, without Spark around it and to a real server."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest

from iggy_protocol import partition_for_key
from iggy_sdk import PollingStrategy
from spark_jobs.errors import OptionError, SchemaError
from spark_jobs.options import write_options
from spark_jobs.topics import POLL_CONSUMER
from spark_jobs.write_task import TaskWriter


@pytest.fixture
def write(options):
    """Return a function that sends record batches as a task does, and counts their rows."""

    def send(*batches, partitioning="balanced", scope=b"task", **more):
        given = {**options, "createTopic": "3", **more}
        given = {name: value for name, value in given.items() if value is not None}
        writer = TaskWriter(write_options(given), partitioning, scope, 1)
        writer.write(batches)
        return writer.rows_count

    return send


def rows(**columns):
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def polled(client, stream, topic, partition):
    batch = client.poll_messages(
        stream,
        topic,
        consumer=POLL_CONSUMER,
        partition_id=partition,
        strategy=PollingStrategy.offset(0),
        count=3000,
    )
    return [message.payload for message in batch]


def payloads(client, stream, topic, partition):
    return sorted(polled(client, stream, topic, partition))


def test_task_when_rows_have_keys_then_equal_keys_share_the_partition_of_producers(
    write, client, stream
):
    keys = [f"k{number % 5}" for number in range(40)]
    values = [str(number).encode() for number in range(40)]

    count = write(rows(payload=values, key=keys), partitioning="key")

    assert count == 40
    for partition in range(3):
        mine = [
            value
            for key, value in zip(keys, values, strict=True)
            if partition_for_key(key.encode(), 3) == partition
        ]
        assert payloads(client, stream, "t", partition) == sorted(mine)


def test_task_when_it_is_repeated_in_another_order_then_each_row_is_there_once(
    write, client, stream
):
    values = [str(number).encode() for number in range(30)]
    write(rows(payload=values[:7]), rows(payload=values[7:]))
    first = [payloads(client, stream, "t", partition) for partition in range(3)]

    write(rows(payload=values[::-1]))

    again = [payloads(client, stream, "t", partition) for partition in range(3)]
    assert again == first
    assert sum(map(len, first)) == 30


def test_task_when_rows_name_partitions_then_they_go_there_and_others_in_turns(
    write, client, stream
):
    write(rows(payload=[b"a", b"b", b"c"], partition=[2, 2, None]), partitioning="partition")

    assert payloads(client, stream, "t", 2)[:2] == [b"a", b"b"]
    assert sum(len(payloads(client, stream, "t", partition)) for partition in range(3)) == 3


@pytest.mark.parametrize("scope", [b"task", None])
def test_task_when_all_rows_go_to_one_partition_then_order_stays(write, client, stream, scope):
    values = [b"%04d" % number for number in range(2500)]

    write(rows(payload=values), partitioning=1, scope=scope, sendBatch="700")

    assert polled(client, stream, "t", 1) == values


def test_task_when_there_are_no_ids_then_rows_rotate_over_partitions(write, client, stream):
    write(rows(payload=[b"x"] * 30), scope=None, sendBatch="10")

    assert [len(payloads(client, stream, "t", at)) for at in range(3)] == [10, 10, 10]


def test_task_when_rows_name_topics_then_each_goes_to_its_own(write, client, stream):
    write(rows(payload=[b"a", b"b", b"c"], topic=["one", "two", "one"]), topic=None)

    found = {
        topic: [value for at in range(3) for value in payloads(client, stream, topic, at)]
        for topic in ("one", "two")
    }
    assert {topic: sorted(values) for topic, values in found.items()} == {
        "one": [b"a", b"c"],
        "two": [b"b"],
    }


def test_task_when_rows_cannot_be_sent_then_says_what_to_do(write):
    with pytest.raises(SchemaError, match="give every row one"):
        write(rows(payload=[b"a", b"b"], topic=["one", None]), topic=None)
    with pytest.raises(SchemaError, match="payload"):
        write(rows(payload=[b"a", None]))
    with pytest.raises(OptionError, match="partitioning is 9"):
        write(rows(payload=[b"a"]), partitioning=9)
