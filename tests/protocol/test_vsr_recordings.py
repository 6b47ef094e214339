"""The recordings of official clients from 0.9 on, as their reader splits them."""

from __future__ import annotations

from collections import Counter

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    UNLIMITED,
    V0_11,
    V0_12_0,
    CompressionAlgorithm,
    OptionScope,
    OptionValue,
    RuleViolation,
    commands_of,
    decode_reply,
    decode_request,
    derived_options,
    encode_reply,
    encode_request,
    options_of,
    validate,
)
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_recordings import RECORDINGS, every_exchange, exchanges


def test_recordings_when_read_then_every_reply_belongs_to_the_request_of_its_name():
    for exchange in every_exchange():
        if exchange.reply is None:
            assert exchange.request.name in {"poll_deferred", "cancel_deferred"}
            continue
        name, *error = exchange.reply.name.split()
        assert name in {exchange.request.name, "eviction"}
        if name == "eviction":
            assert (exchange.request.name, error[-1]) in {("register", "9"), ("register", "14")}
            assert exchange.reply.eviction == int(error[-1])
        else:
            assert exchange.reply.status == (int(error[-1]) if error else 0)


def test_recordings_when_counted_then_nothing_was_left_out():
    counted = Counter(exchange.request.dialect for exchange in every_exchange())

    assert counted == {V0_11: 136, V0_12_0: 190}


# Bodies that are batches or routes, or belong to sessions, have tests of their own.
CODES_ELSEWHERE = {14, 15, 40, *range(100, 110), 123}
UNKNOWN_CODE = 43210
LAID_OUT = [
    pytest.param(exchange, id=f"{file}:{exchange.request.line}")
    for file in RECORDINGS
    for exchange in exchanges(file)
    if exchange.request.code not in CODES_ELSEWHERE | {UNKNOWN_CODE}
]


@pytest.mark.parametrize("exchange", LAID_OUT)
def test_body_when_a_client_wrote_it_then_is_written_the_same_again(exchange):
    request = exchange.request
    if request.code not in commands_of(request.dialect):
        assert exchange.reply.status == 3
        return
    command = decode_request(request.code, request.body, request.dialect)

    assert joined(encode_request(command, request.dialect)) == request.body
    assert verdict(command, request.dialect) in {0, exchange.reply.status}


@pytest.mark.parametrize("exchange", LAID_OUT)
def test_body_when_a_client_accepted_it_then_is_written_the_same_again(exchange):
    dialect, code, reply = exchange.request.dialect, exchange.request.code, exchange.reply
    if reply.status == 0:
        value = decode_reply(code, reply.payload, dialect)

        assert joined(encode_reply(code, value, dialect)) == reply.payload


def verdict(command, dialect):
    """Return the status that validation gives a command."""
    try:
        validate(command, dialect)
    except RuleViolation as error:
        return error.status
    return 0


def test_refusals_when_they_are_about_options_then_come_from_validation():
    refused = [
        (
            exchange.reply.status,
            verdict(decode_request(one.code, one.body, one.dialect), one.dialect),
        )
        for exchange in every_exchange()
        for one in [exchange.request]
        if exchange.reply is not None and 4041 <= exchange.reply.status <= 4105
        if exchange.reply.status != 4100
    ]

    assert sorted(refused) == [(4041, 4041), (4041, 4041), (4103, 4103), (4104, 4104)]


def replies_of(code, dialect):
    return [
        decode_reply(code, exchange.reply.payload, dialect)
        for exchange in every_exchange()
        if (exchange.request.code, exchange.request.dialect) == (code, dialect)
        and exchange.reply is not None
        and exchange.reply.payload
    ]


@pytest.mark.parametrize("dialect", [V0_11, V0_12_0])
def test_options_when_described_then_are_those_of_the_table(dialect):
    """The broker described the options of the specification; texts and secrets are ours."""
    topic, stream, user = replies_of(13, dialect)

    for scope, described in zip((1, 2, 3), (topic, stream, user), strict=True):
        table = options_of(OptionScope(scope), dialect)
        known = {key: spec.describe(dialect) for key, spec in table.items()}
        assert [one.key for one in described] == [key for key in known if key in keys(described)]
        for one in described:
            ours = known[one.key]
            assert (one.kind, one.default) == (ours.kind, ours.default)
            assert one.flags == (ours.flags if dialect is V0_12_0 else 0)
    assert keys(topic) == set(options_of(OptionScope.TOPIC, dialect))
    assert keys(user) == set(options_of(OptionScope.USER, dialect))


def keys(described):
    return {one.key for one in described}


@pytest.mark.parametrize("dialect", [V0_11, V0_12_0])
def test_topic_when_a_server_derived_its_settings_then_has_them_as_fields(dialect):
    plain, full = [topic for topic in replies_of(302, dialect) if topic.name in {"t1", "t2"}]

    assert plain.compression is CompressionAlgorithm.NONE
    assert (plain.message_expiry_us, plain.max_topic_size_bytes) == (NEVER_EXPIRES, UNLIMITED)
    assert full.compression is CompressionAlgorithm.GZIP
    assert (full.message_expiry_us, full.max_topic_size_bytes) == (5_000_000, 2**31)
    assert full.options["segment_size"] == OptionValue.uint64(2**26)
    assert plain.derived_options["segment_size"] == OptionValue.uint64(2**30)
    assert plain.derived_options == derived_options(OptionScope.TOPIC, dialect, plain.options)
