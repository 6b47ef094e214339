"""Changes of metadata as JSON: the query, the page, and a cursor as text.

The bodies of changes are objects with the fields of the records in ``model.metadata_changes``.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from msgspec import Struct

from iggy_protocol.errors import InvalidField
from iggy_protocol.model.metadata_changes import MetadataCursor
from iggy_protocol.rest.shapes import (  # noqa: TC001 - msgspec reads the annotations at run time
    U32,
    U64,
)
from iggy_protocol.status_table import StatusCode

U64_MAX: Final = 2**64 - 1
_CURSOR: Final = re.compile(
    r"([0-9a-f]{1,32})\.([0-9]{1,20})\.([0-9a-f]{1,32})\.([0-9]{1,10})", re.ASCII
)


def format_cursor(cursor: MetadataCursor) -> str:
    """Write a cursor as text, for ``after`` of the next request."""
    return f"{cursor.log_id:x}.{cursor.op}.{cursor.checksum:x}.{cursor.ordinal}"


def parse_cursor(text: str) -> MetadataCursor:
    """Read a cursor that ``format_cursor`` has written.

    Raises:
        InvalidField: it is none.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidField("this is no cursor", field="after", status=StatusCode.INVALID_COMMAND)
    log_id, op, checksum, ordinal = match.groups()
    return MetadataCursor(int(log_id, 16), int(op), int(checksum, 16), int(ordinal))


class MetadataChangesQuery(Struct, frozen=True, rename={"from_": "from"}):
    """Ask for changes of metadata: from a place on, or behind a cursor; groups have commas."""

    from_: Literal["earliest", "latest", "current"] = "earliest"
    after: str | None = None
    current_after: str | None = None
    groups: str = ""
    since: U64 | None = None
    until: U64 | None = None
    limit: U32 = 100

    def __post_init__(self) -> None:
        if max(self.since or 0, self.until or 0) > U64_MAX:
            raise ValueError("a time has at most 64 bits")


class MetadataChangeShape(Struct, frozen=True):
    """One change; the body has the fields of its kind."""

    op: U64
    ordinal: U32
    checksum: str
    timestamp: U64
    actor: U32 | None
    group: str
    kind: str
    body: dict[str, Any]


class MetadataItemShape(Struct, frozen=True):
    """One resource of the current state."""

    group: str
    body: dict[str, Any]


class MetadataChangesShape(Struct, frozen=True):
    """A page of changes or of the current state.

    The cursor goes into ``after``, the token into ``current_after`` of the next request.
    """

    status: Literal["ok", "behind", "expired", "reset"]
    phase: Literal["changes", "current_state"]
    log_id: str
    oldest_op: U64
    retained_since: U64
    head_op: U64
    next_cursor: str | None
    has_more: bool
    changes: tuple[MetadataChangeShape, ...]
    items: tuple[MetadataItemShape, ...]
    token: str | None
