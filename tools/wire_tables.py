"""Renders the layouts as the byte tables of ``protocol/README.md``.

Run ``python -m tools.wire_tables`` from the root of the repository to write them anew
after a layout has changed; a test compares them with the layouts. A layout that a later dialect
changes has one table for each, named by the version of the protocol.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from construct import Bytes, Construct, Flag, FormatField, Renamed

from iggy_protocol import CLASSIC, Dialect, commands, primitives
from iggy_protocol.commands import messages, polled
from iggy_protocol.commands.deferred import FetchedPartitionsCodec, TargetArray
from iggy_protocol.commands.metadata_changes import ReadableOptions, TaggedBody
from iggy_protocol.commands.sessions import RegisterCodec
from iggy_protocol.commands.system import SnapshotCodec
from iggy_protocol.commands.users import OptionalPermissions
from iggy_protocol.errors import UnknownDiscriminant
from iggy_protocol.fields import (
    Absent,
    CompiledAdapter,
    ContinuationFlagArray,
    CountPrefixedArray,
    LengthPrefixedBytes,
    OptionalTail,
    PresenceFlagged,
    RecordStruct,
    SizeChecked,
    StrictGreedyRange,
    StrictPresenceFlagged,
)
from iggy_protocol.option_layouts import OptionRecord
from iggy_protocol.registry import (
    COMMANDS,
    EMPTY,
    CommandSpec,
    OptionalRecordCodec,
    RecordCodec,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import IntEnum
    from types import ModuleType

    from iggy_protocol import ByDialect
    from iggy_protocol.registry import Codec

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
README = ROOT / "protocol" / "README.md"
SCALARS = {"B": ("u8", 1), "H": ("u16", 2), "L": ("u32", 4), "Q": ("u64", 8), "f": ("f32", 4)}


def bare(block: Construct[Any, Any]) -> Construct[Any, Any]:
    """Take the name off a block."""
    return block.subcon if isinstance(block, Renamed) else block


def describe(block: Any) -> str:
    """Say in a few words how a block looks on the wire."""
    block = bare(block)
    if isinstance(block, FormatField):
        return SCALARS[block.fmtstr[1]][0]
    if block is Flag:
        return "bool"
    if isinstance(block, RecordStruct | OptionRecord | TaggedBody):
        return str(block.type.__name__)
    if isinstance(block, CompiledAdapter) and block.label == "u8":
        return "u8: " + ", ".join(f"{kind.value} {kind.name.lower()}" for kind in members_of(block))
    if isinstance(block, CompiledAdapter | LengthPrefixedBytes) and block.label:
        return str(block.label)
    inner = describe(block.subcon)
    forms = {
        CompiledAdapter: inner,
        primitives.CountedRecord: inner,
        StrictGreedyRange: f"{inner}, repeated to the end",
        CountPrefixedArray: f"u{8 * getattr(block, 'count_size', 0)} count, then so many {inner}",
        TargetArray: f"u32 count, 1 to 1000, then so many {inner}",
        ContinuationFlagArray: f"{inner}, each behind a byte 1; a byte 0 ends the list",
        PresenceFlagged: f"byte 1 and {inner}; any other byte: nothing",
        StrictPresenceFlagged: f"byte 1 and {inner}; or byte 0",
        ReadableOptions: f"byte 0 and {inner}; or byte 1: unreadable",
        OptionalTail: f"{inner}; older servers end here",
        SizeChecked: f"u32 size and {inner}",
        OptionalPermissions: f"byte 1, {inner}; or four zero bytes: none",
    }
    return forms[type(block)]


def members_of(block: CompiledAdapter) -> list[IntEnum]:
    """List the values that a discriminant knows."""
    members = []
    for code in range(256):
        with suppress(UnknownDiscriminant):
            members.append(block.decode(code))
    return members


def size_of(block: Any) -> int | None:
    """Return the size of a block where it is fixed."""
    block = bare(block)
    if isinstance(block, FormatField):
        return SCALARS[block.fmtstr[1]][1]
    if block is Flag:
        return 1
    if isinstance(block, Bytes):
        return int(block.sizeof())
    if isinstance(block, RecordStruct):
        sizes = [size_of(sub) for sub in block.fields]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    if block is primitives.U128.subcon:
        return 16
    return size_of(block.subcon) if isinstance(block, CompiledAdapter) else None


TABLE_HEAD = ("| Offset | Type | Field |", "|---|---|---|")


def table(record: RecordStruct) -> list[str]:
    """Render the fields of a record, with offsets as long as they are fixed."""
    lines = list(TABLE_HEAD)
    offset: int | None = 0
    for sub in record.fields:
        if isinstance(bare(sub), Absent):
            continue
        place = "then" if offset is None else str(offset)
        lines.append(f"| {place} | {describe(sub)} | {sub.name} |")
        size = size_of(sub)
        offset = None if offset is None or size is None else offset + size
    return lines


def record_of(block: Any) -> RecordStruct | None:
    """Find the record inside adapters and lists."""
    block = bare(block)
    while not isinstance(block, RecordStruct):
        if not hasattr(block, "subcon"):
            return None
        block = bare(block.subcon)
    return block


def changes_of(layouts: ByDialect[Any]) -> Iterator[Dialect]:
    """Name the dialects in which a layout differs from that of the dialect before."""
    before = None
    for dialect in Dialect:
        if layouts[dialect] is not before:
            yield dialect
        before = layouts[dialect]


def since(dialect: Dialect) -> str:
    """Say from which version on a layout holds."""
    return "" if dialect is CLASSIC else f"From {dialect.version} on: "


def reply_text(reply: Codec) -> str:
    """Say what a reply is."""
    if reply is EMPTY:
        return "empty"
    if isinstance(reply, SnapshotCodec):
        return "the bytes of a zip archive"
    if isinstance(reply, polled.PolledMessagesCodec):
        return "PolledMessages, a head and then messages to the end"
    if isinstance(reply, polled.VsrPolledMessagesCodec):
        return "PolledMessages, a head and then batches to the end"
    if isinstance(reply, FetchedPartitionsCodec):
        return "u32 count, then so many FetchedHead, then the batches of all partitions"
    assert isinstance(reply, RecordCodec)
    empty = " or empty" if isinstance(reply, OptionalRecordCodec) else ""
    return f"{describe(reply.layout.construct)}{empty}"


def reply_lines(spec: CommandSpec) -> Iterator[str]:
    """Say what the reply is, once for each way of it."""
    said = ""
    for dialect in changes_of(spec.reply):
        text = reply_text(spec.reply[dialect])
        if text != said:
            yield f"{since(dialect)}Reply: {text}."
            yield ""
        said = text


def request_lines(request: Codec | None, dialect: Dialect) -> list[str]:
    """Render the request of one dialect."""
    if request is None:
        return [] if dialect is CLASSIC else [f"Gone from {dialect.version} on.", ""]
    if isinstance(request, messages.SendMessagesCodec):
        return ["Request: u32 size and SendMetadata, index entries of 16 bytes, messages.", ""]
    if isinstance(request, messages.VsrSendMessagesCodec):
        return [f"{since(dialect)}Request: u32 size and SendMetadata, one batch.", ""]
    if isinstance(request, RegisterCodec):
        return ["Request: LoginPrefix, from 0.10 on a secret of 32 bytes, Credentials.", ""]
    assert isinstance(request, RecordCodec)
    record = record_of(request.layout.construct)
    assert record is not None
    lines = table(record)
    if len(lines) == len(TABLE_HEAD):
        return [f"{since(dialect)}Request: empty.", ""]
    return [*([since(dialect).strip(), ""] if since(dialect) else []), *lines, ""]


def command_lines(spec: CommandSpec) -> list[str]:
    """Render one command."""
    lines = [f"#### {spec.command.__name__} ({spec.code.value})", ""]
    lines += [str(inspect.getdoc(spec.command)).splitlines()[0], ""]
    for dialect in changes_of(spec.request):
        lines += request_lines(spec.request[dialect], dialect)
    return [*lines, *reply_lines(spec)]


def records_of(module: ModuleType) -> list[tuple[str, RecordStruct]]:
    """List the records that a family declares, each once, with a title, in the source's order."""
    found: list[tuple[str, RecordStruct]] = []
    for name, value in vars(module).items():
        block = value.construct if hasattr(value, "construct") else value
        record = record_of(block) if isinstance(block, Construct) else None
        if name.startswith("_") or record is None or record in (seen for _, seen in found):
            continue
        if declared_in(module, block, record) and not is_shown(block, record, found):
            found.append((f"**{title_of(block)}**{version_of(name)}", record))
    return found


