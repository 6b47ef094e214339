"""What the terminal says at a start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iggy_ref_server.config.load import RootCredentials
from iggy_ref_server.process.supervisor import (
    ListenerInfo,
    StartupInfo,
    root_password_line,
    startup_lines,
)

TCP = ListenerInfo(name="tcp", address="127.0.0.1:8090", is_served=True)
STARTED = StartupInfo(
    version="0.1.0",
    cores=[0, 2],
    engine="io_uring",
    ack="written",
    data_directory="/srv/local_data",
    source="built-in defaults",
    listeners=[TCP, ListenerInfo(name="http", address="127.0.0.1:3000", is_served=False)],
)


def test_lines_when_started_then_answer_the_first_questions():
    assert startup_lines(STARTED) == [
        "iggy-server 0.1.0, speaks Apache Iggy 0.7 to 0.10",
        "  shards    2 on cores 0, 2",
        "  storage   io_uring; messages are acknowledged when written",
        "  data      /srv/local_data",
        "  config    built-in defaults",
        "  tcp       127.0.0.1:8090",
        "  http      127.0.0.1:3000 is configured, but not served by this release",
        "Connect with iggy://iggy:<password>@127.0.0.1:8090",
    ]


def test_lines_when_alone_and_following_then_say_so():
    lines = startup_lines(replace(STARTED, cores=[3], is_follower=True))

    assert lines[0].endswith("0.10, as a follower")
    assert lines[1] == "  shards    1 on core 3"


@pytest.mark.parametrize(
    ("ack", "promise"), [("memory", "a crash may lose some"), ("fsync", "when synced to disk")]
)
def test_lines_when_another_promise_is_made_then_it_is_told(ack, promise):
    assert promise in startup_lines(replace(STARTED, ack=ack))[2]


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("0.0.0.0:9", "127.0.0.1:9"),
        ("[::]:9", "[::1]:9"),
        ("[::1]:9", "[::1]:9"),
        ("iggy.example:9", "iggy.example:9"),
    ],
)
def test_lines_when_bound_anywhere_then_the_example_can_be_typed(address, reachable):
    lines = startup_lines(replace(STARTED, listeners=[replace(TCP, address=address)]))

    assert lines[-1] == f"Connect with iggy://iggy:<password>@{reachable}"


def test_lines_when_encrypted_then_the_example_trusts_the_certificate():
    plain = replace(TCP, is_encrypted=True)
    made = replace(plain, development_certificate="runtime/cert.pem")

    assert "  tcp       127.0.0.1:8090 with TLS" in startup_lines(
        replace(STARTED, listeners=[plain])
    )
    assert startup_lines(replace(STARTED, listeners=[plain]))[-1].endswith("8090?tls=true")
    assert startup_lines(replace(STARTED, listeners=[made]))[-1].endswith(
        "?tls=true&tls_domain=localhost&tls_ca_file=runtime/cert.pem"
    )


def test_lines_when_nothing_is_served_then_none_says_how_to_connect():
    assert not [line for line in startup_lines(replace(STARTED, listeners=[])) if "Connect" in line]


@pytest.mark.parametrize(
    ("name", "encrypted", "address"),
    [
        ("websocket", False, "iggy+ws://iggy:<password>@127.0.0.1:9"),
        ("websocket", True, "iggy+wss://iggy:<password>@127.0.0.1:9"),
        ("http", False, "iggy+http://iggy:<password>@127.0.0.1:9"),
        ("http", True, "iggy+https://iggy:<password>@127.0.0.1:9"),
    ],
)
def test_lines_when_tcp_is_off_then_clients_are_sent_to_another_listener(name, encrypted, address):
    listener = ListenerInfo(name=name, address="0.0.0.0:9", is_served=True, is_encrypted=encrypted)

    assert startup_lines(replace(STARTED, listeners=[listener]))[-1] == f"Connect with {address}"


def test_password_when_made_up_then_is_told():
    root = RootCredentials("iggy", "hush", is_generated=True)

    assert root_password_line(root) == "Generated root user password: hush"
