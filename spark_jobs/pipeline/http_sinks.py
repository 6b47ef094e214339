"""Sinks that are HTTP servers: search engines by ``_bulk``, and any that takes a POST.

Tasks send the rows. The id of a row follows from its place in the source and its content, so a
repetition sends the same ids: a search engine replaces what it has, and a server that knows
``Idempotency-Key`` recognizes the request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.pipeline.connectors import ERROR, ORIGIN, BatchContext, names_of
from spark_jobs.pipeline.http_requests import (
    RETRIED,
    HttpConnection,
    HttpTarget,
    RequestFailedError,
    RowsRefusedError,
)
from spark_jobs.pipeline.reading import Duration, seconds_of
from spark_jobs.pipeline.secrets import SecretOrText, SecretReference, redact, reveal
from spark_jobs.pipeline.sql_steps import check_columns, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BULK_ROWS: Final = 500
BULK_BYTES_MAX: Final = 5 << 20
"""Search engines advise requests of 5 to 15 MB; a lost answer leaves all of one in doubt."""

HALF_MINUTE: Final = Duration("30 seconds")
_ID, _BODY = "_iggy_id", "_iggy_body"


class HttpSink(ABC):
    """A sink to which tasks send rows as JSON."""

    needs_origin = True

    @abstractmethod
    def target(self) -> HttpTarget:
        """Return where requests go, with secrets revealed."""

    @abstractmethod
    def sender(self) -> Any:
        """Return what sends the rows of a task: it takes them, and returns the refused ones."""

    @abstractmethod
    def id_of(self, rows: DataFrame) -> Any:
        """Return the column of ids; None for the usual ones."""

    def check(self) -> None:
        """Validate the address."""
        self.target().check()

    def prepare(self, rows: DataFrame, prefix: str) -> None:
        """Check the column of ids."""
        self.id_of(rows)

    def write(self, rows: DataFrame, context: BatchContext) -> DataFrame:
        """Return the rows that the server refuses; reading them sends all rows."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        body = F.to_json(F.struct(*map(quote, names_of(rows))))
        given = self.id_of(rows)
        origin = F.coalesce(F.to_json(ORIGIN), F.lit(context.writer))
        made = F.sha2(F.concat_ws("\n", origin, body), 256)
        identity = made if given is None else F.coalesce(given.cast("string"), made)
        sent = rows.select(identity.alias(_ID), body.alias(_BODY), ORIGIN)
        kind = StructType(
            [StructField(ORIGIN, rows.schema[ORIGIN].dataType), StructField(ERROR, StringType())]
        )
        refused = sent.rdd.mapPartitions(self.sender())
        return rows.sparkSession.createDataFrame(refused, kind)


def grouped(rows: Iterator[Any], count: int, bytes_max: int) -> Iterator[list[Any]]:
    """Divide rows into requests of bounded size."""
    group: list[Any] = []
    size = 0
    for row in rows:
        length = len(row[_BODY])
        if group and (len(group) >= count or size + length > bytes_max):
            yield group
            group, size = [], 0
        group.append(row)
        size += length
    if group:
        yield group


@dataclass(frozen=True)
class BulkSink(HttpSink):
    """An index of Elasticsearch, OpenSearch or Quickwit.

    Attributes:
        url: the address of the server; for Quickwit with ``/api/v1/_elastic`` at its end.
        index: the name of the index.
        id_column: the column of ids; by default they follow from the place in the source.
        user: who logs in.
        password: the password.
        api_key: instead, a key for ``Authorization: ApiKey``.
        batch_rows: rows of one request at most.
        attempts: how often a request, or a row that is refused for a while, is sent at most.
        timeout: how long one attempt waits for an answer.
    """

    url: SecretOrText
    index: str
    id_column: str | None = None
    user: SecretOrText | None = None
    password: SecretReference | None = None
    api_key: SecretReference | None = None
    batch_rows: int = BULK_ROWS
    attempts: int = 8
    timeout: Duration = HALF_MINUTE

    guarantee = (
        "each row once: a repeated micro-batch replaces documents with the same ids (Quickwit "
        "does not look at ids and stores them again)"
    )

    def target(self) -> HttpTarget:
        """Return where requests go."""
        headers = {"Content-Type": "application/x-ndjson"}
        if self.api_key is not None:
            headers["Authorization"] = f"ApiKey {self.api_key.reveal()}"
        elif self.user is not None and self.password is not None:
            login = f"{reveal(self.user)}:{self.password.reveal()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        return HttpTarget(reveal(self.url), headers, self.attempts, seconds_of(self.timeout))

    def sender(self) -> BulkSender:
        """Return what sends the rows of a task."""
        return BulkSender(self.target(), self.index, self.batch_rows)

    def id_of(self, rows: DataFrame) -> Any:
        """Return the column of ids."""
        from pyspark.sql import functions as F

        if self.id_column is None:
            return None
        check_columns([self.id_column], rows.schema)
        return F.col(quote(self.id_column))

    def describe(self) -> str:
        """Say in words what is written."""
        return f"index {self.index} of {redact(str(self.url))}"


