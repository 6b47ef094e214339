"""Renders the layouts as the byte tables of ``protocol/README.md``.

Run ``python -m tools.wire_tables`` from the root of the repository to write them anew
after a layout has changed; a test compares them with the layouts.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from construct import Bytes, Construct, Flag, FormatField, Renamed

from iggy_protocol import Dialect, commands, primitives
from iggy_protocol.commands import messages, polled
from iggy_protocol.commands.deferred import FetchedPartitionsCodec, TargetArray
from iggy_protocol.commands.system import SnapshotCodec
from iggy_protocol.commands.users import OptionalPermissions
from iggy_protocol.errors import UnknownDiscriminant
from iggy_protocol.fields import (
    CompiledAdapter,
    ContinuationFlagArray,
    CountPrefixedArray,
    LengthPrefixedBytes,
    OptionalTail,
    PresenceFlagged,
    RecordStruct,
    SizeChecked,
    StrictGreedyRange,
)
from iggy_protocol.registry import (
    COMMANDS,
    EMPTY,
    CommandSpec,
    OptionalRecordCodec,
    RecordCodec,
)

if TYPE_CHECKING:
    from enum import IntEnum
    from types import ModuleType

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
    if isinstance(block, RecordStruct):
        return block.type.__name__
    if isinstance(block, CompiledAdapter) and block.label == "u8":
        return "u8: " + ", ".join(f"{kind.value} {kind.name.lower()}" for kind in members_of(block))
    if isinstance(block, CompiledAdapter | LengthPrefixedBytes) and block.label:
        return str(block.label)
    inner = describe(block.subcon)
    forms = {
        CompiledAdapter: inner,
        StrictGreedyRange: f"{inner}, repeated to the end",
        CountPrefixedArray: f"u{8 * getattr(block, 'count_size', 0)} count, then so many {inner}",
        TargetArray: f"u32 count, 1 to 1000, then so many {inner}",
        ContinuationFlagArray: f"{inner}, each behind a byte 1; a byte 0 ends the list",
        PresenceFlagged: f"byte 1 and {inner}; any other byte: nothing",
        OptionalTail: f"{inner}; servers before 0.8 end here",
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
        return block.sizeof()
    if isinstance(block, RecordStruct):
        sizes = [size_of(sub) for sub in block.fields]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return size_of(block.subcon) if isinstance(block, CompiledAdapter) else None


def table(record: RecordStruct) -> list[str]:
    """Render the fields of a record, with offsets as long as they are fixed."""
    lines = ["| Offset | Type | Field |", "|---|---|---|"]
    offset: int | None = 0
    for sub in record.fields:
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


def first_dialect(spec: CommandSpec) -> Dialect:
    """Return the oldest dialect that has a command."""
    return next(dialect for dialect in Dialect if spec.request[dialect] is not None)


def reply_line(spec: CommandSpec) -> str:
    """Say what the reply is."""
    reply = spec.reply[first_dialect(spec)]
    if reply is EMPTY:
        return "Reply: empty."
    if isinstance(reply, SnapshotCodec):
        return "Reply: the bytes of a zip archive."
    if isinstance(reply, polled.PolledMessagesCodec):
        return "Reply: PolledMessages, a head and then messages to the end."
    if isinstance(reply, polled.VsrPolledMessagesCodec):
        return "Reply: PolledMessages, a head and then batches to the end."
    if isinstance(reply, FetchedPartitionsCodec):
        return "Reply: u32 count, then so many FetchedHead, then the batches of all partitions."
    assert isinstance(reply, RecordCodec)
    empty = " or empty" if isinstance(reply, OptionalRecordCodec) else ""
    return f"Reply: {describe(reply.layout.construct)}{empty}."


def command_lines(spec: CommandSpec) -> list[str]:
    """Render one command."""
    lines = [f"#### {spec.command.__name__} ({spec.code.value})", ""]
    lines += [str(inspect.getdoc(spec.command)).splitlines()[0], ""]
    request = spec.request[first_dialect(spec)]
    if isinstance(request, messages.SendMessagesCodec):
        lines += ["Request: u32 size and SendMetadata, index entries of 16 bytes, messages.", ""]
    else:
        assert isinstance(request, RecordCodec)
        record = record_of(request.layout.construct)
        assert record is not None
        lines += [*table(record), ""] if record.fields else ["Request: empty.", ""]
    return [*lines, reply_line(spec), ""]


def records_of(module: ModuleType) -> list[RecordStruct]:
    """List the records that a family declares, each once, in the order of the source."""
    found: list[RecordStruct] = []
    for value in (value for name, value in vars(module).items() if not name.startswith("_")):
        block = value.construct if hasattr(value, "construct") else value
        record = record_of(block) if isinstance(block, Construct) else None
        if record is not None and record not in found and declared_in(module, record):
            found.append(record)
    return found


def declared_in(module: ModuleType, record: RecordStruct) -> bool:
    """Tell the records of a family from those it imports."""
    source = inspect.getsource(module)
    block = type(record).__name__
    return re.search(rf"\b{block}\(\s*{record.type.__name__}\b", source) is not None


def family(name: str) -> str:
    """Render everything of one family."""
    module = getattr(commands, name)
    lines: list[str] = []
    for record in records_of(module):
        lines += [f"**{record.type.__name__}**", "", *table(record), ""]
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
