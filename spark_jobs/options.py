"""The options of ``format("iggy")``: names, meanings, defaults and what goes with what.

They are named after those of Spark's Kafka source where the meaning is the same. Spark ignores the
case of their names. Connection strings and passwords are never shown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Flag, auto
from typing import TYPE_CHECKING, Final

from spark_jobs.credentials import NOTHING_COLLECTED, CollectedSecrets, connection_string
from spark_jobs.errors import OptionError
from spark_jobs.offsets import (
    EARLIEST,
    LATEST,
    Position,
    read_position,
    read_timestamp,
    read_timestamps,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class QueryKind(Flag):
    """The kind of query that an option is for."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()

    READ = BATCH | STREAM
    ALL = BATCH | STREAM | WRITE


_QUERY_KINDS_OF: Final[Mapping[str, QueryKind]] = {
    "url": QueryKind.ALL,
    "server": QueryKind.ALL,
    "user": QueryKind.ALL,
    "password": QueryKind.ALL,
    "token": QueryKind.ALL,
    "credentials": QueryKind.ALL,
    "stream": QueryKind.ALL,
    "topic": QueryKind.ALL,
    "topicPattern": QueryKind.READ,
    "startingOffsets": QueryKind.READ,
    "startingTimestamp": QueryKind.READ,
    "startingOffsetsByTimestamp": QueryKind.READ,
    "startingOffsetsByTimestampStrategy": QueryKind.READ,
    "endingOffsets": QueryKind.BATCH,
    "endingTimestamp": QueryKind.BATCH,
    "endingOffsetsByTimestamp": QueryKind.BATCH,
    "minPartitions": QueryKind.READ,
    "maxRecordsPerTask": QueryKind.READ,
    "failOnDataLoss": QueryKind.READ,
    "includeHeaders": QueryKind.READ,
    "pollCount": QueryKind.READ,
    "maxOffsetsPerTrigger": QueryKind.STREAM,
    "minOffsetsPerTrigger": QueryKind.STREAM,
    "maxTriggerDelay": QueryKind.STREAM,
    "consumer": QueryKind.STREAM,
    "partitioning": QueryKind.WRITE,
    "idempotent": QueryKind.WRITE,
    "sendBatch": QueryKind.WRITE,
    "maxInFlight": QueryKind.WRITE,
    "writerId": QueryKind.WRITE,
    "createTopic": QueryKind.WRITE,
    # Options of Spark, which passes them to every sink.
    "checkpointLocation": QueryKind.WRITE,
    "queryName": QueryKind.WRITE,
}
_NAMES: Final = {name.lower(): name for name in _QUERY_KINDS_OF}
_OF_TABLES: Final = re.compile(r"provider|owner|option\..*", re.IGNORECASE)
"""What Spark adds to the options of CREATE TABLE."""

OPTION_NAMES: Final = tuple(_QUERY_KINDS_OF)
"""All options, Spark's own included."""
_QUERY_KIND_NAMES: Final = {
    QueryKind.BATCH: "a batch read (spark.read)",
    QueryKind.STREAM: "a streaming read (spark.readStream)",
    QueryKind.WRITE: "a write",
}

_STRATEGY: Final = "startingOffsetsByTimestampStrategy"

TRIGGER_DELAY_MAX_S: Final = 900.0
"""How long a trigger waits for its minimum of messages; as in Spark's Kafka source."""

SEND_BATCH: Final = 1000
"""Messages of one request; larger requests are not faster, and a lost reply leaves more of them
in doubt."""

MAX_IN_FLIGHT: Final = 4
"""Requests of one task that wait for their answers, at most one for each partition."""

IN_FLIGHT_MAX: Final = 64
"""More requests only wait in the server, and each holds a part of the rows in memory."""

POLL_COUNT_MAX: Final = 1_000_000
PARTITIONS_MAX: Final = 1000
"""The limit of a server when a topic is created."""


@dataclass(frozen=True)
class TopicSelection:
    """Where messages are.

    Attributes:
        server: the connection string, never shown.
        stream: name of the stream.
        topics: names of its topics; empty with a pattern.
        topic_pattern: what the whole name of a topic has to match, as a regular expression.
    """

    server: str = field(repr=False)
    stream: str
    topics: tuple[str, ...]
    topic_pattern: str | None = None

    def includes(self, topic: str) -> bool:
        """Whether a topic of this name is one of them."""
        if self.topic_pattern is None:
            return topic in self.topics
        return re.fullmatch(self.topic_pattern, topic) is not None


@dataclass(frozen=True)
class ReadOptions(TopicSelection):
    """How topics are read.

    Attributes:
        starting: where a batch, or the first run of a query, begins.
        ending: where a batch ends.
        max_offsets_per_trigger: messages of one micro-batch at most.
        min_offsets_per_trigger: messages that a micro-batch waits for.
        max_trigger_delay_s: how long it waits for them.
        min_partitions: the least number of Spark tasks, if there are enough messages.
        max_records_per_task: messages of one task at most.
        fail_on_data_loss: whether the query fails when messages are lost.
        include_headers: whether there is a column of user headers.
        consumer: the name under which offsets are stored on the server.
        poll_count: messages of one request; None chooses by their size.
    """

    starting: Position = EARLIEST
    ending: Position = LATEST
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = TRIGGER_DELAY_MAX_S
    min_partitions: int | None = None
    max_records_per_task: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    consumer: str | None = None
    poll_count: int | None = None


