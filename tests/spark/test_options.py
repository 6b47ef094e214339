"""Options: each with its meaning, and each mistake with its answer."""

from __future__ import annotations

import pickle

import pytest

from spark_jobs import OptionError
from spark_jobs.offsets import EARLIEST, LATEST, Position, TopicPartition
from spark_jobs.options import QueryKind, read_options, write_options

PLACE = {"server": "iggy://ann:s3cret@host", "stream": "shop", "topic": "orders"}


def batch(**given):
    return read_options({**PLACE, **given}, QueryKind.BATCH)


def streaming(**given):
    return read_options({**PLACE, **given}, QueryKind.STREAM)


def writing(**given):
    return write_options({**PLACE, **given})


def test_options_when_only_the_place_is_given_then_the_rest_has_defaults():
    read, stream, write = batch(), streaming(), writing()

    assert (read.stream, read.topics, read.starting, read.ending) == (
        "shop",
        ("orders",),
        EARLIEST,
        LATEST,
    )
    assert stream.starting == LATEST
    assert (stream.fail_on_data_loss, stream.include_headers, stream.consumer) == (
        True,
        False,
        None,
    )
    assert (stream.max_trigger_delay_s, stream.poll_count) == (900.0, None)
    assert (write.topic, write.partitioning, write.idempotent) == ("orders", None, True)
    assert (write.send_batch, write.writer_id, write.create_topic) == (1000, None, None)


def test_options_when_spark_forgets_the_case_then_they_are_found_all_the_same():
    assert batch(MINPARTITIONS="7", failondataloss="FALSE").min_partitions == 7
    assert not batch(failondataloss="FALSE").fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("maxOffsetsPerTrigger", "5", "max_offsets_per_trigger", 5),
        ("minOffsetsPerTrigger", "5", "min_offsets_per_trigger", 5),
        ("minPartitions", "5", "min_partitions", 5),
        ("maxRecordsPerTask", "5", "max_records_per_task", 5),
        ("pollCount", "5", "poll_count", 5),
        ("includeHeaders", "true", "include_headers", True),
        ("consumer", "lake", "consumer", "lake"),
        ("startingOffsets", "earliest", "starting", EARLIEST),
        (
            "startingTimestamp",
            "1700000000000",
            "starting",
            Position("timestamp", timestamp_us=1_700_000_000_000_000),
        ),
        (
            "startingTimestamp",
            "2023-11-14T22:13:20Z",
            "starting",
            Position("timestamp", timestamp_us=1_700_000_000_000_000),
        ),
        (
            "startingTimestamp",
            "2023-11-14 23:13:20.000001+01:00",
            "starting",
            Position("timestamp", timestamp_us=1_700_000_000_000_001),
        ),
    ],
)
def test_options_when_given_for_a_stream_then_are_read(name, text, field, value):
    assert getattr(streaming(**{name: text}), field) == value


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 min", 120), ("1H", 3600)]
)
def test_trigger_delay_when_given_with_a_unit_then_is_read(text, seconds):
    given = streaming(minOffsetsPerTrigger="1", maxTriggerDelay=text)

    assert given.max_trigger_delay_s == seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("balanced", "balanced"), ("KEY", "key"), ("partition", "partition"), ("3", 3)],
)
def test_partitioning_when_given_then_is_read(text, value):
    assert writing(partitioning=text).partitioning == value


def test_writing_when_all_is_given_then_is_read():
    given = writing(idempotent="true", sendBatch="50", writerId="nightly", createTopic="4")

    assert (given.send_batch, given.writer_id, given.create_topic) == (50, "nightly", 4)


@pytest.mark.parametrize(
    ("text", "topics"),
    [("a", ("a",)), (" a , b ", ("a", "b")), ('["a,b", "c"]', ("a,b", "c"))],
)
def test_topics_when_several_are_given_then_all_are_read(text, topics):
    assert batch(topic=text).topics == topics


