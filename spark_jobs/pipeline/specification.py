"""What a pipeline is: its source, its steps, its sinks, and how it runs; read from one file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_jobs.errors import OptionError
from spark_jobs.options import read_topics
from spark_jobs.pipeline.connectors import PipelineSink, PipelineSource, PipelineStep
from spark_jobs.pipeline.console_sink import ConsoleSink
from spark_jobs.pipeline.dead_letters import DeadLetters
from spark_jobs.pipeline.document import KeyPath, PipelineDocument, read_document
from spark_jobs.pipeline.file_sink import ParquetSink
from spark_jobs.pipeline.file_source import FilesSource
from spark_jobs.pipeline.http_sinks import BulkSink, PostSink
from spark_jobs.pipeline.jdbc_source import JdbcSource
from spark_jobs.pipeline.mask_step import MaskStep
from spark_jobs.pipeline.payload_step import PayloadStep
from spark_jobs.pipeline.plugins import SINK_GROUP, SOURCE_GROUP, load_plugin, plugin_names
from spark_jobs.pipeline.reading import Duration, read_table, unknown_name
from spark_jobs.pipeline.sql_steps import (
    AddStep,
    ConvertStep,
    DeleteStep,
    FilterStep,
    FlattenStep,
    JsonStep,
    RenameStep,
)
from spark_jobs.pipeline.stateful_steps import DeduplicateStep, WindowStep
from spark_jobs.pipeline.table_sink import IcebergSink, JdbcSink, TableSink
from spark_jobs.pipeline.topic_sink import IggySink
from spark_jobs.pipeline.topic_sources import IggySource, KafkaSource, WebhookSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SOURCES: Final[Mapping[str, type]] = {
    "files": FilesSource,
    "iggy": IggySource,
    "jdbc": JdbcSource,
    "kafka": KafkaSource,
    "webhook": WebhookSource,
}
STEPS: Final[Mapping[str, type]] = {
    "add": AddStep,
    "convert": ConvertStep,
    "deduplicate": DeduplicateStep,
    "delete": DeleteStep,
    "filter": FilterStep,
    "flatten": FlattenStep,
    "json": JsonStep,
    "mask": MaskStep,
    "payload": PayloadStep,
    "rename": RenameStep,
    "window": WindowStep,
}
SINKS: Final[Mapping[str, type]] = {
    "elasticsearch": BulkSink,
    "http": PostSink,
    "opensearch": BulkSink,
    "quickwit": BulkSink,
    "console": ConsoleSink,
    "delta": TableSink,
    "iceberg": IcebergSink,
    "iggy": IggySink,
    "jdbc": JdbcSink,
    "parquet": ParquetSink,
}
TABLES: Final = ("pipeline", "source", "transform", "sink", "dead_letters")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of pipelines are parts of names of files."""

SINKS_MAX: Final = 16
STEPS_MAX: Final = 200