class BulkSender:
    """Sends the rows of a task by ``_bulk``.

    Args:
        target: where requests go.
        index: the name of the index.
        batch_rows: rows of one request at most.
    """

    def __init__(self, target: HttpTarget, index: str, batch_rows: int) -> None:
        self._target = target
        self._index = index
        self._batch_rows = batch_rows

    def __call__(self, rows: Iterator[Any]) -> Iterator[tuple[Any, str]]:
        """Send rows, and yield those that the server refuses."""
        connection = HttpConnection(self._target)
        try:
            for group in grouped(rows, self._batch_rows, BULK_BYTES_MAX):
                yield from self._send(connection, group)
        finally:
            connection.close()

    def _send(self, connection: HttpConnection, rows: list[Any]) -> Iterator[tuple[Any, str]]:
        """Send a group; rows that are refused for a while are sent again, without the others."""
        reason = ""
        for attempt in range(self._target.attempts):
            connection.wait_before(attempt)
            answers = self._answers(connection, rows)
            again = []
            for row, answer in zip(rows, answers, strict=True):
                status = int(answer.get("status", 200))
                if status in RETRIED:
                    again.append(row)
                    reason = _reason(answer)
                elif status >= 300:
                    yield row[ORIGIN], _reason(answer)
            if not again:
                return
            rows = again
        raise RequestFailedError(
            f"{self._target.shown_url} did not take {len(rows)} rows: {reason}"
        )

    def _answers(self, connection: HttpConnection, rows: list[Any]) -> list[dict[str, Any]]:
        lines = []
        for row in rows:
            lines.append(json.dumps({"index": {"_index": self._index, "_id": row[_ID]}}))
            lines.append(row[_BODY])
        body = "".join(f"{line}\n" for line in lines).encode()
        answer = json.loads(connection.post("/_bulk", body, {}))
        if not answer.get("errors"):
            return [{}] * len(rows)
        items = [next(iter(item.values())) for item in answer.get("items", [])]
        if len(items) != len(rows):
            raise RequestFailedError(
                f"{self._target.shown_url} answered {len(items)} of {len(rows)} rows"
            )
        return items


def _reason(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    if isinstance(error, dict):
        error = f"{error.get('type', 'error')}: {error.get('reason', '')}"
    return f"refused with status {answer.get('status')}: {error}"


@dataclass(frozen=True)
class PostSink(HttpSink):
    """A server that takes rows as JSON by POST.

    Attributes:
        url: the address.
        headers: headers of each request, such as ``Authorization = { env = "NAME" }``.
        batch_rows: rows of one request: one is sent as an object, more as an array.
        attempts: how often a request is sent at most.
        timeout: how long one attempt waits for an answer.
    """

    url: SecretOrText
    headers: Mapping[str, SecretOrText] = field(default_factory=dict)
    batch_rows: int = 1
    attempts: int = 8
    timeout: Duration = HALF_MINUTE

    guarantee = (
        "each row at least once; once, if the server knows Idempotency-Key: a repeated "
        "micro-batch sends the same keys"
    )

    def target(self) -> HttpTarget:
        """Return where requests go."""
        given = {name: reveal(value) for name, value in self.headers.items()}
        headers = {"Content-Type": "application/json", **given}
        return HttpTarget(reveal(self.url), headers, self.attempts, seconds_of(self.timeout))

    def sender(self) -> PostSender:
        """Return what sends the rows of a task."""
        return PostSender(self.target(), self.batch_rows)

    def id_of(self, rows: DataFrame) -> None:
        """Return nothing: ids follow from the place in the source."""

    def describe(self) -> str:
        """Say in words what is written."""
        return f"POST to {redact(str(self.url))}"


class PostSender:
    """Sends the rows of a task by POST.

    Args:
        target: where requests go.
        batch_rows: rows of one request.
    """

    def __init__(self, target: HttpTarget, batch_rows: int) -> None:
        self._target = target
        self._batch_rows = batch_rows

    def __call__(self, rows: Iterator[Any]) -> Iterator[tuple[Any, str]]:
        """Send rows, and yield those that the server refuses."""
        connection = HttpConnection(self._target)
        try:
            while group := list(islice(rows, self._batch_rows)):
                ids = "\n".join(row[_ID] for row in group)
                key = hashlib.sha256(ids.encode()).hexdigest()
                bodies = ",".join(row[_BODY] for row in group)
                body = bodies if self._batch_rows == 1 else f"[{bodies}]"
                try:
                    connection.post("", body.encode(), {"Idempotency-Key": key})
                except RowsRefusedError as error:
                    yield from ((row[ORIGIN], str(error)) for row in group)
        finally:
            connection.close()
