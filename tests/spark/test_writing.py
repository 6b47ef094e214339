"""The writer before any task runs: what it refuses, and what it makes ready."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from iggy_sdk import TopicDiffersWarning
from spark_jobs import IggyDataSource, OptionError, SchemaError

KINDS = {"payload": StringType(), "key": StringType(), "partition": IntegerType()}


def make_writer(options, *columns, overwrite=False, streaming=False, **more):
    given = {name: str(value) for name, value in {**options, **more}.items()}
    source = IggyDataSource(CaseInsensitiveDict(given))
    schema = StructType([StructField(name, KINDS.get(name, StringType())) for name in columns])
    make = source.streamWriter if streaming else source.writer
    return make(schema, overwrite)


def test_writer_when_the_topic_is_missing_then_it_is_created_if_that_was_asked_for(
    client, stream, options
):
    with pytest.raises(OptionError, match=r"no topic 't' in stream .* set createTopic to the numb"):
        make_writer(options, "payload")

    make_writer(options, "payload", createTopic=3)
    with pytest.warns(TopicDiffersWarning, match="3 partitions instead of 5"):
        make_writer(options, "payload", createTopic=5)

    assert client.get_topic(stream, "t", required=True).partitions_count == 3


def test_writer_when_the_stream_is_missing_as_well_then_both_are_created(client, options):
    make_writer({**options, "stream": f"{options['stream']}-new"}, "payload", createTopic=1)

    assert client.get_topic(f"{options['stream']}-new", "t") is not None


def test_writer_when_the_topic_has_no_partitions_then_says_so(client, stream, options):
    client.create_topic(stream, "t", 1)
    client.delete_partitions(stream, "t", 1)

    with pytest.raises(OptionError, match="topic 't' has no partitions; add one"):
        make_writer(options, "payload")


@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        (("payload",), {}, "balanced"),
        (("payload", "key"), {}, "key"),
        (("payload", "key", "partition"), {"partitioning": "partition"}, "partition"),
        (("payload", "key"), {"partitioning": "balanced"}, "balanced"),
        (("payload",), {"partitioning": "1"}, 1),
    ],
)
def test_partitioning_when_chosen_then_goes_by_the_option_or_the_columns(
    topic, options, columns, given, expected
):
    topic(counts=(0, 0))

    assert make_writer(options, *columns, **given).partitioning == expected


def test_writer_when_a_batch_would_overwrite_then_says_what_to_do(topic, options):
    topic(counts=(0,))

    with pytest.raises(OptionError, match="can only be appended to; use mode"):
        make_writer(options, "payload", overwrite=True)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("columns", "given", "error", "answer"),
    [
        (("value",), {}, SchemaError, "there is no column payload"),
        (("payload",), {"partitioning": "key"}, OptionError, "there is no column key; add it"),
        (("payload",), {"partitioning": "partition"}, OptionError, "no column partition; add it"),
        (("payload",), {"partitioning": "2"}, OptionError, "has partitions 0 to 1; choose one"),
        (("payload",), {"consumer": "x"}, OptionError, "consumer is for a streaming read"),
    ],
)
def test_writer_when_it_cannot_write_then_the_answer_helps(
    topic, options, columns, given, error, answer, streaming
):
    topic(counts=(0, 0))

    with pytest.raises(error, match=answer):
        make_writer(options, *columns, streaming=streaming, **given)


def test_writer_when_sent_to_a_task_then_the_same_write_has_the_same_name(topic, options):
    topic(counts=(0,))
    first, second = make_writer(options, "payload"), make_writer(options, "payload")

    there = cloudpickle.loads(cloudpickle.dumps(first))

    assert there._name == first._name != second._name
    assert "@" not in repr(first._options)
