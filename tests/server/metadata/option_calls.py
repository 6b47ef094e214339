"""Short words for tests of options: commands as a server reads them from any dialect."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import (
    V0_11,
    V0_12_0,
    V0_12_2,
    Command,
    CreateStream,
    CreateTopic,
    Dialect,
    Options,
    RuleViolation,
    UpdateTopic,
    decode_request,
    encode_request,
    validate,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import decode_change, encode_change
from iggy_ref_server.metadata.snapshot import decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.state import Metadata, MetadataSettings, PlanContext, TopicRecord
from tests.server.metadata.metadata_calls import NOW_US, after, plan, with_root

VSR = (V0_11, V0_12_0, V0_12_2)
SINCE_0_12 = (V0_12_0, V0_12_2)
MINUTE_US = 60_000_000
SETTINGS = MetadataSettings(
    message_expiry_us=MINUTE_US,
    max_topic_size_bytes=2**40,
    segment_size_bytes=2**27,
    messages_required_to_save=7,
    bytes_required_to_save=2**19,
)
FIELDS = {"compression_algorithm", "message_expiry", "max_topic_size"}
STREAM = after(with_root(), CreateStream("s"))


def context(dialect: Dialect, settings: MetadataSettings = SETTINGS) -> PlanContext:
    """Plan for a client of a dialect."""
    return PlanContext(now_us=NOW_US, dialect=dialect, settings=settings)


def spoken(command: Command[Any], dialect: Dialect) -> Command[Any]:
    """Return a command as a server reads and checks it."""
    body = b"".join(map(bytes, encode_request(command, dialect)))  # type: ignore[arg-type]
    read = decode_request(command.CODE, body, dialect)
    validate(read, dialect)
    return read


def told(metadata: Metadata, dialect: Dialect, *commands: Command[Any]) -> Metadata:
    """Carry out the commands of a client, logged and read again as at a restart."""
    for command in commands:
        change = plan(metadata, spoken(command, dialect), context(dialect))
        metadata = apply(metadata, decode_change(encode_change(change)))
    return decode_snapshot(encode_snapshot(metadata, NOW_US))


def topic_of(metadata: Metadata) -> TopicRecord:
    """Return the only topic."""
    return metadata.require_topic("s", 0)


def refusal(metadata: Metadata, dialect: Dialect, command: Command[Any]) -> int:
    """Return the status with which a command is refused."""
    with pytest.raises((ServerFault, RuleViolation)) as caught:
        told(metadata, dialect, command)
    error: Any = caught.value
    return int(error.status)


def create(**options: Any) -> CreateTopic:
    """Create a topic with options."""
    return CreateTopic("s", "t", 1, options=Options(options))


def update(**options: Any) -> UpdateTopic:
    """Change options of the topic and nothing else."""
    return UpdateTopic("s", "t", None, None, None, None, None, options=Options(options))