def test_offsets_when_given_as_json_then_each_partition_has_its_own():
    one = batch(startingOffsets='{"0": 23, "1": -2}').starting
    two = batch(topic="a,b", endingOffsets='{"a": {"0": 5}, "b": {"0": -1}}').ending

    assert one.offsets == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}
    assert two.offsets == {TopicPartition("a", 0): 5, TopicPartition("b", 0): -1}


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": "latest"}, False),
        ({"startingOffsets": '{"0": 3}'}, True),
        ({"startingOffsets": '{"0": 3, "1": -1}'}, False),
        ({"startingTimestamp": "5"}, False),
    ],
)
def test_start_when_it_depends_on_the_moment_then_is_not_settled(given, settled):
    assert streaming(**given).starting.is_settled is settled


MISTAKES = [
    (batch, {"startngOffsets": "x"}, "no option 'startngOffsets'; did you mean startingOffsets"),
    (batch, {"kafka.zzz": "x"}, "no option 'kafka.zzz'; there are url, server, user"),
    (batch, {"path": "x"}, "without one"),
    (batch, {"topic": ""}, "topic is empty"),
    (batch, {"topic": "a,,b"}, "give a name"),
    (batch, {"topic": "[1]"}, "give a name"),
    (batch, {"topic": "[oops"}, "give a name"),
    (batch, {"topic": "[]"}, "give a name"),
    (batch, {"topic": "a,a"}, "twice"),
    (batch, {"minPartitions": "0"}, "whole number at least 1"),
    (batch, {"minPartitions": "-3"}, "whole number at least 1"),
    (batch, {"minPartitions": "many"}, "whole number at least 1"),
    (batch, {"pollCount": "1000001"}, "from 1 to 1000000"),
    (batch, {"failOnDataLoss": "yes"}, "give true or false"),
    (batch, {"startingOffsets": "newest"}, "give earliest, latest, or offsets"),
    (batch, {"startingOffsets": "{}"}, "give earliest, latest, or offsets"),
    (batch, {"startingOffsets": '{"0": true}'}, "give earliest, latest, or offsets"),
    (batch, {"startingOffsets": '{"0": -3}'}, "give earliest, latest, or offsets"),
    (batch, {"startingOffsets": '{"zero": 3}'}, "give earliest, latest, or offsets"),
    (batch, {"startingOffsets": '{"0": 1}', "topic": "a,b"}, '"topic": {"0": 23'),
    (batch, {"startingOffsets": '{"others": {"0": 1}}'}, "['others'], which the option topic"),
    (batch, {"startingOffsets": "latest"}, "reads nothing; use earliest"),
    (batch, {"endingOffsets": "earliest"}, "reads nothing; use latest"),
    (batch, {"startingTimestamp": "1700000000000000"}, "milliseconds since 1970"),
    (batch, {"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    (batch, {"startingTimestamp": "1", "startingOffsets": "earliest"}, "not both"),
    (batch, {"endingTimestamp": "1", "endingOffsets": "latest"}, "not both"),
    (batch, {"consumer": "x"}, "consumer is for a streaming read"),
    (batch, {"maxOffsetsPerTrigger": "1"}, "for a streaming read (spark.readStream), not for a b"),
    (batch, {"sendBatch": "1"}, "sendBatch is for a write, not for a batch read"),
    (streaming, {"endingOffsets": "latest"}, "endingOffsets is for a batch read"),
    (streaming, {"endingTimestamp": "1"}, "endingTimestamp is for a batch read"),
    (streaming, {"maxTriggerDelay": "5m"}, "needs minOffsetsPerTrigger"),
    (streaming, {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "5 days"}, "such as 500ms"),
    (streaming, {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "lower it"),
    (writing, {"startingOffsets": "latest"}, "is for a batch read (spark.read) or a streaming r"),
    (writing, {"topic": "a,b"}, "one topic"),
    (writing, {"partitioning": "random"}, "balanced, key, partition, or the number"),
    (writing, {"partitioning": "-1"}, "balanced, key, partition, or the number"),
    (writing, {"createTopic": "1001"}, "from 1 to 1000"),
    (writing, {"writerId": "x", "idempotent": "false"}, "leave one out"),
]


@pytest.mark.parametrize(("read", "given", "answer"), MISTAKES)
def test_options_when_mistaken_then_the_answer_helps_and_keeps_the_secret(read, given, answer):
    with pytest.raises(OptionError) as caught:
        read(**given)

    assert answer in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("missing", ["stream", "topic"])
def test_options_when_one_is_missing_then_the_answer_shows_how_to_add_it(missing):
    given = {name: value for name, value in PLACE.items() if name != missing}

    with pytest.raises(
        OptionError, match=rf'option {missing} is missing; add .option\("{missing}"'
    ):
        read_options(given, QueryKind.STREAM)


@pytest.mark.parametrize(
    "options", [batch(), streaming(), writing()], ids=["batch", "stream", "write"]
)
def test_options_when_shown_then_the_connection_string_is_not(options):
    assert "s3cret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def by_pattern(**given):
    return read_options({"server": "iggy://host", "stream": "shop", **given}, QueryKind.STREAM)


def test_topics_when_a_pattern_is_given_then_whole_names_have_to_match():
    read = by_pattern(topicPattern="orders(-[a-z]+)?", startingOffsets='{"orders": {"0": 3}}')

    assert read.topics == ()
    assert [read.includes(name) for name in ("orders", "orders-eu", "my-orders", "orders-1")] == [
        True,
        True,
        False,
        False,
    ]
    assert read.starting.offsets == {TopicPartition("orders", 0): 3}


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"topicPattern": "a", "topic": "a"}, "give topic or topicPattern, not both"),
        ({"topicPattern": "("}, r"topicPattern is '\(', which is no regular expression"),
        ({"topicPattern": "a", "startingOffsets": '{"0": 3}'}, r'as \{"topic": \{"0": 23'),
        (
            {"topic": "a", "startingOffsetsByTimestamp": '{"0": 1, "1": "x"}'},
            'milliseconds since 1970 for each partition, as {"0": 1769860800000',
        ),
        (
            {"topic": "a", "startingOffsetsByTimestamp": '{"0": 1769860800000000}'},
            "milliseconds since 1970 for each partition",
        ),
        (
            {"topic": "a", "startingOffsetsByTimestamp": '{"b": {"0": 1}}'},
            r"names \['b'\], which the option topic does not",
        ),
        (
            {"topic": "a", "startingTimestamp": "1", "startingOffsetsByTimestamp": '{"0": 1}'},
            "give startingTimestamp or startingOffsetsByTimestamp, not both",
        ),
        (
            {"topic": "a", "startingOffsetsByTimestampStrategy": "latest"},
            "needs startingOffsetsByTimestamp or startingTimestamp",
        ),
        (
            {
                "topic": "a",
                "startingTimestamp": "1",
                "startingOffsetsByTimestampStrategy": "first",
            },
            "is 'first'; give error or latest",
        ),
    ],
)
def test_topics_and_times_when_they_are_wrong_then_the_answer_says_what_to_give(given, answer):
    with pytest.raises(OptionError, match=answer):
        by_pattern(**given)


def test_times_when_given_for_each_partition_then_they_are_errors_beyond_the_end_by_default():
    given = {"topic": "a", "startingOffsetsByTimestamp": '{"0": 5, "1": 6}'}

    strict = by_pattern(**given).starting
    loose = by_pattern(**given, startingOffsetsByTimestampStrategy="latest").starting

    times_us = {TopicPartition("a", 0): 5000, TopicPartition("a", 1): 6000}
    assert strict == Position("timestamp", timestamps_us=times_us, needs_message=True)
    assert loose == Position("timestamp", timestamps_us=times_us)
    assert not strict.is_settled