@dataclass(frozen=True)
class WriteOptions(TopicSelection):
    """How a topic is written.

    Attributes:
        partitioning: ``balanced``, ``key``, ``partition``, or the number of a partition; None
            uses the key if there is such a column.
        idempotent: whether messages get ids that are the same when Spark repeats a task.
        send_batch: messages of one request at most.
        max_in_flight: requests of a task that wait for their answers.
        writer_id: makes the ids of a batch write the same when the whole job is run again.
        create_topic: how many partitions a missing topic gets; None leaves it missing.
    """

    partitioning: str | int | None = None
    idempotent: bool = True
    send_batch: int = SEND_BATCH
    max_in_flight: int = MAX_IN_FLIGHT
    writer_id: str | None = None
    create_topic: int | None = None

    @property
    def topic(self) -> str | None:
        """The one topic that is written; None if a column names that of each row."""
        return self.topics[0] if self.topics else None


class _OptionReader:
    """Parses the values of options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise OptionError(f"option {name} is empty; give it a value or leave it out")
        return value

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if value is None:
            raise OptionError(
                f'option {name} is missing; add .option("{name}", "{example}"), or in SQL '
                f"WITH (`{name}` = '{example}') behind the name of the table: Spark does not hand "
                "on the options of CREATE TABLE, but those of CREATE TEMPORARY VIEW"
            )
        return value

    def number(self, name: str, *, most: int | None = None) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        digits = value.strip()
        is_number = digits.isascii() and digits.isdigit() and int(digits) > 0
        if not is_number or (most is not None and int(digits) > most):
            bounds = "at least 1" if most is None else f"from 1 to {most}"
            raise OptionError(f"{name} is {value!r}; give a whole number {bounds}")
        return int(digits)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise OptionError(f"{name} is {value!r}; give true or false")
        return value.strip().lower() == "true"

    def duration_s(self, name: str, *, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None:
            raise OptionError(f"{name} is {value!r}; give a time such as 500ms, 30s, 15m or 1h")
        return float(match["count"]) * _UNITS_S[match["unit"]]


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(?P<count>[0-9]+) ?(?P<unit>ms|s|m|min|h)")


def _is_of_read_or_write(name: str) -> bool:
    return _OF_TABLES.fullmatch(name) is None


def check_names(options: Mapping[str, str]) -> None:
    """Refuse options that do not exist.

    Raises:
        OptionError: there is one; the message names the most similar option.
    """
    for name in filter(_is_of_read_or_write, options):
        if name.lower() == "path":
            raise OptionError("a topic has no path; call load() and save() without one")
        if name.lower() not in _NAMES:
            near = get_close_matches(name.lower(), _NAMES, n=1)
            hint = (
                f"did you mean {_NAMES[near[0]]}?"
                if near
                else f"there are {', '.join(_QUERY_KINDS_OF)}"
            )
            raise OptionError(f"there is no option {name!r}; {hint}")


def _check_query_kind(given: Mapping[str, str], use: QueryKind) -> None:
    for name in filter(_is_of_read_or_write, given):
        known = _NAMES[name.lower()]
        if use not in _QUERY_KINDS_OF[known]:
            rest = " or ".join(
                word for one, word in _QUERY_KIND_NAMES.items() if one in _QUERY_KINDS_OF[known]
            )
            raise OptionError(
                f"{known} is for {rest}, not for {_QUERY_KIND_NAMES[use]}; leave it out"
            )


def read_options(
    options: Mapping[str, str],
    use: QueryKind,
    collected: CollectedSecrets = NOTHING_COLLECTED,
) -> ReadOptions:
    """Read the options of a batch or a streaming read.

    Args:
        options: as the user gave them.
        use: the kind of read.
        collected: the secrets that ``register`` found.

    Raises:
        OptionError: one is missing, unknown, wrong, or conflicts with another.
    """
    check_names(options)
    _check_query_kind(options, use)
    given = _OptionReader(options)
    topics, pattern = _topics_to_read(given)
    parsed = ReadOptions(
        *_server_and_stream(given, collected),
        topics,
        pattern,
        starting=_position(
            given, "starting", topics, LATEST if use is QueryKind.STREAM else EARLIEST
        ),
        ending=_position(given, "ending", topics, LATEST),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger"),
        max_trigger_delay_s=given.duration_s("maxTriggerDelay", default=TRIGGER_DELAY_MAX_S),
        min_partitions=given.number("minPartitions"),
        max_records_per_task=given.number("maxRecordsPerTask"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        consumer=given.text("consumer"),
        poll_count=given.number("pollCount", most=POLL_COUNT_MAX),
    )
    _check_together(parsed, given, use)
    return parsed


def _check_together(options: ReadOptions, given: _OptionReader, use: QueryKind) -> None:
    most, fewest = options.max_offsets_per_trigger, options.min_offsets_per_trigger
    if most is not None and fewest is not None and fewest > most:
        raise OptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger; lower it")
    if "maxTriggerDelay" in given and fewest is None:
        raise OptionError("maxTriggerDelay needs minOffsetsPerTrigger; add it or leave both out")
    if use is QueryKind.BATCH and options.starting == LATEST:
        raise OptionError(
            "a batch that starts at latest reads nothing; use earliest, or readStream"
        )
    if options.ending == EARLIEST:
        raise OptionError("a batch that ends at earliest reads nothing; use latest")


def _topics_to_read(given: _OptionReader) -> tuple[tuple[str, ...], str | None]:
    pattern = given.text("topicPattern")
    if pattern is None:
        return read_topics(given.required("topic", "orders")), None
    if "topic" in given:
        raise OptionError("give topic or topicPattern, not both")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(
            f"topicPattern is {pattern!r}, which is no regular expression: {error}; "
            "give one for whole names, such as orders-.*"
        ) from None
    return (), pattern


def _server_and_stream(given: _OptionReader, collected: CollectedSecrets) -> tuple[str, str]:
    return connection_string(given.text, collected), given.required("stream", "shop")


def read_topics(text: str) -> tuple[str, ...]:
    """Parse one topic, several separated by commas, or a JSON list of them.

    Raises:
        OptionError: it is none of these, or names one twice.
    """
    names: Sequence[object]
    try:
        names = json.loads(text) if text.strip().startswith("[") else text.split(",")
    except ValueError:
        names = [None]
    topics = tuple(name.strip() for name in names if isinstance(name, str) and name.strip())
    if len(topics) != len(names) or not topics:
        raise OptionError(f'topic is {text!r}; give a name, names as "a,b", or a JSON list of them')
    if len(set(topics)) < len(topics):
        raise OptionError(f"topic is {text!r}, and names one of them twice; name each once")
    return topics


def _position(
    given: _OptionReader, end: str, topics: tuple[str, ...], default: Position
) -> Position:
    names = [f"{end}{kind}" for kind in ("Offsets", "Timestamp", "OffsetsByTimestamp")]
    texts = [(name, text) for name in names if (text := given.text(name)) is not None]
    if len(texts) > 1:
        raise OptionError(f"give {' or '.join(name for name, _ in texts)}, not both")
    strategy = given.text(_STRATEGY) if end == "starting" else None
    _check_strategy(strategy, texts)
    if not texts:
        return default
    ((name, text),) = texts
    if name == names[0]:
        return read_position(name, text, topics)
    if name == names[1]:
        return read_timestamp(name, text, needs_message=strategy == "error")
    # As in Spark's Kafka source, where a time for each partition is an error if it lies beyond.
    needs_message = end == "starting" and strategy != "latest"
    return read_timestamps(name, text, topics, needs_message=needs_message)


def _check_strategy(strategy: str | None, texts: list[tuple[str, str]]) -> None:
    if strategy is None:
        return
    if strategy not in ("error", "latest"):
        raise OptionError(f"{_STRATEGY} is {strategy!r}; give error or latest")
    if not texts or texts[0][0] == "startingOffsets":
        raise OptionError(
            f"{_STRATEGY} needs startingOffsetsByTimestamp or startingTimestamp; add one, or "
            "leave it out"
        )


def write_options(
    options: Mapping[str, str], collected: CollectedSecrets = NOTHING_COLLECTED
) -> WriteOptions:
    """Read the options of a batch or a streaming write.

    Args:
        options: as the user gave them.
        collected: the secrets that ``register`` found.

    Raises:
        OptionError: one is missing, unknown, wrong, or conflicts with another.
    """
    check_names(options)
    _check_query_kind(options, QueryKind.WRITE)
    given = _OptionReader(options)
    server, stream = _server_and_stream(given, collected)
    text = given.text("topic")
    topics = () if text is None else read_topics(text)
    if len(topics) > 1:
        raise OptionError(
            "a write goes to one topic; name one, or leave the option out and add a column topic"
        )
    parsed = WriteOptions(
        server,
        stream,
        topics,
        partitioning=_partitioning(given.text("partitioning")),
        idempotent=given.flag("idempotent", default=True),
        send_batch=given.number("sendBatch") or SEND_BATCH,
        max_in_flight=given.number("maxInFlight", most=IN_FLIGHT_MAX) or MAX_IN_FLIGHT,
        writer_id=given.text("writerId"),
        create_topic=given.number("createTopic", most=PARTITIONS_MAX),
    )
    if parsed.writer_id is not None and not parsed.idempotent:
        raise OptionError("writerId needs ids, which idempotent=false switches off; leave one out")
    return parsed


def _partitioning(text: str | None) -> str | int | None:
    if text is None:
        return None
    word = text.strip().lower()
    if word in ("balanced", "key", "partition"):
        return word
    if word.isascii() and word.isdigit():
        return int(word)
    raise OptionError(
        f"partitioning is {text!r}; give balanced, key, partition, or the number of a partition"
    )
