"""The batch reader and its tasks, without Spark around them and against a real server."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from iggy_sdk import Message, PollingStrategy, StreamNotFoundError, TopicNotFoundError
from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer
from spark_jobs import DataLossError, IggyDataSource, IggyPushdownDataSource, OptionError
from spark_jobs.reader import OffsetSlice
from spark_jobs.schema import read_schema


def make_reader(options, *, source=IggyDataSource, schema=None, **more):
    given = {name: str(value) for name, value in {**options, **more}.items()}
    made = source(CaseInsensitiveDict(given))
    return made.reader(made.schema() if schema is None else schema)


def read_all(reader):
    """Read as Spark does: plan, send everything elsewhere, read there."""
    there = cloudpickle.loads(cloudpickle.dumps(reader))
    slices = [pickle.loads(pickle.dumps(one)) for one in reader.partitions()]
    return [row for one in slices for rows in there.read(one) for row in rows.to_pylist()]


def places(rows):
    return sorted((row["partition"], row["offset"]) for row in rows)


def expected(*counts):
    return [(number, at) for number, count in enumerate(counts) for at in range(count)]


def test_read_when_nothing_is_said_then_brings_every_message_with_all_columns(
    client, topic, options
):
    topic()

    rows = read_all(make_reader(options))

    assert places(rows) == expected(10, 20, 30)
    assert set(rows[0]) == set(read_schema(include_headers=False).fieldNames())
    batch = client.poll_messages(
        options["stream"],
        "t",
        consumer=_reader(),
        partition_id=2,
        strategy=PollingStrategy.offset(7),
        count=1,
    )
    (row,) = [row for row in rows if (row["partition"], row["offset"]) == (2, 7)]
    assert (row["payload"], row["id"]) == (b"2-7", batch[0].uuid.bytes)
    assert (row["timestamp"], row["origin_timestamp"]) == (
        batch[0].timestamp,
        batch[0].origin_timestamp,
    )
    assert (row["stream"], row["topic"]) == (options["stream"], "t")


def _reader():
    from spark_jobs.topics import POLL_CONSUMER

    return POLL_CONSUMER


def test_read_when_several_topics_are_named_then_brings_all_of_them(topic, options):
    topic("a", (2, 3))
    topic("b", (1,))

    rows = read_all(make_reader(options, topic="a,b"))

    assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == [
        ("a", 0, 0),
        ("a", 0, 1),
        ("a", 1, 0),
        ("a", 1, 1),
        ("a", 1, 2),
        ("b", 0, 0),
    ]


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"startingOffsets": '{"0": 4, "1": -1, "2": -2}'}, (6, 0, 30)),
        ({"endingOffsets": '{"0": 4, "1": -1, "2": 0}'}, (4, 20, 0)),
        (
            {
                "startingOffsets": '{"0": 3, "1": 3, "2": 3}',
                "endingOffsets": '{"0": 5, "1": 4, "2": 3}',
            },
            (2, 1, 0),
        ),
    ],
)
def test_read_when_offsets_are_given_then_brings_what_lies_between(topic, options, given, counts):
    topic()

    rows = read_all(make_reader(options, **given))

    assert tuple(sum(row["partition"] == number for row in rows) for number in range(3)) == counts


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"startingOffsets": '{"0": 0, "1": 0}'}, "lacks topic 't' partition 2; add"),
        ({"startingOffsets": '{"0": 0, "1": 0, "2": 0, "3": 0}'}, "do not exist: topic 't' p"),
        ({"endingOffsets": '{"0": 0}'}, "endingOffsets lacks topic 't' partition 1,"),
    ],
)
def test_read_when_offsets_do_not_fit_the_topic_then_refuses(topic, options, given, answer):
    topic()

    with pytest.raises(OptionError) as caught:
        make_reader(options, **given).partitions()

    assert answer in str(caught.value)


def test_read_when_offsets_lie_beyond_the_end_then_that_is_a_loss_unless_told_otherwise(
    topic, options
):
    topic(counts=(10,))

    with pytest.raises(DataLossError, match="offset 11 was asked for, and it ends before 10"):
        make_reader(options, endingOffsets='{"0": 11}').partitions()

    rows = read_all(make_reader(options, endingOffsets='{"0": 11}', failOnDataLoss="false"))
    assert places(rows) == expected(10)


def test_read_when_times_are_given_then_brings_what_was_stored_between(client, topic, options):
    topic(counts=(5, 5))
    times = {row["timestamp"] for row in read_all(make_reader(options))}
    after = max(times) + timedelta(milliseconds=2)
    _wait_for_the_clock(client, options["stream"], after)
    client.send_messages(options["stream"], "t", [b"late"], partition_id=1)

    early = read_all(make_reader(options, endingTimestamp=after.isoformat()))
    late = read_all(make_reader(options, startingTimestamp=after.isoformat()))
    none = read_all(make_reader(options, startingTimestamp="2100-01-01T00:00:00Z"))

    assert (places(early), [row["payload"] for row in late], none) == (
        expected(5, 5),
        [b"late"],
        [],
    )


def test_read_when_each_partition_has_its_time_then_that_is_where_it_begins_or_ends(
    client, topic, options
):
    topic(counts=(5, 5))
    after = max(row["timestamp"] for row in read_all(make_reader(options)))
    after += timedelta(milliseconds=2)
    _wait_for_the_clock(client, options["stream"], after)
    for partition in range(2):
        client.send_messages(options["stream"], "t", [b"late"], partition_id=partition)
    time = int(after.timestamp() * 1000) + 1
    mixed = json.dumps({"0": time, "1": 0})
    beyond = json.dumps({"t": {"0": 4_000_000_000_000, "1": time}})

    late = read_all(make_reader(options, startingOffsetsByTimestamp=mixed))
    early = read_all(make_reader(options, endingOffsetsByTimestamp=mixed))
    never = make_reader(
        options,
        startingOffsetsByTimestamp=beyond,
        startingOffsetsByTimestampStrategy="latest",
    )

    assert places(late) == [(0, 5), *((1, at) for at in range(6))]
    assert places(early) == expected(5, 0)
    assert places(read_all(never)) == [(1, 5)]
    with pytest.raises(OptionError, match="partition 0 has no message from 4000000000000 ms"):
        make_reader(options, startingOffsetsByTimestamp=beyond).partitions()
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp lacks topic 't' partition 1"):
        make_reader(options, startingOffsetsByTimestamp='{"0": 0}').partitions()


def test_read_when_a_start_beyond_the_end_is_an_error_then_says_so(topic, options):
    topic(counts=(1,))
    given = {"startingTimestamp": "2100-01-01T00:00:00Z"}

    assert read_all(make_reader(options, **given)) == []
    with pytest.raises(OptionError, match="set startingOffsetsByTimestampStrategy to latest"):
        make_reader(options, **given, startingOffsetsByTimestampStrategy="error").partitions()


@pytest.fixture
def pattern(options):
    """Return the options with a pattern instead of a topic."""
    given = {**options, "topicPattern": "or.*s"}
    del given["topic"]
    return given


def test_read_when_a_pattern_is_given_then_brings_the_topics_that_match_as_a_whole(topic, pattern):
    for name in ("orders", "ors", "more-orders", "orders-dead"):
        topic(name, (2,))

    rows = read_all(make_reader(pattern))

    assert sorted((row["topic"], row["offset"]) for row in rows) == [
        *(("orders", at) for at in range(2)),
        *(("ors", at) for at in range(2)),
    ]
    ends = json.dumps({"orders": {"0": 1}, "ors": {"0": -1}})
    assert len(read_all(make_reader(pattern, endingOffsets=ends))) == 3


def test_read_when_no_topic_matches_the_pattern_then_there_is_nothing(stream, pattern):
    assert make_reader(pattern).partitions() == []
    with pytest.raises(StreamNotFoundError):
        make_reader({**pattern, "stream": "none"}).partitions()


def test_read_when_a_topic_is_deleted_meanwhile_then_that_is_a_loss_unless_told_otherwise(
    client, topic, options
):
    topic(counts=(5,))
    reader = make_reader(options)
    (part,) = reader.partitions()
    client.delete_topic(options["stream"], "t")

    with pytest.raises(DataLossError, match="topic 't' partition 0 was deleted before it was read"):
        list(reader.read(part))
    assert list(make_reader(options, failOnDataLoss="false").read(part)) == []


def _wait_for_the_clock(client, stream, moment):
    """Send elsewhere until the server's clock has passed a moment."""
    client.create_topic(stream, "clock")
    now = datetime(1970, 1, 1, tzinfo=UTC)
    while now <= moment:
        client.send_messages(stream, "clock", [b"tick"], partition_id=0)
        (last,) = client.poll_messages(
            stream, "clock", consumer=_reader(), strategy=PollingStrategy.last(), count=1
        )
        now = last.timestamp


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ({}, 3),
        ({"minPartitions": 12}, 12),
        ({"maxRecordsPerTask": 7}, 10),
        ({"minPartitions": 99}, 60),
    ],
)
def test_read_when_tasks_are_asked_for_then_all_is_divided_among_them(topic, options, given, tasks):
    topic()
    reader = make_reader(options, **given)

    assert len(reader.partitions()) == tasks
    assert places(read_all(reader)) == expected(10, 20, 30)


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_read_when_the_size_of_polls_is_given_then_brings_the_same(topic, options, count):
    topic(counts=(25,))
    reader = make_reader(options, pollCount=count)

    batches = [rows.num_rows for one in reader.partitions() for rows in reader.read(one)]

    assert max(batches) == min(count, 25)
    assert sum(batches) == 25


