"""Official clients from 0.9 on when a connection breaks, or the server restarts.

The client 0.9 does not know what came of a write whose reply is lost, says so, and repeats nothing.
The client 0.10 binds its session to a new connection and repeats the request, which the server must
answer from its receipt and not execute once more.
"""

from __future__ import annotations

import pytest

from iggy_protocol import GetStream, StatusCode
from tests.interop.refusals import readable, refused
from tests.interop.relay import (
    CREATE_STREAM,
    REPLY_OPERATION,
    REQUEST_OPERATION,
    SEND_MESSAGES,
    Once,
    Relay,
)
from tests.interop.wheels import LATER_VERSIONS, VERSIONS
from tests.server.features.topic_calls import eventually, make_topic, unique
from tests.server.running import RunningServer

pytestmark = pytest.mark.interop

IN_0_9, IN_0_10 = LATER_VERSIONS
DISCONNECTED = "Disconnected"
CONNECTING = {DISCONNECTED, "Not connected"}
CALL_SECONDS_MAX = 40


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"])
def shards(request):
    return request.param


class Caller:
    """A client that makes single calls through a relay to a topic with one partition."""

    def __init__(self, client, relay, topic):
        self.client, self.topic = client, topic
        self.name = unique("caller")
        host, port = relay.address
        self.ask("connect", url=f"iggy+tcp://iggy:iggy@{host}:{port}")

    def ask(self, what, **given):
        """Make a call and return what came of it."""
        given["name"] = self.name
        return self.client.run(what, seconds_max=CALL_SECONDS_MAX, **given).returned

    def insist(self, what, **given):
        """Make a call until the client is connected; 0.9 may be connecting by itself."""
        answer = None

        def is_answered():
            nonlocal answer
            answer = self.ask(what, **given)
            return not isinstance(answer, dict) or answer["error"] not in CONNECTING

        assert eventually(is_answered, within_s=10)
        return answer

    def send(self, *payloads):
        place = {"stream": self.topic.stream, "topic": self.topic.topic}
        return self.ask("send", payloads=payloads, **place)

    def read(self):
        return self.ask("payloads", stream=self.topic.stream, topic=self.topic.topic)


@pytest.fixture
def calling(official, shared_server, shards):
    """Connect a client to a topic through a relay with rules, for as long as the test takes."""
    server = shared_server(shards)
    opened = []

    def caller(version, **rules):
        relay = Relay(server.address, **rules)
        opened.append(relay.__enter__())
        return Caller(official(version), relay, make_topic(server.login()))

    yield caller
    for relay in opened:
        relay.__exit__(None, None, None)


def test_send_of_0_10_when_its_reply_is_lost_then_is_answered_and_in_the_log_once(calling):
    lost = Once(SEND_MESSAGES, REPLY_OPERATION)
    caller = calling(IN_0_10, reply=lost)

    assert caller.send("a", "b") == [[0, 0]]
    assert lost.lost.is_set()
    assert caller.send("c") == [[0, 2]]
    assert caller.read() == caller.topic.read() == ["a", "b", "c"]


def test_send_of_0_10_when_it_never_came_then_is_repeated(calling):
    lost = Once(SEND_MESSAGES, REQUEST_OPERATION)
    caller = calling(IN_0_10, request=lost)

    assert caller.send("a") == [[0, 0]]
    assert lost.lost.is_set()
    assert caller.topic.read() == ["a"]


def test_stream_of_0_10_when_the_reply_is_lost_then_is_made_once(calling):
    lost = Once(CREATE_STREAM, REPLY_OPERATION)
    caller = calling(IN_0_10, reply=lost)
    name = unique("made")

    assert caller.ask("create a stream", stream=name) is None
    assert lost.lost.is_set()
    assert caller.ask("create a stream", stream=name)["code"] is not None
    assert caller.topic.client.ask(GetStream(name)) is not None


