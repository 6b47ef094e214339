"""Options and cursors as JSON has them: what one side writes the other reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    V0_12_2,
    DescribeOptions,
    GetMetadataChanges,
    HeaderKind,
    InvalidField,
    MetadataCursor,
    OptionScope,
    OptionValue,
    RuleViolation,
    StatusCode,
    options_of,
)
from iggy_protocol.rest import (
    CreateStreamBody,
    MetadataChangesQuery,
    decode_json,
    decode_query,
    decode_rest_reply,
    encode_json,
    encode_rest_request,
    format_cursor,
    option_from_text,
    option_text,
    parse_cursor,
)
from iggy_ref_server.web.replies import shape_reply

VALUES = st.one_of(
    st.booleans().map(OptionValue.boolean),
    st.integers(0, 2**32 - 1).map(OptionValue.uint32),
    st.integers(0, 2**64 - 1).map(OptionValue.uint64),
    st.binary(min_size=1, max_size=60).map(OptionValue.raw_bytes),
    st.text(min_size=1, max_size=60).map(OptionValue.string),
)


@given(VALUES)
def test_option_when_written_as_text_then_is_read_as_the_same(value):
    assert option_from_text(value.kind, option_text(value)) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (HeaderKind.UINT32, "-1"),
        (HeaderKind.UINT32, "4294967296"),
        (HeaderKind.UINT64, "many"),
        (HeaderKind.BOOL, "yes"),
        (HeaderKind.RAW, "not base64!"),
        (HeaderKind.STRING, ""),
        (HeaderKind.FLOAT32, "1"),
    ],
)
def test_option_when_its_kind_has_no_such_value_then_is_refused(kind, text):
    with pytest.raises(InvalidField, match=kind.name):
        option_from_text(kind, text)


@pytest.mark.parametrize("scope", list(OptionScope))
def test_descriptions_when_asked_over_http_then_are_those_of_the_binary_protocol(scope):
    request = encode_rest_request(DescribeOptions(scope))
    described = tuple(spec.describe(V0_12_2) for spec in options_of(scope, V0_12_2).values())

    assert (request.route.method, request.target) == ("GET", f"/options/{scope.name.lower()}")
    body = encode_json(shape_reply(described))
    assert decode_rest_reply(DescribeOptions.CODE, body) == described


def test_changes_when_a_client_asks_over_http_then_it_is_told_that_it_cannot():
    with pytest.raises(RuleViolation) as refused:
        encode_rest_request(GetMetadataChanges())

    assert refused.value.status == StatusCode.FEATURE_UNAVAILABLE


@given(
    st.builds(
        MetadataCursor,
        st.integers(0, 2**128 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**128 - 1),
        st.integers(0, 2**32 - 1),
    )
)
def test_cursor_when_written_as_text_then_is_read_as_the_same(cursor):
    assert parse_cursor(format_cursor(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "g.2.3.4", "1.-2.3.4", "1.2.3.٤"])
def test_cursor_when_it_is_none_then_is_refused(text):
    with pytest.raises(InvalidField) as refused:
        parse_cursor(text)

    assert refused.value.status == StatusCode.INVALID_COMMAND


@pytest.mark.parametrize("field", ["since", "until"])
def test_query_of_changes_when_a_time_has_more_than_64_bits_then_is_refused(field):
    assert decode_query({field: str(2**64 - 1)}, MetadataChangesQuery).limit == 100
    with pytest.raises(InvalidField, match="64 bits"):
        decode_query({field: str(2**64)}, MetadataChangesQuery)


def test_bodies_when_options_are_left_out_then_write_nothing_of_them():
    assert encode_json(CreateStreamBody("s")) == b'{"name":"s"}'
    assert decode_json(b'{"name":"s","options":{"a":1}}', CreateStreamBody).options == {"a": 1}
