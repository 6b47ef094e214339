"""Register and BindSession: as official clients write them, both ways, cut and extended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC,
    V0_11,
    V0_12_0,
    V0_12_2,
    BindSession,
    CommandCode,
    LocalProtocolError,
    NotInDialect,
    PasswordCredentials,
    Register,
    RemoteProtocolError,
    SessionDetails,
    TokenCredentials,
    TruncatedField,
    UnknownCommand,
    Version,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.commands.sessions import (
    PASSWORD_CREDENTIALS,
    TOKEN_CREDENTIALS,
    read_login_prefix,
)
from iggy_protocol.layout import Layout
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import NAMES, TEXTS
from tests.protocol.vsr_recordings import every_exchange

VSR = [V0_11, V0_12_0, V0_12_2]
SECRET = bytes(range(32))
CLIENT = bytes(range(16, 32))
ROOT = PasswordCredentials("iggy", "iggy")
REGISTER = Register(Version(0, 12, 0), "my-sdk", "1.0.0", ROOT, SECRET)
BIND = BindSession(Version(0, 12, 0), "my-sdk", "1.0.0", CLIENT, 2, 6, SECRET)

VERSIONS = st.integers(0, 2**32 - 1).map(Version.unpack)
SHORT = st.text(max_size=60).filter(lambda text: len(text.encode()) <= 255)
CREDENTIALS = st.builds(PasswordCredentials, SHORT, SHORT, TEXTS) | st.builds(
    TokenCredentials, SHORT, TEXTS
)
PASSWORD_FORM: Layout[PasswordCredentials] = Layout("password", PASSWORD_CREDENTIALS)
TOKEN_FORM: Layout[TokenCredentials] = Layout("token", TOKEN_CREDENTIALS)
SECRETS = st.binary(min_size=32, max_size=32)


def written(command, dialect):
    return joined(encode_request(command, dialect))


def test_login_when_written_then_has_the_specified_bytes():
    prefix = "00300000 066d792d73646b 05312e302e30"
    credentials = "0469676779 0469676779 00000000"
    expected = bytes.fromhex(f"{prefix} {SECRET.hex()} {credentials}")
    assert written(REGISTER, V0_12_0) == expected
    session, watermark = "0200000000000000", "0600000000000000"
    expected = bytes.fromhex(f"{prefix} {CLIENT.hex()} {session} {watermark} {SECRET.hex()}")
    assert written(BIND, V0_12_0) == expected


def test_recorded_logins_when_decoded_then_are_encoded_to_the_same_bytes():
    logins = [one for one in every_exchange() if one.request.code in {40, 15}]
    assert {one.request.dialect for one in logins} == {V0_11, V0_12_0}
    for request, reply in ((one.request, one.reply) for one in logins):
        command = decode_request(request.code, request.body, request.dialect)
        assert written(command, request.dialect) == request.body
        assert isinstance(command, Register)
        assert command.sdk_name == "rust-sdk"
        if reply is not None and not reply.eviction:
            details = decode_reply(request.code, reply.payload, request.dialect)
            assert isinstance(details, SessionDetails)
            assert details.version == request.dialect.version
            encoded = encode_reply(request.code, details, request.dialect)
            assert joined(encoded) == reply.payload


@given(VERSIONS, NAMES, NAMES, CREDENTIALS, SECRETS)
def test_register_when_encoded_then_decodes_to_itself(
    version, sdk, sdk_version, credentials, secret
):
    for dialect in VSR:
        given_secret = b"" if dialect is V0_11 else secret
        command = Register(version, sdk, sdk_version, credentials, given_secret)
        assert decode_request(CommandCode.REGISTER, written(command, dialect), dialect) == command


@given(st.integers(0, 700), st.integers(0, 255))
def test_credentials_when_they_could_have_both_forms_then_one_of_them_is_not_utf_8(size, byte):
    """A token's context of this size, in which everything is made for the password form to fit."""
    password_bytes = size & 0xFF
    tail = bytearray(size.to_bytes(4, "little") + bytes([byte]) * size)
    context_bytes = len(tail) - 5 - password_bytes
    if context_bytes < 0:
        return
    tail[1 + password_bytes : 5 + password_bytes] = context_bytes.to_bytes(4, "little")
    forms = 0
    for layout in (PASSWORD_FORM, TOKEN_FORM):
        try:
            layout.decode(b"\1t" + tail)
        except RemoteProtocolError:
            continue
        forms += 1
    assert forms < 2


@given(
    VERSIONS, NAMES, NAMES, st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), SECRETS
)
def test_bind_when_encoded_then_decodes_to_itself_and_no_cut_of_it_does(
    version, sdk, sdk_version, client, number, secret
):
    command = BindSession(version, sdk, sdk_version, client, number, number, secret)
    wire = written(command, V0_12_0)
    assert decode_request(CommandCode.BIND_SESSION, wire, V0_12_0) == command
    for end in range(len(wire)):
        with pytest.raises(TruncatedField):
            decode_request(CommandCode.BIND_SESSION, wire[:end], V0_12_0)


@pytest.mark.parametrize("dialect", VSR)
def test_register_when_cut_or_extended_then_is_refused_with_status_3(dialect):
    secret = b"" if dialect is V0_11 else SECRET
    wire = written(Register(Version(0, 11, 0), "a", "bc", ROOT, secret), dialect)
    for body in [wire[:end] for end in range(len(wire))] + [wire + b"\0"]:
        with pytest.raises(RemoteProtocolError) as caught:
            decode_request(CommandCode.REGISTER, body, dialect)
        assert caught.value.status == 3


def status_of_garbage(code, garbage, dialect):
    try:
        decode_request(code, garbage, dialect)
    except RemoteProtocolError as error:
        return error.status
    return 0


@given(st.binary(max_size=120))
def test_garbage_when_decoded_as_a_login_then_value_or_typed_error(garbage):
    for code, dialect in ((40, V0_11), (40, V0_12_0), (15, V0_12_0)):
        assert status_of_garbage(code, garbage, dialect) in {0, 3, 4}


def test_prefix_when_read_then_ends_before_what_differs():
    wire = written(BIND, V0_12_0)
    prefix, end = read_login_prefix(wire)
    assert prefix == (Version(0, 12, 0), "my-sdk", "1.0.0")
    assert wire[end:].startswith(CLIENT)


def test_login_when_the_dialect_cannot_say_it_then_is_not_written():
    with pytest.raises(NotInDialect, match="secret"):
        encode_request(REGISTER, V0_11)
    with pytest.raises(NotInDialect):
        encode_request(REGISTER, CLASSIC)
    for dialect in (CLASSIC, V0_11):
        with pytest.raises(NotInDialect):
            encode_request(BIND, dialect)
        with pytest.raises(UnknownCommand):
            decode_request(CommandCode.BIND_SESSION, b"", dialect)


@pytest.mark.parametrize(
    "wrong",
    [
        Register(Version(0, 12, 0), "a", "b", ROOT, b"short"),
        Register(Version(0, 12, 0), "", "b", ROOT, SECRET),
        Register(Version(0, 2000, 0), "a", "b", ROOT, SECRET),
        BindSession(Version(0, 12, 0), "a", "b", b"short", 1, 1, SECRET),
        BindSession(Version(0, 12, 0), "a", "b", CLIENT, 1, 1, b"short"),
    ],
)
def test_login_when_a_field_does_not_fit_then_is_not_written(wrong):
    with pytest.raises(LocalProtocolError):
        encode_request(wrong, V0_12_0)
