"""Changes of metadata over HTTP: from a query to the command, and from a page to JSON.

The body of a change is an object with the fields of its record. Options are a map as elsewhere,
numbers of 128 bits are text, and what an older release cannot name keeps its number.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, Final

from iggy_protocol import (
    CHANGES_PAGE_MAX,
    ChangeKind,
    ChangesStart,
    GetMetadataChanges,
    InvalidField,
    MetadataChange,
    MetadataChanges,
    MetadataCursor,
    MetadataGroup,
    MetadataItem,
    Permissions,
    ReportedOptions,
    StatusCode,
)
from iggy_protocol.rest import (
    MetadataChangeShape,
    MetadataChangesQuery,
    MetadataChangesShape,
    MetadataItemShape,
    format_cursor,
    parse_cursor,
    permissions_to_shape,
)
from iggy_ref_server.web.replies import shape_options

STARTS: Final = {
    "earliest": ChangesStart.EARLIEST,
    "latest": ChangesStart.LATEST,
    "current": ChangesStart.CURRENT_STATE,
}
# The field that has 128 bits, more than readers of JSON hold.
CLIENT_ID: Final = "client_id"


def read_changes_query(query: MetadataChangesQuery) -> GetMetadataChanges:
    """Return the command of a query.

    Raises:
        InvalidField: the limit, a group, the cursor or the token is none.
    """
    start, cursor, token = STARTS[query.from_], MetadataCursor(), b""
    if query.after is not None:
        start, cursor = ChangesStart.AFTER_CURSOR, parse_cursor(query.after)
    elif query.current_after is not None:
        start, token = ChangesStart.CURRENT_STATE, _token_of(query.current_after)
    if not 1 <= query.limit <= CHANGES_PAGE_MAX:
        raise _wrong(f"the limit is {query.limit}, allowed are 1 to {CHANGES_PAGE_MAX}", "limit")
    names = [name.strip().upper() for name in query.groups.split(",") if name.strip()]
    if not set(names) <= MetadataGroup.__members__.keys():
        known = ", ".join(group.name.lower() for group in MetadataGroup)
        raise _wrong(f"groups are {known}", "groups")
    groups = tuple(dict.fromkeys(MetadataGroup[name] for name in names))
    return GetMetadataChanges(start, cursor, query.since, query.until, query.limit, groups, token)


def _wrong(reason: str, field: str) -> InvalidField:
    return InvalidField(reason, field=field, status=StatusCode.INVALID_COMMAND)


def _token_of(text: str) -> bytes:
    try:
        token = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        token = b""
    if not token:
        raise _wrong("this is no token", "current_after")
    return token


def shape_changes(page: MetadataChanges) -> MetadataChangesShape:
    """Convert a page."""
    status: Any = page.status.name.lower()
    phase: Any = page.phase.name.lower()
    cursor, token = page.next_cursor, urlsafe_b64encode(page.token).rstrip(b"=").decode()
    return MetadataChangesShape(
        status=status,
        phase=phase,
        log_id=f"{page.log_id or 0:x}",
        oldest_op=page.oldest_op,
        retained_since=page.retained_since_us,
        head_op=page.head_op,
        next_cursor=None if cursor is None else format_cursor(cursor),
        has_more=page.has_more,
        changes=tuple(map(_change, page.changes)),
        items=tuple(map(_item, page.items)),
        token=token or None,
    )


def _change(change: MetadataChange) -> MetadataChangeShape:
    return MetadataChangeShape(
        op=change.op,
        ordinal=change.ordinal,
        checksum=f"{change.checksum:x}",
        timestamp=change.timestamp_us,
        actor=change.actor,
        group=MetadataGroup(change.group).name.lower(),
        kind=ChangeKind(change.kind).name.lower(),
        body=_plain(change.body),
    )


def _item(item: MetadataItem) -> MetadataItemShape:
    return MetadataItemShape(MetadataGroup(item.group).name.lower(), _plain(item.body))


def _plain(value: Any) -> Any:
    """Convert a body, and whatever is in it, to what JSON has."""
    if isinstance(value, ReportedOptions):
        return shape_options(value)
    if isinstance(value, Permissions):
        return permissions_to_shape(value)
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {
            name.removesuffix("_us"): str(content) if name == CLIENT_ID else _plain(content)
            for name, content in named
        }
    if isinstance(value, IntEnum):
        return value.name.lower()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
