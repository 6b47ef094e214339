"""Connection strings: every key and form, what is refused, and that no secret is shown."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.connection_string import (
    CONNECTION_STRING_KEYS,
    ConnectionString,
    Endpoint,
    PasswordLogin,
    ServerProtocol,
    TokenLogin,
    parse_connection_string,
    parse_endpoint,
)
from iggy_sdk.errors import ConfigurationError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
HOST = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True) | st.sampled_from(
    ["127.0.0.1", "[::1]", "[2001:db8::7]"]
)
PORT = st.integers(1, 65_535)
ENDPOINTS = st.lists(st.tuples(HOST, PORT), min_size=1, max_size=4)
SCHEMES = {
    "iggy": ("tcp", False, 8090),
    "iggy+tcp": ("tcp", False, 8090),
    "iggy+ws": ("ws", False, 8092),
    "iggy+wss": ("ws", True, 8092),
    "iggy+quic": ("quic", True, 8080),
    "iggy+http": ("http", False, 3000),
    "iggy+https": ("http", True, 3000),
}


def refusal(text: str) -> ConfigurationError:
    """Parse what cannot be parsed."""
    with pytest.raises(ValueError) as caught:
        parse_connection_string(text)
    assert isinstance(caught.value, ConfigurationError)
    return caught.value


@given(
    scheme=st.sampled_from(sorted(SCHEMES)),
    login=st.tuples(TEXT, TEXT) | st.tuples(TEXT) | st.none(),
    endpoints=ENDPOINTS,
)
def test_parse_address_when_credentials_are_percent_encoded_then_gives_them_back(
    scheme, login, endpoints
):
    userinfo = "" if login is None else ":".join(quote(part, safe="") for part in login) + "@"
    hosts = ",".join(f"{host}:{port}" for host, port in endpoints)

    address = parse_connection_string(f"{scheme}://{userinfo}{hosts}")

    assert (address.transport, address.tls) == SCHEMES[scheme][:2]
    assert address.endpoints == tuple(Endpoint(host.strip("[]"), port) for host, port in endpoints)
    if login is None:
        assert address.credentials is None
    elif len(login) == 1:
        assert address.credentials == TokenLogin(*login)
    else:
        assert address.credentials == PasswordLogin(*login)


@given(endpoints=ENDPOINTS)
def test_endpoint_when_written_then_reads_as_itself(endpoints):
    for host, port in endpoints:
        endpoint = Endpoint(host.strip("[]"), port)
        assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize("scheme", SCHEMES)
def test_parse_address_when_port_is_left_out_then_takes_that_of_the_transport(scheme):
    assert parse_connection_string(f"{scheme}://host").endpoints == (
        Endpoint("host", SCHEMES[scheme][2]),
    )


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("localhost:9000", [Endpoint("localhost", 9000)]),
        ("[::1]:9000", [Endpoint("::1", 9000)]),
        ("a:1,b:2", [Endpoint("a", 1), Endpoint("b", 2)]),
        ("iggy://[fe80::1%25eth0]:1", [Endpoint("fe80::1%eth0", 1)]),
        ("iggy://host:8090/", [Endpoint("host", 8090)]),
    ],
)
def test_parse_address_when_form_is_unusual_then_reads_it(text, endpoints):
    assert list(parse_connection_string(text).endpoints) == endpoints


def test_parse_address_when_password_has_at_and_colons_then_takes_them():
    address = parse_connection_string("iggy://app:s%40fe:p@ss@host:1")

    assert address.credentials == PasswordLogin("app", "s@fe:p@ss")


VALUES: dict[str, tuple[str, str, Any]] = {
    "tls": ("true", "tls", True),
    "tls_domain": ("example.org", "tls_domain", "example.org"),
    "tls_ca_file": ("ca%20file.pem", "tls_ca_file", "ca file.pem"),
    "tls_validate_certificate": ("false", "tls_validate_certificate", False),
    "validate_certificate": ("true", "tls_validate_certificate", True),
    "tls_client_cert": ("cert.pem", "tls_client_cert", "cert.pem"),
    "tls_client_key": ("key.pem", "tls_client_key", "key.pem"),
    "nodelay": ("false", "nodelay", False),
    "connect_timeout": ("3s", "connect_timeout", 3.0),
    "request_timeout": ("1m%2030s", "request_timeout", 90.0),
    "close_timeout": ("500ms", "close_timeout", 0.5),
    "heartbeat_interval": ("none", "heartbeat_interval", 0.0),
    "reconnection_enabled": ("false", "reconnection_enabled", False),
    "reconnection_retries": ("unlimited", "reconnection_retries", None),
    "reconnection_max_retries": ("7", "reconnection_retries", 7),
    "reconnection_interval": ("1s", "reconnection_interval", 1.0),
    "reconnection_max_interval": ("10s", "reconnection_max_interval", 10.0),
    "reestablish_after": ("5s", "reestablish_after", 5.0),
    "reconnection_reestablish_after": ("6s", "reestablish_after", 6.0),
    "max_outstanding": ("16", "max_outstanding", 16),
    "protocol": ("0.9", "protocol", ServerProtocol.V0_9),
    "response_buffer_size": ("1", "response_buffer_size", 1),
    "max_concurrent_bidi_streams": ("2", "max_concurrent_bidi_streams", 2),
    "datagram_send_buffer_size": ("3", "datagram_send_buffer_size", 3),
    "initial_mtu": ("1200", "initial_mtu", 1200),
    "send_window": ("4", "send_window", 4),
    "receive_window": ("5", "receive_window", 5),
    "keep_alive_interval": ("5000", "keep_alive_interval", 5000),
    "max_idle_timeout": ("10000", "max_idle_timeout", 10000),
    "read_buffer_size": ("6", "read_buffer_size", 6),
    "write_buffer_size": ("7", "write_buffer_size", 7),
    "max_write_buffer_size": ("8", "max_write_buffer_size", 8),
    "max_message_size": ("9", "max_message_size", 9),
    "max_frame_size": ("10", "max_frame_size", 10),
    "accept_unmasked_frames": ("true", "accept_unmasked_frames", True),
    "retries": ("3", "retries", 3),
}


@pytest.mark.parametrize("key", CONNECTION_STRING_KEYS)
def test_parse_address_when_a_key_is_given_then_reads_its_value(key):
    text, name, value = VALUES[key]

    assert dict(parse_connection_string(f"iggy://host:1?{key}={text}").settings) == {name: value}


def test_parse_address_when_several_keys_are_given_then_reads_all():
    address = parse_connection_string("iggy://u:p@h:1?tls=true&nodelay=true&heartbeat_interval=5s")

    assert dict(address.settings) == {"tls": True, "nodelay": True, "heartbeat_interval": 5.0}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("heartbeat_intervall", "heartbeat_interval"),
        ("reconection_retries", "reconnection_retries"),
        ("tls_domian", "tls_domain"),
        ("no_delay", "nodelay"),
    ],
)
def test_parse_address_when_a_key_is_misspelt_then_names_the_nearest(key, nearest):
    assert f"Did you mean '{nearest}'?" in str(refusal(f"iggy://host:1?{key}=1s"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("igy://host:1", "Did you mean 'iggy'?"),
        ("http+iggy://host:1", "scheme"),
        ("", "host:port"),
        ("iggy://", "host:port"),
        ("iggy://host:port", "host:port"),
        ("iggy://host:0", "0 is not a port"),
        ("iggy://host:65536", "65536 is not a port"),
        ("iggy://::1:8090", "[host]:port"),
        ("iggy://host:1,", "host:port"),
        ("iggy://host:1/path", "host:port"),
        ("iggy://@host:1", "user:password@"),
        ("iggy://:secret@host:1", "user:password@"),
        ("iggy://user:@host:1", "user:password@"),
        ("iggy://user:100%@host:1", "%25"),
        ("iggy://user:%ff@host:1", "UTF-8"),
        ("iggy://host:1?tls", "tls=value"),
        ("iggy://host:1?tls=a=b", "tls=value"),
        ("iggy://host:1?tls=True", "tls=true or tls=false"),
        ("iggy://host:1?tls=true&tls=true", "comes twice"),
        ("iggy://host:1?reestablish_after=1s&reconnection_reestablish_after=1s", "comes twice"),
        ("iggy://host:1?initial_mtu=-1", "whole number"),
        ("iggy://host:1?reconnection_retries=forever", "whole number"),
        ("iggy://host:1?heartbeat_interval=5", "500ms"),
        ("iggy://host:1?zzz=1", "Use one of the options"),
        ("iggy://host:1?", None),
    ],
)
def test_parse_address_when_text_is_wrong_then_says_how_to_write_it(text, reason):
    if reason is None:
        assert parse_connection_string(text) == ConnectionString(
            "tcp", False, (Endpoint("host", 1),)
        )
    else:
        assert reason in str(refusal(text))


@pytest.mark.parametrize(
    "text",
    [
        "iggy://user:hunter2@host:bad",
        "iggy://user:hunter2@",
        "user:hunter2@host:1",
        "hunter2://host:1",
        "iggy://user:hunter2%@host:1",
        "iggy://user:hunter2?x@host:1",
        "iggy://user:80?hunter2@host:1",
        "iggy://user:80?a=b&hunter2@host:1",
        "iggy://user:hunter2/x@host:1?zzz=1",
        "iggy://hunter2:@host:1",
    ],
)
def test_parse_address_when_refused_then_quotes_no_secret(text):
    error = refusal(text)

    assert "hunter2" not in str(error)
    assert error.__cause__ is None or "hunter2" not in str(error.__cause__)


@given(secret=st.from_regex(r"[A-Z]{8,20}", fullmatch=True))
def test_address_when_shown_then_hides_the_secrets(secret):
    password = parse_connection_string(f"iggy://user:{secret}@host:1")
    token = parse_connection_string(f"iggy://{secret}@host:1")

    assert secret not in repr(password) + str(password)
    assert secret not in repr(token) + str(token)
    assert "user" in repr(password)


@given(text=st.text(max_size=60) | st.text("iggy+tcp:/@?&=%[],.0123456789s", max_size=60))
def test_parse_address_when_text_is_arbitrary_then_gives_an_address_or_refuses(text):
    with suppress(ConfigurationError):
        assert parse_connection_string(text).endpoints