def is_shown(block: Any, record: RecordStruct, found: list[tuple[str, RecordStruct]]) -> bool:
    """Tell whether a record differs from an earlier one of its name only inside its fields."""
    title = f"**{title_of(block)}**"
    return any(before.startswith(title) and table(seen) == table(record) for before, seen in found)


def title_of(block: Any) -> str:
    """Name the record inside adapters and lists."""
    while not hasattr(block, "type"):
        block = bare(block.subcon)
    return str(block.type.__name__)


def version_of(name: str) -> str:
    """Say in which dialects the layout with this name holds."""
    version = name.partition("_V")[2].replace("_", ".")
    return f" from {version} on" if version else ""


def declared_in(module: ModuleType, block: Any, record: RecordStruct) -> bool:
    """Tell the records of a family from those it imports."""
    names = rf"({title_of(block)}|{record.type.__name__})"
    source = inspect.getsource(module)
    return re.search(rf"\bRecordStruct\(\s*(model\.)?{names}\b", source) is not None


def family(name: str) -> str:
    """Render everything of one family."""
    module = getattr(commands, name)
    lines: list[str] = []
    for title, record in records_of(module):
        lines += [title, "", *table(record), ""]
    for spec in COMMANDS.values():
        if spec.command.__module__ == module.__name__:
            lines += command_lines(spec)
    return "\n".join(lines)


def primitive_records() -> str:
    """Render the tagged values that the families share."""
    lines: list[str] = []
    for name, block in (
        ("ident and partitioning", primitives.VARIANT),
        ("optional partition", primitives.OPTIONAL_PARTITION),
        ("Consumer", primitives.CONSUMER),
        ("Consumer of offset commands from 0.12 on", primitives.CONSUMER_V0_12),
        ("option", primitives.OPTION_ENTRY),
        ("PollingStrategy", primitives.POLLING_STRATEGY),
    ):
        record = record_of(block)
        assert record is not None
        lines += [f"**{name}**", "", *table(record), ""]
    return "\n".join(lines)


def rendered(text: str) -> str:
    """Fill in everything between ``<!-- wire: name -->`` and ``<!-- end -->``."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        body = primitive_records() if name == "primitives" else family(name)
        return f"<!-- wire: {name} -->\n\n{body}\n<!-- end -->"

    return re.sub(r"<!-- wire: (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(rendered(README.read_text()))
    sys.stdout.write(f"{README.name} is up to date\n")