T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """How a pipeline runs.

    Attributes:
        checkpoint: the folder of Spark's offsets; any path or URL of Spark.
        name: the name of the pipeline; by default that of its file.
        every: how often a micro-batch starts.
        once: whether the pipeline ends when it has read what is there.
        max_rows: rows of one micro-batch at most, where the source can count them.
        restarts: how often in a row a pipeline that failed is started again; 0 for never.
    """

    checkpoint: str
    name: str | None = None
    every: Duration = Duration("10 seconds")  # noqa: RUF009  it is a text
    once: bool = False
    max_rows: int | None = None
    restarts: int = field(default=5, metadata={"least": 0})


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline.

    Attributes:
        run: how it runs.
        source: where rows come from.
        steps: the transforms, in their order.
        sinks: where rows go; each gets all of them.
        dead_letters: where rows go that cannot be processed.
        document: the file it was read from; None for the ready jobs.
    """

    run: RunOptions
    source: PipelineSource
    sinks: tuple[PipelineSink, ...]
    steps: tuple[PipelineStep, ...] = ()
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    document: PipelineDocument | None = None

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.run.name or "pipeline"

    def at(self, *path: str | int) -> str:
        """Return the place of a part in its file, before a text about it."""
        return "" if self.document is None else f"{self.document.place(path)}: "

    def check(self) -> None:
        """Validate all parts, against servers where there are some, before Spark starts.

        Raises:
            OptionError: a part is wrong.
        """
        with_place(self, ("source",), self.source.check)
        for number, sink in enumerate(self.sinks):
            with_place(self, ("sink", number), sink.check)


def with_place(spec: PipelineSpec, path: KeyPath, work: Callable[[], T]) -> T:
    """Do something, and name file and line if an option turns out to be wrong."""
    try:
        return work()
    except OptionError as error:
        place = spec.at(*path)
        if not place or str(error).startswith(place):
            raise
        raise OptionError(f"{place}{error}") from None


def read_pipeline(path: Path) -> PipelineSpec:
    """Read a file.

    Raises:
        PipelineFileError: it has mistakes; the message names all of them with their lines.
    """
    return parse_pipeline(read_document(path))


def parse_pipeline(document: PipelineDocument) -> PipelineSpec:
    """Make a pipeline of what a file says.

    Raises:
        PipelineFileError: it has mistakes.
    """
    values = document.values
    for name in values:
        if name not in TABLES:
            document.add_mistake((name,), unknown_name(f"table [{name}]", name, TABLES))
    run = _read_run(document)
    source = _read_typed(document, ("source",), values.get("source"), SOURCES, SOURCE_GROUP)
    steps = _read_all(document, "transform", STEPS, None, STEPS_MAX)
    sinks = _read_all(document, "sink", SINKS, SINK_GROUP, SINKS_MAX)
    if not sinks:
        document.add_mistake((), "there is no sink; add [[sink]] with a type")
    letters = read_table(document, ("dead_letters",), values.get("dead_letters", {}), DeadLetters)
    document.check()
    assert run is not None, "its mistakes were raised"
    assert letters is not None, "its mistakes were raised"
    spec = PipelineSpec(run, source, sinks, steps, _completed(letters, source), document)
    _check_together(document, spec)
    document.check()
    return spec


def _read_run(document: PipelineDocument) -> RunOptions | None:
    if "pipeline" not in document.values:
        document.add_mistake((), "there is no table [pipeline]; add it, with a checkpoint")
        return None
    run = read_table(document, ("pipeline",), document.values["pipeline"], RunOptions)
    if run is None:
        return None
    name = run.name or Path(document.file).stem
    if NAME.fullmatch(name) is None:
        document.add_mistake(
            ("pipeline", "name"), f"the name {name!r} has more than letters, digits, _ - and ."
        )
    return replace(run, name=name)


def _read_all(
    document: PipelineDocument,
    name: str,
    kinds: Mapping[str, type],
    group: str | None,
    count_max: int,
) -> tuple[Any, ...]:
    found = document.values.get(name, [])
    if not isinstance(found, list):
        document.add_mistake((name,), f"{name} is not a list; write [[{name}]]")
        return ()
    if len(found) > count_max:
        document.add_mistake((name,), f"there are {len(found)} of them; {count_max} are allowed")
        return ()
    return tuple(
        _read_typed(document, (name, number), one, kinds, group) for number, one in enumerate(found)
    )


def _read_typed(
    document: PipelineDocument,
    path: KeyPath,
    values: Any,
    kinds: Mapping[str, type],
    group: str | None,
) -> Any:
    """Read a table whose key ``type`` chooses a class, of this package or of a plugin."""
    name = str(path[0])
    known = [*kinds, *plugin_names(group)]
    if not isinstance(values, dict):
        document.add_mistake(path, f"there is no table [{name}]; add it, with a type")
        return None
    kind = values.get("type")
    if not isinstance(kind, str):
        document.add_mistake(path, f"{name} lacks the key type; there are {', '.join(known)}")
        return None
    if kind in kinds:
        return read_table(document, path, values, kinds[kind])
    if group is not None and kind in known:
        return load_plugin(document, path, values, group)
    document.add_mistake((*path, "type"), unknown_name(f"type {kind!r} of {name}", kind, known))
    return None


def _completed(letters: DeadLetters, source: Any) -> DeadLetters:
    """Put dead letters on the server and in the stream of the source, unless the file says more."""
    if letters.topic is None:
        return letters
    return replace(
        letters,
        stream=letters.stream or getattr(source, "stream", None),
        server=letters.server or getattr(source, "server", None),
    )


def _check_together(document: PipelineDocument, spec: PipelineSpec) -> None:
    """Find what each part allows and the whole does not."""
    letters = spec.dead_letters
    try:
        letters.check_together()
    except OptionError as error:
        document.add_mistake(("dead_letters",), str(error))
    if letters.topic is not None and letters.stream is None:
        document.add_mistake(("dead_letters",), "the stream of the topic is missing; add stream")
    for number, step in enumerate(spec.steps):
        check = getattr(step, "check", None)
        if check is not None:
            try:
                check()
            except OptionError as error:
                document.add_mistake(("transform", number), str(error))
    _check_state(document, spec)
    for path, text in circles(spec):
        document.add_mistake(path, text)


def _check_state(document: PipelineDocument, spec: PipelineSpec) -> None:
    """Find steps that Spark cannot run one after the other."""
    stateful = [at for at, step in enumerate(spec.steps) if step.is_stateful]
    if stateful and isinstance(spec.source, JdbcSource):
        text = "Spark compares rows of streams only; send the table to a topic first"
        document.add_mistake(("transform", stateful[0]), text)
    for at in range(stateful[0], stateful[-1]) if stateful else ():
        if isinstance(spec.steps[at], ConvertStep | JsonStep | PayloadStep):
            text = "it may find bad rows between steps that compare rows; put it before or after"
            document.add_mistake(("transform", at), text)
    for before, at in pairwise(stateful):
        first, second = spec.steps[before], spec.steps[at]
        if isinstance(first, WindowStep):
            text = "Spark compares no rows after a window; put it last, or in a second pipeline"
            document.add_mistake(("transform", at), text)
        elif getattr(first, "time", None) != getattr(second, "time", None):
            text = "it has another time than the deduplicate before it; Spark takes one"
            document.add_mistake(("transform", at, "time"), text)


def circles(spec: PipelineSpec) -> Sequence[tuple[KeyPath, str]]:
    """Return what a pipeline would write to the topic that it reads."""
    read = getattr(spec.source, "stream", None), getattr(spec.source, "topic", None)
    if None in read:
        return []
    topics = [(read[0], topic) for topic in read_topics(str(read[1]))]
    found: list[tuple[KeyPath, str]] = []
    for number, sink in enumerate(spec.sinks):
        if isinstance(sink, IggySink) and (sink.stream, sink.topic) in topics:
            text = f"topic {sink.topic} would be copied to itself; choose another"
            found.append((("sink", number), text))
    letters = spec.dead_letters
    if (letters.stream, letters.topic) in topics:
        text = f"topic {letters.topic} is the topic that is read; name another for dead letters, "
        found.append((("dead_letters",), f"{text}or the job would read its own dead letters"))
    return found
