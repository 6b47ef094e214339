"""Topics as tables of DuckDB.

    with IggyClient("iggy://user:secret@localhost:8090") as client:
        connection = duckdb.connect()
        register(connection, client)
        connection.sql("SELECT count(*) FROM shop.orders WHERE timestamp > now() - INTERVAL 1 HOUR")

The schema of DuckDB is the stream and the table is the topic. Each query reads the topic again, so
it sees the messages up to its start. Only the columns that a query uses are read. Conditions on
partition, offset and timestamp limit what is polled; the others are applied while reading.

The extra ``duckdb`` brings what is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import pyarrow.dataset as ds  # type: ignore[import-untyped]  # it comes without types

from iggy_sdk.arrow.filters import refers_to, spans_of
from iggy_sdk.arrow.settings import ArrowReadOptions, ArrowReadSettings, read_options
from iggy_sdk.arrow.spans import RowSpans
from iggy_sdk.blocking import IggyClient
from iggy_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duckdb import DuckDBPyConnection

    from iggy_protocol import Identifier


__all__ = ["register"]


def register(
    connection: DuckDBPyConnection,
    client: IggyClient,
    stream: Identifier | None = None,
    topic: Identifier | None = None,
    *,
    catalog: str | None = None,
    **settings: Unpack[ArrowReadSettings],
) -> list[str]:
    """Make topics tables of a connection, as views with the names of stream and topic.

    Views are made in the current database. In a database that is a file they stay there, and have
    to be registered again after it was opened anew; ``catalog`` avoids that. Each ``cursor()`` of
    DuckDB is a connection of its own.

    Args:
        connection: a connection of DuckDB.
        client: a blocking client; it must stay open as long as there are queries.
        stream: name or id; None takes all streams.
        topic: name or id; None takes all topics of the stream.
        catalog: makes the views in the database of this name, in memory unless it is there.
        settings: those of ``client.read_arrow()``: which part of the topics can be seen and which
            columns there are. ``schema`` reads the payloads of all these topics.

    Returns:
        The names of the tables, as SQL has them.

    Raises:
        StreamNotFoundError, TopicNotFoundError: there is none.
        ConfigurationError: this is no blocking client, or a setting cannot be used.
    """
    if not isinstance(client, IggyClient):
        raise ConfigurationError(
            f"client is a {type(client).__name__}, and DuckDB needs one that blocks",
            advice="Make it with iggy_sdk.blocking.IggyClient.",
        )
    if stream is None and topic is not None:
        raise ConfigurationError(
            f"topic is {topic!r}, without a stream", advice="Name the stream as well."
        )
    prefix = ""
    if catalog is not None:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {_quoted(catalog)}")
        prefix = f"{_quoted(catalog)}."
    return [
        _register_topic(connection, client, prefix, names, settings)
        for names in _topics(client, stream, topic)
    ]


def _topics(
    client: IggyClient, stream: Identifier | None, topic: Identifier | None
) -> list[tuple[str, str]]:
    """Return the names of streams and topics."""
    if stream is None:
        streams = [one.name for one in client.get_streams()]
    else:
        streams = [client.get_stream(stream, required=True).name]
    if topic is not None:
        return [(streams[0], client.get_topic(streams[0], topic, required=True).name)]
    return [(name, one.name) for name in streams for one in client.get_topics(name)]


def _register_topic(
    connection: DuckDBPyConnection,
    client: IggyClient,
    prefix: str,
    names: tuple[str, str],
    settings: ArrowReadSettings,
) -> str:
    stream, topic = names
    source = f"iggy.{stream}.{topic}"
    connection.register(source, TopicDataset(client, read_options(stream, topic, **settings)))
    schema = f"{prefix}{_quoted(stream)}"
    table = f"{schema}.{_quoted(topic)}"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    connection.execute(
        f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM temp.main.{_quoted(source)}"
    )
    return table


def _quoted(name: str) -> str:
    """Write a name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow comes without types
    """A topic as DuckDB reads it: it asks for a scanner with the columns and the filter of a query.

    It has no fragments, so only ``schema`` and what is made of ``scanner()`` can be used.
    """

    def __init__(self, client: IggyClient, options: ArrowReadOptions) -> None:
        # The constructor of the base is for datasets of Arrow alone.
        self._client = client
        self._options = options

    @property
    def schema(self) -> Any:
        """The columns, a ``pyarrow.Schema``."""
        return self._options.arrow_schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002  DuckDB calls it so
        **options: Any,
    ) -> Any:
        """Return what reads the topic once.

        Args:
            columns: the columns that the query uses; None means all.
            filter: an expression of Arrow that the rows must match; None matches all.
            options: further options of a scanner.
        """
        schema, wanted = self.schema, schema_names(columns, self.schema)
        if filter is not None:
            wanted |= {name for name in schema.names if refers_to(filter, name, schema)}
        # Rows without a column have no number; the offset is the cheapest one.
        names = [name for name in schema.names if name in wanted] or ["offset"]
        spans = RowSpans() if self._options.limit is not None else spans_of(filter, schema)
        narrowed = replace(self._options, columns=names, headers=False, wanted=spans)
        return ds.Scanner.from_batches(
            _batches(self._client, narrowed),
            schema=narrowed.arrow_schema,
            columns=columns,
            filter=filter,
            **{"batch_readahead": 1, **options},
        )

    @property
    def partition_expression(self) -> Any:
        """What is known of all rows: nothing."""
        return ds.scalar(True)

    def get_fragments(self, filter: Any = None) -> NoReturn:  # noqa: A002  its name in Arrow
        """Refuse: a topic has no fragments."""
        raise _refusal()

    def replace_schema(self, schema: Any) -> NoReturn:
        """Refuse: the columns are those of a topic."""
        raise _refusal()

    def filter(self, expression: Any) -> NoReturn:
        """Refuse: filters are those of a query."""
        raise _refusal()

    def sort_by(self, sorting: Any, **options: Any) -> NoReturn:
        """Refuse: a table can be sorted."""
        raise _refusal()

    def join(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: tables can be joined."""
        raise _refusal()

    def join_asof(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: tables can be joined."""
        raise _refusal()

    def __reduce__(self) -> NoReturn:
        raise _refusal()


def schema_names(columns: Any, schema: Any) -> set[str]:
    """Return the columns that a scanner is asked for; all of them where they are expressions."""
    return set(columns) if isinstance(columns, list | tuple) else set(schema.names)


def _refusal() -> TypeError:
    return TypeError(
        "the dataset of a topic is for queries of DuckDB; read a table with client.read_arrow()"
    )


def _batches(client: IggyClient, options: ArrowReadOptions) -> Iterator[Any]:
    with client._read_arrow_batches(options) as batches:
        yield from batches
