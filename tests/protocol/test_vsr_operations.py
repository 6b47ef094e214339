"""Operations and result sections, as tables and against the recordings."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    V0_11,
    V0_12_0,
    V0_12_2,
    CommandCode,
    InvalidField,
    RemoteProtocolError,
    TruncatedField,
    UnknownDiscriminant,
)
from iggy_protocol.vsr.heads import read_reply_head
from iggy_protocol.vsr.operations import (
    NON_REPLICATED,
    OPERATIONS,
    REGISTER,
    UPDATE_RESOURCE,
    UPDATED_BY_SCOPE,
    committed_operation,
    is_metadata,
    is_stamped,
    operation_of,
    read_result,
    requested_operation,
    result_section,
    updated_by,
)
from tests.protocol.vsr_recordings import CODES, RESULT_FRAMED, every_exchange

EXCHANGES = every_exchange()
RETIRED = {129, 131, 133, 135, 142}


def test_operations_when_of_0_9_then_are_those_of_the_specification():
    assert dict(OPERATIONS[V0_11]) == CODES
    for operation, code in CODES.items():
        assert operation_of(code, V0_11) == operation


@pytest.mark.parametrize("dialect", [V0_12_0, V0_12_2])
def test_operations_when_of_0_10_then_one_stands_for_all_updates(dialect):
    assert dict(OPERATIONS[dialect]) == {
        operation: code for operation, code in CODES.items() if operation not in RETIRED
    }
    for code in UPDATED_BY_SCOPE.values():
        assert operation_of(code, dialect) == UPDATE_RESOURCE
    assert operation_of(CommandCode.PURGE_STREAM, dialect) == NON_REPLICATED


def test_recorded_requests_when_looked_up_then_travel_as_their_operation():
    known = set(CommandCode)
    requests = [one.request for one in EXCHANGES if one.request.code in known]
    replicated = {one.operation for one in requests}
    assert len(replicated) > 15
    for request in requests:
        is_told_apart = request.operation != NON_REPLICATED or request.code not in CODES.values()
        assert is_told_apart
        assert operation_of(request.code, request.dialect) == request.operation


def test_recorded_identifiers_when_looked_at_then_only_stamped_operations_have_one():
    for request in (one.request for one in EXCHANGES):
        assert is_stamped(request.operation) == any(request.head[144:160])


def test_recorded_replies_when_mapped_back_then_have_the_operation_of_their_request():
    seen = set()
    for one in EXCHANGES:
        if one.reply is None or one.reply.eviction:
            continue
        head = read_reply_head(one.reply.head)
        seen.add(head.operation)
        assert requested_operation(head.operation) == one.request.operation
        if not one.reply.status:
            assert committed_operation(one.request.code, one.request.operation) == head.operation
    assert seen >= {64, 72, 73}


def test_committed_operations_when_mapped_back_then_are_those_that_were_asked_for():
    for dialect in (V0_11, V0_12_0):
        for operation, code in OPERATIONS[dialect].items():
            assert requested_operation(committed_operation(code, operation)) == operation
    for code in UPDATED_BY_SCOPE.values():
        assert requested_operation(committed_operation(code, UPDATE_RESOURCE)) == UPDATE_RESOURCE


def test_metadata_operations_when_asked_then_are_neither_reads_nor_of_partitions():
    assert [one for one in (1, 2, 3, 64, 128, 149, 150, 160, 161, 162) if not is_metadata(one)] == [
        2,
        160,
        161,
        162,
    ]


def test_update_when_its_scope_is_missing_or_unknown_then_is_refused_with_status_3():
    assert updated_by(b"\1more") == CommandCode.UPDATE_TOPIC
    for body, error in ((b"", TruncatedField), (b"\0", UnknownDiscriminant)):
        with pytest.raises(error) as caught:
            updated_by(body)
        assert caught.value.status == 3


# Result sections


@pytest.mark.parametrize("operation", range(256))
def test_result_when_read_then_begins_the_bodies_of_the_specified_operations(operation):
    is_framed = operation in RESULT_FRAMED or operation == REGISTER
    assert read_result(operation, bytes(4) + b"payload") == ((0, 4) if is_framed else (0, 0))
    if is_framed:
        assert read_result(operation, result_section(57)) == (57, 12)
    if operation not in RESULT_FRAMED:
        assert read_result(operation, b"") == (0, 0)


@pytest.mark.parametrize(
    "body",
    [b"", bytes(3), b"\1\0\0\0", result_section(57)[:-1], result_section(57) + b"\0"],
)
def test_result_when_it_is_cut_or_extended_then_is_never_a_success(body):
    with pytest.raises(RemoteProtocolError):
        read_result(128, body)


def test_result_when_an_error_is_0_then_is_refused():
    with pytest.raises(InvalidField):
        read_result(128, result_section(0))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2**32 - 1)), min_size=1, max_size=5))
def test_result_when_it_has_several_entries_then_the_first_code_counts(entries):
    packed = b"".join(struct.pack("<II", *entry) for entry in entries)
    body = struct.pack("<I", len(entries)) + packed
    assert read_result(128, body) == (entries[0][1], len(body))