def test_read_when_nothing_is_said_about_polls_then_they_grow_with_small_messages(topic, options):
    topic(counts=(5000,))
    reader = make_reader(options)

    batches = [rows.num_rows for one in reader.partitions() for rows in reader.read(one)]

    assert batches == [1000, 4000]


def test_read_when_a_topic_is_empty_then_there_is_nothing_to_do(topic, options):
    topic(counts=(0, 0))
    reader = make_reader(options)

    assert reader.partitions() == []
    # Spark makes up a partition for an empty plan.
    assert list(reader.read(InputPartition(None))) == []


def test_read_when_there_is_no_topic_then_says_so(stream, options):
    with pytest.raises(TopicNotFoundError, match="has no topic 't'"):
        make_reader(options).partitions()


def test_read_when_the_server_speaks_0_8_as_well_then_polls_use_it_and_bring_the_same(
    client, topic, stream, options
):
    topic(counts=(3,))
    client.send_messages(stream, "t", [Message(b"x", headers={"n": 1})], partition_id=0)
    whole = read_schema(include_headers=True).add("checksum", LongType())
    newest = {**options, "server": f"{options['server']}?protocol=0.10"}

    readers = [make_reader(one, schema=whole, includeHeaders="true") for one in (options, newest)]

    parts = [reader.partitions() for reader in readers]
    assert [[one.is_classic for one in some] for some in parts] == [[True], [False]]
    assert read_all(readers[0]) == read_all(readers[1])


