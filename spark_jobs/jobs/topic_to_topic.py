"""``iggy-spark-topic-to-topic``: copies messages from one topic to another, with transforms.

Messages of one partition stay together and in order. Transforms run in the order of the command
line.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_run_options,
    add_spark_options,
    count,
    make_parser,
    run_command,
)
from spark_jobs.jobs.queries import run_queries, start_query
from spark_jobs.jobs.rows import DeadLetterWriter, add_dead_letter_options
from spark_jobs.jobs.terminal import (
    FIRST_ROWS,
    StopSignal,
    preview_plan,
    preview_rows,
    print_status,
)
from spark_jobs.jobs.topic_source import TopicSource, add_source_options, server_of
from spark_jobs.jobs.transforms import read_step, transform_payloads
from spark_jobs.options import read_topics, write_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


EXAMPLE = """
  iggy-spark-topic-to-topic --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop \\
      --topic orders --to-topic paid --create-topic 4 --checkpoint state/paid \\
      --filter 'state == "paid"' --delete customer.card --add 'seen=$now' \\
      --dead-letter-topic orders-dead
"""
COLUMNS: Final = (
    "stream STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "origin_timestamp TIMESTAMP, payload BINARY, "
    "headers ARRAY<STRUCT<key: STRING, kind: STRING, value: BINARY>>"
)
STEPS: Final = {
    "--add": "set a field where it is missing: FIELD=VALUE",
    "--update": "set a field where it is there: FIELD=VALUE",
    "--delete": "drop fields: FIELD,FIELD",
    "--keep": "drop all fields but these: FIELD,FIELD",
    "--filter": 'let only such messages through: FIELD>=10, FIELD=="text", FIELD~pattern, FIELD, '
    "!FIELD",
}


class _AppendStep(argparse.Action):
    """Appends a transform to one list, so that their order is that of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        try:
            step = read_step((option_string or "").removeprefix("--"), values)
        except OptionError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        namespace.steps = [*namespace.steps, step]


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command."""
    made = make_parser(
        "iggy-spark-topic-to-topic",
        "Copy a topic to another one and transform its JSON messages, as a stream or once.",
        EXAMPLE,
    )
    made.add_argument(
        "--to-topic", required=True, metavar="TOPIC", help="the topic that is written"
    )
    made.add_argument("--to-stream", metavar="STREAM", help="its stream (default: the same)")
    made.add_argument(
        "--create-topic", type=count, metavar="N", help="create what is missing, with N partitions"
    )
    made.add_argument("--checkpoint", required=True, help="folder of Spark's offsets")
    add_source_options(made)
    group = made.add_argument_group(
        "transforms, in the order given",
        "A VALUE is JSON, or $.FIELD for a copy, or one of $now, $uuid, $stream, $topic, "
        "$partition, $offset, $timestamp; anything else is text. FIELD may be a path, user.name. "
        "Without transforms payloads are copied byte by byte.",
    )
    for name, words in STEPS.items():
        group.add_argument(
            name, action=_AppendStep, dest="steps", default=[], metavar="STEP", help=words
        )
    add_dead_letter_options(made, otherwise="the first such message fails the job")
    add_run_options(made)
    add_spark_options(made)
    return made


def sink_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the sink.

    Raises:
        OptionError: the job would read what it writes.
    """
    stream = given.to_stream or given.stream
    if stream == given.stream and given.to_topic in read_topics(given.topic):
        raise OptionError(f"topic {given.to_topic} would be copied to itself; choose another")
    options = {"server": server_of(given), "stream": stream, "topic": given.to_topic}
    if given.create_topic is not None:
        options["createTopic"] = str(given.create_topic)
    return {**options, "partitioning": "partition"}


def check(given: argparse.Namespace) -> None:
    """Validate the options, and ask the server for the topics."""
    write_options(sink_options(given))
    DeadLetterWriter.of(given)
    TopicSource.of(given, COLUMNS).spans()
    if partitions_of(given) is None:
        raise OptionError(
            f"there is no topic {given.to_topic!r}; create it, or add --create-topic N"
        )


def partitions_of(given: argparse.Namespace) -> int | None:
    """Ask how many partitions the target has, or will have; None if it is missing."""
    from spark_jobs.topics import connection

    topic = connection(server_of(given)).get_topic(given.to_stream or given.stream, given.to_topic)
    if topic is not None:
        return int(topic.partitions_count)
    created: int | None = given.create_topic
    return created


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Copy, or show what would be copied."""
    source = TopicSource.of(given, COLUMNS)
    letters = DeadLetterWriter.of(given)
    transform = partial(transform_payloads, steps=given.steps, is_strict=letters is None)
    if given.dry_run:
        preview(given, spark, source)
        return
    partitions_count = partitions_of(given)
    assert partitions_count is not None, "check() has found the topic"
    rows = _outgoing(transform(source.load_stream(spark)), partitions_count)
    writer = rows.writeStream.format("iggy").options(**sink_options(given))
    starters: dict[str, Callable[[], StreamingQuery]] = {
        "messages": partial(start_query, writer, given, "rows", checkpoint=given.checkpoint)
    }
    if letters is not None and given.steps:
        mismatches = transform(source.named("dead-letters").load_stream(spark)).where(
            "error IS NOT NULL"
        )
        bad = letters.writer(mismatches.drop("headers"))
        starters["dead letters"] = partial(
            start_query, bad, given, "dead-letters", checkpoint=given.checkpoint
        )
    done = run_queries(starters, stop)
    print_status(f"{done['messages']:,} messages read, topic {given.to_topic} written")


def _outgoing(rows: DataFrame, partitions_count: int) -> DataFrame:
    return rows.where("error IS NULL").selectExpr(
        "payload", "headers", "origin_timestamp", f"partition % {partitions_count} AS partition"
    )


def preview(given: argparse.Namespace, spark: SparkSession, source: TopicSource) -> None:
    """Show what would be done."""
    steps = "; ".join(step.text for step in given.steps) or "none"
    plan = {
        "read": f"stream {given.stream}, topic {given.topic}",
        "transforms": steps,
        "write": f"stream {given.to_stream or given.stream}, topic {given.to_topic}",
        "dead letters": DeadLetterWriter.of(given) or "none",
        "run": "once, what is there" if given.once else f"every {given.every}, until stopped",
    }
    preview_plan(source, plan)
    rows = transform_payloads(source.sample(spark, FIRST_ROWS), given.steps, is_strict=False)
    preview_rows("messages", rows.select("partition", "offset", "payload", "error"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())
