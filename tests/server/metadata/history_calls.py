"""Metadata whose changes are recorded, and clients that follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    V0_12_2,
    ChangeKind,
    ChangesStart,
    Command,
    CommandCode,
    GetMetadataChanges,
    GlobalPermissions,
    MetadataChanges,
    Permissions,
    StreamPermissions,
    UserKey,
    decode_reply,
    encode_reply,
)
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.history import MetadataHistory
from iggy_ref_server.metadata.position import MetadataPosition
from iggy_ref_server.metadata.state import MetadataSettings, PlanContext
from tests.server.metadata.metadata_calls import NOW_US, plan, with_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.metadata import changes as change_types

SETTINGS = MetadataSettings()
GRANTS = Permissions(
    GlobalPermissions(read_servers=True), (StreamPermissions(0, read_stream=True),)
)
ROOT = UserKey(0, NOW_US)


class Feed:
    """Metadata whose changes are recorded, one microsecond after another."""

    def __init__(self, **limits: int) -> None:
        self.metadata = with_root()
        self.position = MetadataPosition()
        self.now_us = NOW_US
        self.position.start(self.metadata, NOW_US)
        self.history = MetadataHistory(self.position, SETTINGS, lambda n: b"\7" * n, **limits)
        self.history.start(NOW_US)
        self.start_op = self.position.current

    def context(self) -> PlanContext:
        """Return the context of the next command."""
        return PlanContext(now_us=self.now_us)

    def apply(self, change: change_types.Change, actor: int | None = 0) -> None:
        """Apply a change and record it, as the writer does."""
        before, self.metadata = self.metadata, apply(self.metadata, change)
        self.position.advance()
        self.history.record_change(
            change, before, self.metadata, timestamp_us=self.now_us, actor=actor
        )

    def do(self, *commands: Command[Any]) -> Feed:
        """Carry out commands."""
        for command in commands:
            self.now_us += 1
            self.apply(plan(self.metadata, command, self.context()))
        return self

    def read(self, start: ChangesStart = ChangesStart.EARLIEST, **fields: Any) -> MetadataChanges:
        """Read a page, and hold it to the layout."""
        page = self.history.read(GetMetadataChanges(start, **fields), self.metadata)
        payload = b"".join(
            map(bytes, encode_reply(CommandCode.GET_METADATA_CHANGES, page, V0_12_2))
        )
        assert decode_reply(CommandCode.GET_METADATA_CHANGES, payload, V0_12_2) == page
        return page

    def follow(self, page: MetadataChanges, **fields: Any) -> MetadataChanges:
        """Read the page behind another one."""
        return self.read(ChangesStart.AFTER_CURSOR, cursor=page.next_cursor, **fields)

    def pages(self, page: MetadataChanges, **fields: Any) -> Iterator[MetadataChanges]:
        """Read on as long as there is more."""
        yield page
        while page.has_more:
            page = self.follow(page, **fields)
            yield page

    def state_pages(self, **fields: Any) -> Iterator[MetadataChanges]:
        """Read the whole current state."""
        page = self.read(ChangesStart.CURRENT_STATE, **fields)
        yield page
        while page.has_more:
            page = self.read(ChangesStart.CURRENT_STATE, token=page.token, **fields)
            yield page


def newest(feed: Feed) -> tuple[ChangeKind, Any]:
    """Return what the newest change is told as."""
    change = feed.read().changes[-1]
    return ChangeKind(change.kind), change.body