def make_sealed_segments(client, stream, *, count=40):
    """Fill several small segments, so that some can be deleted."""
    client.create_topic(stream, "t", 1)
    for number in range(count):
        client.send_messages(stream, "t", [b"%04d" % number * 100], partition_id=0)


def delete_oldest(client, stream, count=2):
    client.delete_segments(stream, "t", 0, count)
    return client.poll_messages(
        stream, "t", consumer=_reader(), strategy=PollingStrategy.first(), count=1
    ).first_offset


def test_read_when_retention_overtakes_a_task_then_that_is_a_loss_unless_told_otherwise(
    client, stream, options
):
    make_sealed_segments(client, stream)
    strict, loose = make_reader(options), make_reader(options, failOnDataLoss="false")
    slices = strict.partitions()
    oldest = delete_oldest(client, stream)
    assert oldest > 0

    with pytest.raises(DataLossError, match=rf"offsets 0 to {oldest - 1} are gone.*failOnDataLoss"):
        list(strict.read(slices[0]))

    rows = [row for rows in loose.read(slices[0]) for row in rows.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(oldest, 40))


def test_read_when_retention_takes_a_whole_slice_then_nothing_beyond_it_is_read(
    client, stream, options
):
    make_sealed_segments(client, stream)
    oldest = delete_oldest(client, stream)
    part = OffsetSlice("t", 0, 0, oldest - 1)

    with pytest.raises(DataLossError, match=f"offsets 0 to {oldest - 2} are gone"):
        list(make_reader(options).read(part))

    assert list(make_reader(options, failOnDataLoss="false").read(part)) == []


@pytest.fixture
def gap():
    """Run a server that was killed between two messages, and yield options and the gap it left."""
    with (
        RunningServer(settings={"IGGY_SYSTEM_PARTITION_ACK": "memory"}) as server,
        IggyClient(server.url) as client,
    ):
        client.create_stream("s")
        client.create_topic("s", "t", 1)
        client.send_messages("s", "t", [b"kept"] * 5, partition_id=0)
        client.flush_unsaved_buffer("s", "t", 0, fsync=True)
        client.send_messages("s", "t", [b"lost"], partition_id=0)
        server.kill()
        server.start()
        client.send_messages("s", "t", [b"later"], partition_id=0)
        batch = client.poll_messages(
            "s", "t", consumer=_reader(), strategy=PollingStrategy.last(), count=1
        )
        yield {"server": server.url, "stream": "s", "topic": "t"}, range(5, batch[0].offset)


