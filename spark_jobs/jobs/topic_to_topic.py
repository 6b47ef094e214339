"""``iggy-spark-topic-to-topic``: copies messages from one topic to another, with transforms.

Messages of one partition stay together and in order. Transforms run in the order of the command
line.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import OptionError
from spark_jobs.jobs.command import (
    add_dead_letter_options,
    add_run_options,
    add_spark_options,
    count,
    make_parser,
    run_command,
)
from spark_jobs.jobs.presets import (
    check_preset,
    given_server,
    letters_of,
    run_options,
    run_preset,
    topic_of,
)
from spark_jobs.jobs.terminal import StopSignal, print_status
from spark_jobs.jobs.topic_source import add_source_options
from spark_jobs.jobs.transforms import read_step
from spark_jobs.pipeline.payload_step import PayloadStep
from spark_jobs.pipeline.specification import PipelineSpec
from spark_jobs.pipeline.topic_sink import SAME, IggySink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


EXAMPLE = """
  iggy-spark-topic-to-topic --server iggy://iggy:iggy@127.0.0.1:8090 --stream shop \\
      --topic orders --to-topic paid --create-topic 4 --checkpoint state/paid \\
      --filter 'state == "paid"' --delete customer.card --add 'seen=$now' \\
      --dead-letter-topic orders-dead
"""
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


def pipeline(given: argparse.Namespace) -> PipelineSpec:
    """Make the pipeline of the command line."""
    steps = tuple(step.text for step in given.steps)
    sink = IggySink(
        stream=given.to_stream or given.stream,
        topic=given.to_topic,
        server=given_server(given),
        partitioning=SAME,
        create_topic=given.create_topic,
    )
    return PipelineSpec(
        run=run_options(given, "messages", given.checkpoint),
        source=topic_of(given, include_headers=True),
        steps=(PayloadStep(steps),) if steps else (),
        sinks=(sink,),
        dead_letters=letters_of(given),
    )


def check(given: argparse.Namespace) -> None:
    """Validate the options, and ask the server for the topics."""
    check_preset(pipeline(given))


def work(given: argparse.Namespace, spark: SparkSession, stop: StopSignal) -> None:
    """Copy, or show what would be copied."""
    read = run_preset(pipeline(given), given, spark, stop)
    if read is not None:
        print_status(f"{read} messages read, topic {given.to_topic} written")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), work, arguments, check=check)


if __name__ == "__main__":
    sys.exit(main())
