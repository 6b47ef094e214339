"""Every primitive of the wire, both ways; the small tagged values and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import primitives
from iggy_protocol.commands.streams import GetStream
from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    ProtocolError,
    TrailingBytes,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.layout import Layout
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from iggy_protocol.model.stream import CompressionAlgorithm
from iggy_protocol.model.system import (
    NodeRole,
    NodeStatus,
    SnapshotCompression,
    SnapshotType,
    Transport,
)
from iggy_protocol.model.user import UserStatus
from iggy_protocol.primitives import PARTITIONING
from iggy_protocol.registry import decode_request, encode_request
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import values_of

PARTITIONING_LAYOUT: Layout[Partitioning] = Layout("partitioning", PARTITIONING)


@pytest.mark.parametrize(
    ("made", "kind", "value"),
    [
        (PollingStrategy.offset(7), PollingKind.OFFSET, 7),
        (PollingStrategy.timestamp(8), PollingKind.TIMESTAMP, 8),
        (PollingStrategy.first(), PollingKind.FIRST, 0),
        (PollingStrategy.last(), PollingKind.LAST, 0),
        (PollingStrategy.next(), PollingKind.NEXT, 0),
        (Partitioning.balanced(), PartitioningKind.BALANCED, b""),
        (Partitioning.partition(7), PartitioningKind.PARTITION_ID, b"\7\0\0\0"),
        (Partitioning.key("é"), PartitioningKind.MESSAGES_KEY, "é".encode()),
        (Partitioning.key(b"\0\xff"), PartitioningKind.MESSAGES_KEY, b"\0\xff"),
    ],
)
def test_constructor_when_called_then_kind_and_value_are_those_of_the_wire(made, kind, value):
    assert (made.kind, made.value) == (kind, value)


def test_consumer_when_made_then_knows_its_kind():
    assert ConsumerIdentity.single("a") == ConsumerIdentity(ConsumerKind.SINGLE, "a")
    assert ConsumerIdentity.group(7) == ConsumerIdentity(ConsumerKind.GROUP, 7)


def test_partition_id_when_the_server_chooses_then_none():
    assert Partitioning.partition(7).partition_id == 7
    assert Partitioning.balanced().partition_id is None
    assert Partitioning.key("k").partition_id is None


@pytest.mark.parametrize("identifier", [-1, 2**32, "", "a" * 256, "\ud800", None, 1.5, b"name"])
def test_identifier_when_the_wire_cannot_say_it_then_local_error_names_the_field(identifier):
    with pytest.raises(LocalProtocolError) as caught:
        encode_request(GetStream(identifier))
    assert caught.value.field == "stream"


@pytest.mark.parametrize("identifier", [0, 2**32 - 1, "a", "é" * 127, "..", "7", "a\0b"])
def test_identifier_when_valid_then_survives_with_its_type(identifier):
    wire = joined(encode_request(GetStream(identifier)))
    assert decode_request(GetStream.CODE, wire) == GetStream(identifier)


@pytest.mark.parametrize(
    ("wire", "error", "status"),
    [
        ("0000", UnknownDiscriminant, 3),
        ("0400", UnknownDiscriminant, 3),
        ("010178", InvalidField, 3),
        ("0203000000", InvalidField, 3),
        ("02050000000000", InvalidField, 3),
        ("03", TruncatedField, 3),
        ("0305616263", TruncatedField, 3),
    ],
)
def test_partitioning_when_malformed_then_refused_with_status_3(wire, error, status):
    with pytest.raises(error) as caught:
        PARTITIONING_LAYOUT.decode(bytes.fromhex(wire))
    assert caught.value.status == status


@pytest.mark.parametrize(
    "partitioning",
    [
        Partitioning(PartitioningKind.BALANCED, b"x"),
        Partitioning(PartitioningKind.PARTITION_ID, b"123"),
        Partitioning.key(b"k" * 256),
    ],
)
def test_partitioning_when_its_value_has_a_wrong_size_then_cannot_be_written(partitioning):
    with pytest.raises(LocalProtocolError, match="does not take"):
        PARTITIONING_LAYOUT.encode(partitioning)


def test_protocol_error_when_raised_itself_then_is_refused():
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("nothing in particular")


# VARIANT is the raw form of identifiers and partitionings, which are tried themselves.
PRIMITIVES = {
    name: value
    for name, value in vars(primitives).items()
    if isinstance(value, Construct) and name.isupper() and name[0] != "_"
    if name not in {"VARIANT", "OPTION_ENTRY"}
}
UNBOUNDED = {"OPTIONS_TO_END"}
"""What ends with the payload; cut between two elements it is a shorter list."""


def test_primitives_when_listed_then_none_is_missing():
    assert len(PRIMITIVES) == 20


@pytest.mark.parametrize("name", PRIMITIVES)
@given(data=st.data())
def test_primitive_when_encoded_then_decodes_to_itself(name, data):
    layout: Layout[Any] = Layout(name, PRIMITIVES[name])
    value = data.draw(values_of(PRIMITIVES[name]))

    assert layout.decode(layout.encode(value)) == value


@pytest.mark.parametrize("name", sorted(PRIMITIVES.keys() - UNBOUNDED))
@given(data=st.data())
def test_primitive_when_cut_or_extended_then_refused_with_the_place(name, data):
    layout: Layout[Any] = Layout(name, PRIMITIVES[name])
    wire = layout.encode(data.draw(values_of(PRIMITIVES[name])))

    for end in range(len(wire)):
        with pytest.raises(TruncatedField) as cut:
            layout.decode(wire[:end])
        assert cut.value.offset + cut.value.have == end
        assert (cut.value.need > cut.value.have, cut.value.status) == (True, 3)
    with pytest.raises(TrailingBytes) as extended:
        layout.decode(wire + b"\0")
    assert (extended.value.offset, extended.value.have) == (len(wire), 1)


KINDS = (
    CompressionAlgorithm,
    ConsumerKind,
    NodeRole,
    NodeStatus,
    PollingKind,
    SnapshotCompression,
    SnapshotType,
    Transport,
    UserStatus,
)


@pytest.mark.parametrize("kinds", KINDS)
def test_discriminant_when_any_byte_comes_then_is_a_member_or_refused_with_status_3(kinds):
    layout: Layout[Any] = Layout("kind", primitives.discriminant(kinds))
    members = {kind.value for kind in kinds}

    for code in range(256):
        if code in members:
            assert layout.decode(bytes([code])) is kinds(code)
            continue
        with pytest.raises(UnknownDiscriminant, match=f"{code} is no {kinds.__name__}") as caught:
            layout.decode(bytes([code]))
        assert (caught.value.offset, caught.value.status) == (0, 3)


@pytest.mark.parametrize("kinds", KINDS)
def test_discriminant_when_no_member_is_written_then_local_error(kinds):
    layout: Layout[Any] = Layout("kind", primitives.discriminant(kinds))

    with pytest.raises(LocalProtocolError, match=f"200 is no {kinds.__name__}"):
        layout.encode(200)


@pytest.mark.parametrize("partition_id", [-1, 2**32])
def test_partition_when_it_does_not_fit_32_bits_then_local_error(partition_id):
    with pytest.raises(LocalProtocolError, match="outside the range"):
        Partitioning.partition(partition_id)
