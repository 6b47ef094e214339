"""The streaming reader: what it tells Spark, without Spark around it and against a real server."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows

from spark_jobs import DataLossError, OptionError
from tests.spark.stream_readers import EVERYTHING, make_reader, plain, send, spans


def test_stream_when_it_starts_with_latest_then_the_first_batch_only_fixes_the_start(
    client, topic, options
):
    topic()
    reader = make_reader(options)

    start = reader.initialOffset()
    first = reader.latestOffset(start, EVERYTHING)
    send(client, options, 1, 5)
    # The query dies here; another one repeats its first batch, and misses nothing.
    again = make_reader(options)
    assert spans(again, again.initialOffset(), first) == []
    second = again.latestOffset(first, EVERYTHING)

    assert plain(first) == {"t": {"0": 10, "1": 20, "2": 30}}
    assert plain(second) == {"t": {"0": 10, "1": 25, "2": 30}}
    assert spans(again, first, second) == [(1, 20, 25)]


def test_stream_when_it_starts_at_a_time_then_the_first_batch_only_fixes_the_start(topic, options):
    topic(counts=(3, 0))
    reader = make_reader(options, startingTimestamp="2000-01-01T00:00:00Z")

    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)

    assert plain(first) == {"t": {"0": 0, "1": 0}}
    assert spans(reader, {}, first) == []
    assert spans(reader, first, reader.latestOffset(first, EVERYTHING)) == [(0, 0, 3)]


def test_stream_when_it_starts_with_earliest_then_the_first_batch_has_rows(topic, options):
    topic(counts=(3, 0, 2))
    reader = make_reader(options, startingOffsets="earliest")

    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)

    assert plain(first) == {"t": {"0": 3, "2": 2}}
    assert spans(reader, {}, first) == [(0, 0, 3), (2, 0, 2)]


def test_stream_when_it_starts_with_offsets_then_the_first_batch_begins_there(topic, options):
    topic()
    reader = make_reader(options, startingOffsets='{"0": 9, "1": -2, "2": 30}')

    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)

    assert spans(reader, {}, first) == [(0, 9, 10), (1, 0, 20)]
    with pytest.raises(OptionError, match="startingOffsets lacks"):
        make_reader(options, startingOffsets='{"0": 9}').latestOffset({}, EVERYTHING)
    with pytest.raises(
        DataLossError, match="from offset 11 on and ends before 10: startingOffsets"
    ):
        make_reader(options, startingOffsets='{"0": 11, "1": 0, "2": 0}').latestOffset(
            {}, EVERYTHING
        )


def test_stream_when_a_start_is_marked_latest_then_the_first_batch_fixes_it(topic, options):
    topic(counts=(3, 4))
    reader = make_reader(options, startingOffsets='{"0": 1, "1": -1}')

    first = reader.latestOffset({}, EVERYTHING)

    assert plain(first) == {"t": {"0": 1, "1": 4}}
    assert spans(reader, {}, first) == []


def test_stream_when_nothing_is_new_then_the_text_of_the_offset_stays_the_same(topic, options):
    topic("a", (1,) * 11)
    topic("b", (1,))
    reader = make_reader(options, topic="b,a", startingOffsets="earliest")

    first = reader.latestOffset({}, EVERYTHING)

    assert list(first) == ["a", "b"]
    assert list(plain(first)["a"]) == [str(number) for number in range(11)]
    assert json.dumps(reader.latestOffset(first, EVERYTHING)) == json.dumps(first)


def test_stream_when_limited_then_each_batch_keeps_the_limit_and_all_is_read(topic, options):
    topic()
    reader = make_reader(options, startingOffsets="earliest", maxOffsetsPerTrigger=25)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(25)

    offset, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, limit)) != offset:
        sizes.append(sum(after - before for _, before, after in spans(reader, offset, end)))
        offset = end

    assert sizes == [25, 25, 10]


def test_stream_when_it_wants_a_fewest_then_waits_for_them_or_for_the_time(client, topic, options):
    topic(counts=(3,))
    reader = make_reader(
        options, startingOffsets='{"0": 3}', minOffsetsPerTrigger=5, maxTriggerDelay="10s"
    )
    limit = reader.getDefaultReadLimit()
    now = reader.now = _Clock()
    reader.latestOffset({"t": {"0": 2}}, EVERYTHING)
    start = {"t": {"0": 3}}
    assert limit == ReadMinRows(5)

    send(client, options, 0, 4)
    assert reader.latestOffset(start, limit) == start
    assert plain(reader.latestOffset(start, EVERYTHING)) == {"t": {"0": 7}}
    now.seconds += 9
    assert reader.latestOffset(start, limit) == start
    now.seconds += 1
    assert plain(reader.latestOffset(start, limit)) == {"t": {"0": 7}}
    # The time counts from the last batch on.
    assert reader.latestOffset(start, limit) == start
    send(client, options, 0, 1)
    assert plain(reader.latestOffset(start, limit)) == {"t": {"0": 8}}


class _Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def test_stream_when_it_has_a_fewest_and_a_most_then_both_hold(client, topic, options):
    topic(counts=(3,))
    reader = make_reader(
        options, startingOffsets="earliest", minOffsetsPerTrigger=4, maxOffsetsPerTrigger=5
    )
    limit = reader.getDefaultReadLimit()

    assert reader.latestOffset({}, limit) == {}
    send(client, options, 0, 7)
    assert plain(reader.latestOffset({}, limit)) == {"t": {"0": 5}}


def test_stream_when_only_what_is_available_is_read_then_later_messages_wait(
    client, topic, options
):
    topic(counts=(3, 3))
    reader = make_reader(options, startingOffsets="earliest", minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    send(client, options, 0, 4)
    client.create_partitions(options["stream"], "t", 1)
    send(client, options, 2, 1)

    first = reader.latestOffset({}, reader.getDefaultReadLimit())

    assert plain(first) == {"t": {"0": 3, "1": 3}}
    assert reader.latestOffset(first, EVERYTHING) == first
    # A query that was ahead of the target when it was restarted is simply done.
    assert plain(reader.latestOffset({"t": {"0": 6, "1": 3}}, EVERYTHING)) == {
        "t": {"0": 6, "1": 3}
    }
    assert plain(make_reader(options).latestOffset(first, EVERYTHING)) == {
        "t": {"0": 7, "1": 3, "2": 1}
    }


def test_stream_when_partitions_are_added_then_they_are_read_from_their_beginning(
    client, topic, options
):
    topic(counts=(3,))
    reader = make_reader(options)
    first = reader.latestOffset({}, EVERYTHING)

    client.create_partitions(options["stream"], "t", 2)
    assert reader.latestOffset(first, EVERYTHING) == first
    send(client, options, 2, 4)
    second = reader.latestOffset(first, EVERYTHING)

    assert plain(second) == {"t": {"0": 3, "2": 4}}
    assert spans(reader, first, second) == [(2, 0, 4)]


def test_stream_when_a_topic_is_added_to_the_option_then_it_is_read_from_its_beginning(
    client, topic, options
):
    topic("a", (3,))
    topic("b", (4,))
    first = make_reader(options, topic="a").latestOffset({}, EVERYTHING)
    reader = make_reader(options, topic="a,b")

    second = reader.latestOffset(first, EVERYTHING)

    assert plain(second) == {"a": {"0": 3}, "b": {"0": 4}}
    assert [(one.topic, one.start, one.end) for one in reader.partitions(first, second)] == [
        ("b", 0, 4)
    ]
    # And without one of them the query goes on with the other.
    send(client, options, 0, 1, topic="b")
    assert plain(make_reader(options, topic="b").latestOffset(second, EVERYTHING)) == {
        "b": {"0": 5}
    }


def test_stream_when_a_pattern_is_given_then_topics_that_come_and_go_are_noticed(
    client, topic, options
):
    given = {**options, "topicPattern": "orders-.*", "startingOffsets": "earliest"}
    del given["topic"]
    reader = make_reader(given)
    topic("other", (1,))
    assert reader.latestOffset({}, EVERYTHING) == {}

    topic("orders-a", (3,))
    first = reader.latestOffset({}, EVERYTHING)
    topic("orders-b", (2,))
    topic("orders", (2,))
    second = reader.latestOffset(first, EVERYTHING)

    assert plain(first) == {"orders-a": {"0": 3}}
    assert plain(second) == {"orders-a": {"0": 3}, "orders-b": {"0": 2}}
    assert [(one.topic, one.start, one.end) for one in reader.partitions(first, second)] == [
        ("orders-b", 0, 2)
    ]
    client.delete_topic(options["stream"], "orders-a")
    send(client, options, 0, 1, topic="orders-b")
    with pytest.raises(DataLossError, match="topic 'orders-a' partition 0 does not exist any more"):
        reader.latestOffset(second, EVERYTHING)
    loose = make_reader(given, failOnDataLoss="false")
    assert plain(loose.latestOffset(second, EVERYTHING)) == {"orders-b": {"0": 3}}
    # With another pattern the query goes on with what that one selects.
    narrow = make_reader({**given, "topicPattern": "orders-b"})
    assert plain(narrow.latestOffset(second, EVERYTHING)) == {"orders-b": {"0": 3}}


def test_stream_when_each_partition_has_its_time_then_the_first_batch_only_fixes_the_start(
    topic, options
):
    topic(counts=(3, 2))
    times = json.dumps({"t": {"0": 0, "1": 4_000_000_000_000}})
    given = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}
    reader = make_reader(options, **given)

    first = reader.latestOffset({}, EVERYTHING)

    assert plain(first) == {"t": {"0": 0, "1": 2}}
    assert spans(reader, {}, first) == []


def test_stream_when_a_topic_was_purged_then_that_is_a_loss_unless_told_otherwise(
    client, topic, options
):
    topic(counts=(10,))
    first = {"t": {"0": 10}}
    client.purge_topic(options["stream"], "t")
    send(client, options, 0, 3)

    with pytest.raises(DataLossError, match="from offset 10 on and ends before 3: it was purged"):
        make_reader(options).latestOffset(first, EVERYTHING)

    loose = make_reader(options, failOnDataLoss="false", maxOffsetsPerTrigger=1)
    second = loose.latestOffset(first, ReadMaxRows(100))
    assert plain(second) == {"t": {"0": 3}}
    assert spans(loose, first, second) == [(0, 0, 3)]


def test_stream_when_partitions_were_deleted_then_that_is_a_loss_unless_told_otherwise(
    client, topic, options
):
    topic(counts=(1, 1))
    client.delete_partitions(options["stream"], "t", 1)
    first = {"t": {"0": 1, "1": 1}}

    with pytest.raises(DataLossError, match="topic 't' partition 1 does not exist any more"):
        make_reader(options).latestOffset(first, EVERYTHING)

    send(client, options, 0, 1)
    loose = make_reader(options, failOnDataLoss="false")
    assert plain(loose.latestOffset(first, EVERYTHING)) == {"t": {"0": 2}}


def empty_by_retention(client, options):
    """Delete all messages of a partition; return the offset that comes next."""
    for number in range(200):
        client.send_messages(options["stream"], "t", [b"%04d" % number * 100], partition_id=0)
        client.delete_segments(options["stream"], "t", 0, 1)
        (state,) = client.get_topic(options["stream"], "t", required=True).partitions
        if not state.messages_count:
            return state.current_offset + 1
    raise AssertionError("the segments never were all sealed")


def test_stream_when_retention_has_emptied_the_topic_then_begins_where_messages_will_come(
    client, topic, options
):
    topic(counts=(0,))
    begin = empty_by_retention(client, options)
    assert begin > 0
    reader = make_reader(options, startingOffsets="earliest")

    first = reader.latestOffset({}, EVERYTHING)
    assert plain(first) == {"t": {"0": begin}}
    assert spans(reader, {}, first) == []
    assert reader.latestOffset(first, EVERYTHING) == first
    send(client, options, 0, 3)
    second = make_reader(options).latestOffset(first, EVERYTHING)
    assert spans(make_reader(options), first, second) == [(0, begin, begin + 3)]

    # A query that starts now begins with what there is, and so does a batch.
    assert spans(reader, {}, reader.latestOffset({}, EVERYTHING)) == [(0, begin, begin + 3)]


def test_stream_when_its_first_batch_is_repeated_then_it_is_the_same_one(client, topic, options):
    topic(counts=(0,))
    for number in range(40):
        client.send_messages(options["stream"], "t", [b"%04d" % number * 100], partition_id=0)
    reader = make_reader(options, startingOffsets="earliest")
    first = reader.latestOffset({}, EVERYTHING)
    client.delete_segments(options["stream"], "t", 0, 2)

    again = make_reader(options, startingOffsets="earliest")
    (part,) = again.partitions({}, first)

    assert (part.start, part.end) == (0, 40)
    with pytest.raises(DataLossError, match=r"offsets 0 to \d+ are gone"):
        list(again.read(part))


def make_anew(client, options, how, count):
    """Have the offsets of a topic start over, and grow beyond what was there before."""
    stream = options["stream"]
    if how == "purged":
        client.purge_topic(stream, "t")
    elif how == "partition":
        client.delete_partitions(stream, "t", 1)
        client.create_partitions(stream, "t", 1)
    else:
        client.delete_topic(stream, "t")
        client.create_topic(stream, "t", 1)
    partition = 1 if how == "partition" else 0
    send(client, options, partition, count)
    return partition


@pytest.mark.parametrize("how", ["topic", "partition", "purged"])
def test_stream_when_offsets_start_over_and_grow_longer_then_that_is_a_loss_unless_told_otherwise(
    client, topic, options, how
):
    topic(counts=(10, 10) if how == "partition" else (10,))
    first = make_reader(options, startingOffsets="earliest").latestOffset({}, EVERYTHING)
    at = make_anew(client, options, how, 25)

    with pytest.raises(
        DataLossError, match=f"partition {at} was made anew, or purged, after .* offset 10; set"
    ):
        make_reader(options).latestOffset(first, EVERYTHING)

    loose = make_reader(options, failOnDataLoss="false")
    second = loose.latestOffset(first, EVERYTHING)
    assert spans(loose, first, second) == [(at, 0, 25)]
    # Another process that repeats the micro-batch reads the same, and the query goes on from there.
    assert spans(make_reader(options, failOnDataLoss="false"), first, second) == [(at, 0, 25)]
    send(client, options, at, 1)
    strict = make_reader(options)
    assert spans(strict, second, strict.latestOffset(second, EVERYTHING)) == [(at, 25, 26)]


def test_stream_when_the_topic_is_made_anew_before_a_batch_is_read_then_nothing_wrong_is_read(
    client, topic, options
):
    topic(counts=(10,))
    first = make_reader(options, startingOffsets="earliest").latestOffset({}, EVERYTHING)
    make_anew(client, options, "topic", 25)

    with pytest.raises(DataLossError, match="before the micro-batch that ends with offset 10"):
        make_reader(options, startingOffsets="earliest").partitions({}, first)

    loose = make_reader(options, startingOffsets="earliest", failOnDataLoss="false")
    assert spans(loose, {}, first) == []
    assert spans(loose, first, loose.latestOffset(first, EVERYTHING)) == [(0, 0, 25)]


def test_stream_when_the_checkpoint_is_of_before_then_goes_on_and_takes_the_identity(
    client, topic, options
):
    topic(counts=(10, 4))
    start = {"t": {"0": 7, "1": 4}}
    reader = make_reader(options)

    second = reader.latestOffset(start, EVERYTHING)

    assert plain(second) == {"t": {"0": 10, "1": 4}}
    assert (
        spans(reader, start, second) == spans(make_reader(options), start, second) == [(0, 7, 10)]
    )
    assert reader.latestOffset(plain(second), EVERYTHING) == plain(second)
    make_anew(client, options, "topic", 25)
    with pytest.raises(DataLossError):
        make_reader(options).latestOffset(second, EVERYTHING)


def test_stream_when_the_server_restarts_then_partitions_are_the_same(
    spark_server, client, topic, options
):
    topic(counts=(10,))
    first = make_reader(options, startingOffsets="earliest").latestOffset({}, EVERYTHING)

    spark_server.restart()
    send(client, options, 0, 1)

    assert plain(make_reader(options).latestOffset(first, EVERYTHING)) == {"t": {"0": 11}}


def test_stream_when_asked_for_progress_then_tells_where_topics_end(topic, options):
    topic(counts=(2, 0))

    assert make_reader(options).reportLatestOffset() == {"t": {"0": 2, "1": 0}}