def test_send_of_0_9_when_its_reply_is_lost_then_says_so_and_repeats_nothing(calling):
    lost = Once(SEND_MESSAGES, REPLY_OPERATION)
    caller = calling(IN_0_9, reply=lost)

    assert caller.send("a")["error"] == DISCONNECTED
    assert lost.lost.is_set()
    assert caller.topic.read() == ["a"]
    assert eventually(lambda: caller.send("b") == [[0, 1]])
    assert caller.topic.read() == ["a", "b"]


HALF = 5


@pytest.mark.parametrize("version", LATER_VERSIONS)
def test_member_when_its_connection_is_lost_then_it_goes_on_where_it_was(
    official, shared_server, shards, version
):
    server = shared_server(shards)
    topic = make_topic(server.login(), partitions=2)
    client, name = official(version), unique("cut")
    with Relay(server.address) as relay:
        host, port = relay.address
        url = f"iggy+tcp://iggy:iggy@{host}:{port}"
        place = {"stream": topic.stream, "topic": topic.topic, "group": "g", "url": url}
        # A poll that stores its own offset could be served, and its reply be lost.
        client.run("join", name=name, stores_each=True, **place)
        texts = [str(number) for number in range(2 * HALF)]
        topic.send(*texts[:HALF], partition=1)
        client.run("taken", name=name, least=HALF)

        relay.cut()

        topic.send(*texts[HALF:], partition=1)
        client.run("taken", name=name, until=texts[-1], seconds_max=30)
        taken = [payload for *_, payload, _ in client.run("leave", name=name).returned]
        # What was handled and not yet stored may come again, and nothing else.
        assert list(dict.fromkeys(taken)) == texts
        assert topic.group().members == ()


@pytest.mark.parametrize("version", LATER_VERSIONS)
def test_membership_when_the_connection_is_lost_then_is_kept_from_0_10_on(
    official, shared_server, shards, version
):
    """It belongs to the session, which outlives its connection; before, it was the connection's."""
    server = shared_server(shards)
    topic = make_topic(server.login())
    topic.make_group()
    topic.send("a")
    with Relay(server.address) as relay:
        caller = Caller(official(version), relay, topic)
        group = {"stream": topic.stream, "topic": topic.topic, "group": "g"}
        assert caller.ask("join by hand", **group) is None
        assert caller.ask("poll as a member", **group) == ["a"]

        relay.cut()

        polled = caller.insist("poll as a member", **group)
        if version == IN_0_10:
            assert polled == ["a"]
        else:
            assert readable(polled) == refused(StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND)
            assert caller.ask("join by hand", **group) is None
            assert caller.ask("poll as a member", **group) == ["a"]


def test_producers_and_members_when_the_server_restarts_then_they_go_on(official, tmp_path):
    """All versions share the server, because a restart takes longer than what they do."""
    with RunningServer(tmp_path, shards=2) as server:
        host, port = server.address
        server.settings["IGGY_TCP_ADDRESS"] = f"{host}:{port}"
        url = f"iggy+tcp://iggy:iggy@{host}:{port}"
        root = server.login()
        callers = {version: (official(version), make_topic(root)) for version in VERSIONS}
        texts = [str(number) for number in range(2 * HALF)]
        for client, topic in callers.values():
            place = {"name": topic.stream, "stream": topic.stream, "topic": topic.topic}
            client.run("connect", name=topic.stream, url=url)
            client.run("join", group="g", url=url, **place)
            client.run("send", payloads=texts[:HALF], **place)
            client.run("taken", name=topic.stream, least=HALF)

        server.restart()

        for version, (client, topic) in callers.items():
            place = {"name": topic.stream, "stream": topic.stream, "topic": topic.topic}

            def is_sent(client=client, place=place):
                said = client.run("send", payloads=texts[HALF:], **place).returned
                return said is None or "error" not in said

            assert eventually(is_sent, within_s=20), version
            taken = client.run("taken", name=topic.stream, least=2 * HALF, seconds_max=30).returned
            assert [payload for *_, payload, _ in taken] == texts, version
            assert topic.seen_by(server.login()).read() == texts, version
