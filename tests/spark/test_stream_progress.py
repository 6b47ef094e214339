"""What a stream stores of its progress on the server, and a reader that is sent to a task."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from iggy_sdk import ConsumerIdentity
from tests.spark.stream_readers import EVERYTHING, make_reader, send


def stored(client, options, partition, name="lake"):
    found = client.get_consumer_offset(
        options["stream"], "t", consumer=ConsumerIdentity.single(name), partition_id=partition
    )
    return None if found is None else found.stored_offset


def test_progress_when_a_batch_is_committed_then_the_server_knows_the_consumer(
    client, topic, options
):
    topic(counts=(5, 0))
    reader = make_reader(options, startingOffsets="earliest", consumer="lake")

    first = reader.latestOffset({}, EVERYTHING)
    list(reader.partitions({}, first))
    assert stored(client, options, 0) is None
    reader.commit(first)
    assert (stored(client, options, 0), stored(client, options, 1)) == (4, None)

    # The last batch of a query is never committed by a call; the next question tells.
    send(client, options, 0, 2)
    second = reader.latestOffset(first, EVERYTHING)
    assert stored(client, options, 0) == 4
    reader.latestOffset(second, EVERYTHING)
    assert stored(client, options, 0) == 6


def test_progress_when_it_cannot_be_stored_then_the_query_goes_on(client, topic, options, caplog):
    topic(counts=(5,))
    reader = make_reader(options, consumer="lake")

    reader.commit({"t": {"0": 500}})

    assert "cannot store the offset of topic 't' partition 0" in caplog.text
    reader.commit({"t": {"0": 5}})
    assert stored(client, options, 0) == 4


@pytest.mark.parametrize("gone", ["partition", "topic"])
def test_progress_when_its_place_was_deleted_then_the_query_goes_on_without(
    client, topic, options, caplog, gone
):
    topic(counts=(2, 1))
    topic("other", (1,))
    first = {"other": {"0": 1}, "t": {"0": 1, "1": 1}}
    if gone == "partition":
        client.delete_partitions(options["stream"], "t", 1)
    else:
        client.delete_topic(options["stream"], "other")
    loose = make_reader(options, consumer="lake", failOnDataLoss="false")

    second = loose.latestOffset(first, EVERYTHING)

    assert second["t"]["0"] == 2
    assert "cannot store the offset" in caplog.text
    assert stored(client, options, 0) == 0


def test_reader_when_sent_to_a_task_then_reads_there(topic, options):
    topic(counts=(5,))
    reader = make_reader(options, startingOffsets="earliest", consumer="lake")
    end = reader.latestOffset({}, EVERYTHING)

    there = cloudpickle.loads(cloudpickle.dumps(reader))

    (part,) = reader.partitions({}, end)
    assert sum(rows.num_rows for rows in there.read(part)) == 5
