"""Which refusal wins: every command with something wrong about it, by bytes as a client sends them.

The order is that of the original: bytes that make no command, the login, rights that depend on
nothing, lengths and counts, codes that mean nothing, what does not exist, rights on what exists.
What only shows something answers with nothing where there is nothing.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from iggy_protocol import CommandCode as Code
from iggy_protocol import (
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    CreateUser,
    LoginUser,
    UserStatus,
)
from tests.server.features.topic_calls import frame_of

SERVER_SHARDS = 2
NOTHING = (0, b"")
NO_STREAM, NO_TOPIC, NO_PARTITION, NO_GROUP, NO_MEMBER = 1009, 2010, 3007, 5000, 5006
MALFORMED, BAD_FORMAT, NOT_FOUND = 3, 4, 20
UNAUTHENTICATED, FORBIDDEN = 40, 41


def number(value: int) -> bytes:
    return struct.pack("<BBI", 1, 4, value)


def named(text: str) -> bytes:
    return b"\2" + name(text)


def name(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


HERE, NOWHERE = number(0), number(9)


def topic(
    stream: bytes = HERE,
    *,
    partitions: int = 1,
    compression: int = 1,
    size: int = 0,
    text: str = "t",
) -> bytes:
    return stream + struct.pack("<IBQQB", partitions, compression, 0, size, 1) + name(text)


def user(text: str = "user", password: str = "pass", status: int = 1) -> bytes:
    return name(text) + name(password) + bytes([status, 0])


def consumer(
    *, kind: int = 1, who: bytes = HERE, stream: bytes = HERE, on: bytes = HERE, partition: int = 0
) -> bytes:
    return bytes([kind]) + who + stream + on + b"\1" + u32(partition)


def poll(*, strategy: int = 1, count: int = 10, **options: Any) -> bytes:
    return consumer(**options) + struct.pack("<BQIB", strategy, 0, count, 0)


def store(**options: Any) -> bytes:
    return consumer(**options) + bytes(8)


# Who asks, what, with which bytes, and what the original answers. Stream 0 has topic 0 with one
# empty partition and the group 0, which has no members. User 1 has no rights, user 2 is inactive.
REFUSALS = [
    ("anonymous", Code.CREATE_STREAM, name(""), BAD_FORMAT),
    ("anonymous", Code.CREATE_STREAM, name("x"), UNAUTHENTICATED),
    ("anonymous", Code.GET_STREAM, b"\3\4\0\0\0\0", MALFORMED),
    ("anonymous", Code.GET_STREAM, HERE, UNAUTHENTICATED),
    ("anonymous", Code.CREATE_USER, user(status=9), UNAUTHENTICATED),
    ("anonymous", Code.UPDATE_USER, HERE + b"\0\1\x09", UNAUTHENTICATED),
    ("anonymous", Code.CREATE_TOPIC, topic(compression=9), UNAUTHENTICATED),
    ("anonymous", Code.GET_SNAPSHOT, bytes([9, 1, 4]), UNAUTHENTICATED),
    ("anonymous", Code.GET_SNAPSHOT, bytes([1, 2, 100, 4]), UNAUTHENTICATED),
    ("anonymous", Code.GET_SNAPSHOT, bytes([1, 2, 77, 78]), UNAUTHENTICATED),
    ("anonymous", Code.GET_SNAPSHOT, bytes([9, 2, 4]), MALFORMED),
    ("anonymous", Code.POLL_MESSAGES, poll(kind=3), MALFORMED),
    ("anonymous", Code.POLL_MESSAGES, poll(strategy=6), MALFORMED),
    ("anonymous", Code.POLL_MESSAGES, poll(), UNAUTHENTICATED),
    ("root", Code.GET_SNAPSHOT, bytes([9, 1, 4]), MALFORMED),
    ("root", Code.GET_SNAPSHOT, bytes([1, 2, 100, 4]), MALFORMED),
    ("root", Code.CREATE_USER, user(status=9), MALFORMED),
    ("root", Code.CREATE_USER, user("u", status=9), 43),
    ("root", Code.CREATE_USER, user("user", "p", status=9), 44),
    ("root", Code.CREATE_USER, user("plain"), 46),
    ("plain", Code.CREATE_USER, user("u", status=9), FORBIDDEN),
    ("plain", Code.UPDATE_USER, number(2) + b"\0\1\x09", FORBIDDEN),
    ("root", Code.UPDATE_USER, number(99) + b"\0\1\x09", MALFORMED),
    ("root", Code.UPDATE_USER, number(99) + b"\0\1\1", NOT_FOUND),
    ("root", Code.UPDATE_USER, number(1) + b"\1" + name("iggy") + b"\0", 46),
    ("root", Code.DELETE_USER, named("nobody"), NOT_FOUND),
    ("root", Code.UPDATE_PERMISSIONS, number(99) + b"\0", NOT_FOUND),
    ("root", Code.UPDATE_PERMISSIONS, HERE + b"\0", 49),
    ("plain", Code.CHANGE_PASSWORD, number(99) + name("aaa") + name("bbb"), NOT_FOUND),
    ("plain", Code.CHANGE_PASSWORD, HERE + name("iggy") + name("bbb"), FORBIDDEN),
    ("plain", Code.CHANGE_PASSWORD, number(99) + name("aa") + name("bbb"), 44),
    ("plain", Code.CHANGE_PASSWORD, number(1) + name("wrong") + name("bbb"), 42),
    ("plain", Code.GET_USER, number(99), FORBIDDEN),
    ("root", Code.GET_CLIENT, u32(0), 101),
    ("plain", Code.GET_CLIENT, u32(0), FORBIDDEN),
    ("root", Code.CREATE_PERSONAL_ACCESS_TOKEN, name("ab") + bytes(8), 50),
    ("root", Code.CREATE_PERSONAL_ACCESS_TOKEN, name("a" * 31) + bytes(8), 50),
    ("root", Code.DELETE_PERSONAL_ACCESS_TOKEN, name("none"), NOT_FOUND),
    ("anonymous", Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN, name("none"), NOT_FOUND),
    ("plain", Code.CREATE_STREAM, name("here"), FORBIDDEN),
    ("root", Code.CREATE_STREAM, name("here"), 1012),
    ("root", Code.CREATE_STREAM, b"", MALFORMED),
    ("root", Code.GET_STREAM, b"\1\2\0\0", BAD_FORMAT),
    ("root", Code.GET_STREAM, b"\2\2\xff\xff", MALFORMED),
    ("plain", Code.DELETE_STREAM, named("nowhere"), NO_STREAM),
    ("plain", Code.DELETE_STREAM, HERE, FORBIDDEN),
    ("plain", Code.UPDATE_STREAM, NOWHERE + name("x"), NO_STREAM),
    ("plain", Code.PURGE_STREAM, HERE, FORBIDDEN),
    ("root", Code.CREATE_TOPIC, topic(NOWHERE, partitions=1001, compression=9), 2015),
    ("root", Code.CREATE_TOPIC, topic(NOWHERE, compression=9), MALFORMED),
    ("root", Code.CREATE_TOPIC, topic(NOWHERE, size=5), NO_STREAM),
    ("root", Code.CREATE_TOPIC, topic(size=5), 1019),
    ("root", Code.CREATE_TOPIC, topic(), 2013),
    ("root", Code.CREATE_TOPIC, topic(compression=9, text=""), BAD_FORMAT),
    ("plain", Code.CREATE_TOPIC, topic(size=5), FORBIDDEN),
    ("root", Code.UPDATE_TOPIC, HERE + NOWHERE + struct.pack("<BQQB", 9, 0, 0, 1) + name("x"), 3),
    ("plain", Code.CREATE_PARTITIONS, NOWHERE + NOWHERE + u32(0), 2015),
    ("root", Code.CREATE_PARTITIONS, HERE + HERE + u32(1001), 2015),
    ("plain", Code.CREATE_PARTITIONS, HERE + NOWHERE + u32(1), NO_TOPIC),
    ("plain", Code.CREATE_PARTITIONS, HERE + HERE + u32(1), FORBIDDEN),
    ("plain", Code.DELETE_PARTITIONS, NOWHERE + NOWHERE + u32(0), 2015),
    ("root", Code.DELETE_PARTITIONS, HERE + HERE + u32(5000), 2019),
    ("plain", Code.DELETE_SEGMENTS, HERE + HERE + u32(9, 1), NO_PARTITION),
    ("plain", Code.DELETE_SEGMENTS, HERE + HERE + u32(0, 1), FORBIDDEN),
    ("plain", Code.FLUSH_UNSAVED_BUFFER, HERE + HERE + u32(9) + b"\1", FORBIDDEN),
    ("root", Code.FLUSH_UNSAVED_BUFFER, HERE + HERE + u32(9) + b"\1", NO_PARTITION),
    ("plain", Code.CREATE_CONSUMER_GROUP, NOWHERE + HERE + name("x"), NO_STREAM),
    ("plain", Code.CREATE_CONSUMER_GROUP, HERE + HERE + name("g"), FORBIDDEN),
    ("root", Code.CREATE_CONSUMER_GROUP, HERE + HERE + name("g"), 5004),
    ("plain", Code.DELETE_CONSUMER_GROUP, HERE + HERE + NOWHERE, NO_GROUP),
    ("plain", Code.JOIN_CONSUMER_GROUP, HERE + HERE + named("none"), NO_GROUP),
    ("plain", Code.JOIN_CONSUMER_GROUP, HERE + HERE + HERE, FORBIDDEN),
    ("root", Code.LEAVE_CONSUMER_GROUP, HERE + HERE + HERE, NO_MEMBER),
    ("plain", Code.GET_CONSUMER_GROUPS, HERE + HERE, FORBIDDEN),
    ("plain", Code.POLL_MESSAGES, poll(on=NOWHERE), NO_TOPIC),
    ("plain", Code.POLL_MESSAGES, poll(partition=9), FORBIDDEN),
    ("root", Code.POLL_MESSAGES, poll(partition=9, count=0), NO_PARTITION),
    ("root", Code.POLL_MESSAGES, poll(kind=2), NO_MEMBER),
    ("root", Code.POLL_MESSAGES, poll(kind=2, who=NOWHERE), NO_GROUP),
    ("plain", Code.GET_CONSUMER_OFFSET, consumer(), FORBIDDEN),
    ("root", Code.STORE_CONSUMER_OFFSET, store(), 4100),
    ("root", Code.STORE_CONSUMER_OFFSET, store(partition=9), NO_PARTITION),
    ("root", Code.STORE_CONSUMER_OFFSET, store(kind=2, who=NOWHERE), NO_GROUP),
    ("root", Code.STORE_CONSUMER_OFFSET, store(kind=2), NO_MEMBER),
    ("root", Code.DELETE_CONSUMER_OFFSET, consumer(), 3021),
    ("root", Code.DELETE_CONSUMER_OFFSET, consumer(partition=9), NO_PARTITION),
    ("root", Code.DELETE_CONSUMER_OFFSET, consumer(kind=2), NO_MEMBER),
    ("root", 999, b"", MALFORMED),
    ("anonymous", 999, b"", MALFORMED),
]

# What shows something that does not exist shows nothing, to whoever is logged in.
EMPTY = [
    ("root", Code.GET_USER, number(99)),
    ("plain", Code.GET_USER, named("nobody")),
    ("root", Code.GET_CLIENT, u32(12345)),
    ("plain", Code.GET_STREAM, NOWHERE),
    ("plain", Code.GET_TOPIC, HERE + NOWHERE),
    ("plain", Code.GET_TOPICS, NOWHERE),
    ("plain", Code.GET_CONSUMER_GROUP, HERE + HERE + NOWHERE),
    ("plain", Code.GET_CONSUMER_GROUPS, NOWHERE + HERE),
    ("plain", Code.GET_CONSUMER_OFFSET, consumer(stream=NOWHERE)),
    ("root", Code.GET_CONSUMER_OFFSET, consumer()),
    ("root", Code.GET_CONSUMER_OFFSET, consumer(partition=9)),
    ("root", Code.GET_CONSUMER_OFFSET, consumer(kind=2, who=NOWHERE)),
]

# Bytes that official clients send and that a strict reader would refuse.
TOLERATED = [
    ("one byte behind a user's status, as Go does", Code.UPDATE_USER, number(2) + b"\0\1\2\0"),
    ("five bytes behind no permissions, as Node does", Code.CREATE_USER, user("node") + bytes(5)),
    ("a payload of ping", Code.PING, b"abc"),
    ("a payload of what needs none", Code.GET_STREAMS, b"abc"),
    ("a flag that is neither 0 nor 1", Code.FLUSH_UNSAVED_BUFFER, HERE + HERE + u32(0) + b"\7"),
]


@pytest.fixture(scope="module")
def people(server):
    """Make what the tables speak of, and connect those who ask."""
    root = server.login()
    root.ask(CreateStream("here"))
    root.ask(CreateTopic("here", "t", 1))
    root.ask(CreateConsumerGroup("here", "t", "g"))
    root.ask(CreateUser("plain", "secret"))
    root.ask(CreateUser("idle", "secret", UserStatus.INACTIVE))
    return {"root": root, "plain": server.login("plain", "secret"), "anonymous": server.connect()}


def asked(client, code, payload):
    """Send a request by its bytes and return the status and the body of the answer."""
    client.socket.sendall(u32(len(payload) + 4, code) + payload)
    status, size = struct.unpack("<II", received(client, 8))
    return status, received(client, size)


def received(client, size):
    data = b""
    while len(data) < size:
        part = client.socket.recv(size - len(data))
        assert part, "the server closed the connection"
        data += part
    return data


@pytest.mark.parametrize(("who", "code", "payload", "status"), REFUSALS)
def test_request_when_several_things_are_wrong_then_the_first_of_them_is_told(
    people, who, code, payload, status
):
    assert asked(people[who], code, payload) == (status, b"")


@pytest.mark.parametrize(("who", "code", "payload"), EMPTY)
def test_question_when_what_it_is_about_does_not_exist_then_the_answer_is_empty(
    people, who, code, payload
):
    assert asked(people[who], code, payload) == NOTHING


@pytest.mark.parametrize(
    ("code", "payload"), [row[1:] for row in TOLERATED], ids=[r[0] for r in TOLERATED]
)
def test_request_when_it_carries_more_than_its_layout_then_it_is_served(people, code, payload):
    assert asked(people["root"], code, payload)[0] == 0


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_login_when_the_user_is_inactive_then_that_is_told_whatever_the_password(
    people, server, password
):
    client = server.connect()
    client.socket.sendall(frame_of(LoginUser("idle", password)))

    assert received(client, 8) == u32(47, 0)


def test_login_when_it_fails_then_the_session_before_it_goes_on(people, server):
    client = server.login()
    client.socket.sendall(frame_of(LoginUser("plain", "wrong")))

    assert received(client, 8) == u32(42, 0)
    assert asked(client, Code.GET_STREAMS, b"")[0] == 0


def test_login_when_another_user_was_logged_in_then_only_the_new_rights_count(people, server):
    client = server.login()
    client.login("plain", "secret")

    assert asked(client, Code.GET_STREAMS, b"") == (FORBIDDEN, b"")