def test_read_when_a_slice_lies_in_a_gap_then_that_is_no_loss(gap):
    options, missing = gap
    assert len(missing) > 10

    tasks = [
        OffsetSlice("t", 0, 0, 5),
        OffsetSlice("t", 0, 5, 8),
        OffsetSlice("t", 0, 8, missing.stop + 1),
    ]
    reader = make_reader(options)

    assert [_offsets(reader, one) for one in tasks] == [[*range(5)], [], [missing.stop]]
    assert places(read_all(make_reader(options, minPartitions=4))) == [
        *((0, at) for at in range(5)),
        (0, missing.stop),
    ]


def _offsets(reader, part):
    return [offset for rows in reader.read(part) for offset in rows["offset"].to_pylist()]


def test_read_when_a_topic_was_purged_then_that_is_a_loss(client, topic, stream, options):
    topic(counts=(10,))
    reader = make_reader(options)
    (part,) = reader.partitions()
    client.purge_topic(stream, "t")

    with pytest.raises(DataLossError, match="offsets 0 to 9 are gone, it now has no messages"):
        list(reader.read(part))


def test_read_when_the_schema_is_shorter_then_only_its_columns_are_made(topic, options):
    topic(counts=(3,))
    schema = StructType([StructField("payload", StringType()), StructField("offset", LongType())])

    rows = read_all(make_reader(options, schema=schema))

    assert rows == [{"payload": f"0-{at}", "offset": at} for at in range(3)]


FILTERS = [
    ([EqualTo(("partition",), 1)], [], [(1, 0, 20)]),
    ([In(("partition",), (0, 2, 7))], [], [(0, 0, 10), (2, 0, 30)]),
    ([GreaterThan(("partition",), 1)], [], [(2, 0, 30)]),
    ([EqualTo(("partition",), 1), In(("partition",), (0, 2))], [], []),
    ([EqualTo(("offset",), 5)], [], [(0, 5, 6), (1, 5, 6), (2, 5, 6)]),
    ([GreaterThan(("offset",), 25)], [], [(2, 26, 30)]),
    ([GreaterThanOrEqual(("offset",), 25), LessThan(("offset",), 27)], [], [(2, 25, 27)]),
    ([LessThanOrEqual(("offset",), 0)], [], [(0, 0, 1), (1, 0, 1), (2, 0, 1)]),
    ([EqualTo(("topic",), "t"), IsNotNull(("payload",))], [], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([In(("topic",), ("u",))], [], []),
    ([EqualTo(("stream",), "x")], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([IsNotNull(("headers",))], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([Not(EqualTo(("partition",), 1))], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([EqualNullSafe(("offset",), 3)], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([EqualTo(("headers", "x"), 3)], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
    ([EqualTo(("partition",), "one")], [0], [(0, 0, 10), (1, 0, 20), (2, 0, 30)]),
]


@pytest.mark.parametrize(("filters", "left", "slices"), FILTERS)
def test_pushdown_when_filters_are_on_places_then_only_those_are_polled(
    topic, options, filters, left, slices
):
    topic()
    reader = make_reader(options, source=IggyPushdownDataSource)

    assert list(reader.pushFilters(filters)) == [filters[index] for index in left]
    assert [(one.partition, one.start, one.end) for one in reader.partitions()] == slices


def test_pushdown_when_filters_are_on_the_time_then_less_is_polled_and_spark_looks_again(
    client, topic, options
):
    topic(counts=(5,))
    first = read_all(make_reader(options))[0]["timestamp"]
    after = first + timedelta(milliseconds=5)
    _wait_for_the_clock(client, options["stream"], after)
    client.send_messages(options["stream"], "t", [b"late"], partition_id=0)
    since = GreaterThanOrEqual(("timestamp",), after)
    until = LessThan(("timestamp",), after)

    sides = []
    for one in (since, until):
        reader = make_reader(options, source=IggyPushdownDataSource)
        assert list(reader.pushFilters([one])) == [one]
        sides.append([(part.start, part.end) for part in reader.partitions()])

    assert sides == [[(5, 6)], [(0, 5)]]


def test_payload_when_the_producer_compressed_it_then_rows_have_what_was_sent(
    client, stream, options
):
    client.create_topic(stream, "t", 1)
    text = b"the same again and again " * 400
    with client.producer(stream, "t", compression="gzip") as producer:
        producer.send_many([Message(text, headers={"n": 1}), b"short"], partition_id=0)

    rows = read_all(make_reader(options, includeHeaders="true"))

    assert [row["payload"] for row in rows] == [text, b"short"]
    assert dict(rows[0]["headers"])["content-encoding"] == b"gzip"
