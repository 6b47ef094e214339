"""The generated twins: they are what the async classes say, and nothing is missing."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from iggy_sdk import blocking, client, consumer, producer, request_reply
from tools import blocking_facade

# Under the blocking name; what only tasks can use has no twin.
RENAMED = {"aclose": "close"}
ASYNC_ONLY = {"run", "make", "standalone", "group", "open"}

PAIRS = [
    (client.IggyClient, blocking.IggyClient),
    (producer.Producer, blocking.Producer),
    (producer.ProducerBuilder, blocking.ProducerBuilder),
    (producer.Receipt, blocking.Receipt),
    (consumer.IggyConsumer, blocking.IggyConsumer),
    (consumer.ConsumerBuilder, blocking.ConsumerBuilder),
    (consumer.MessageList, blocking.MessageList),
    (request_reply.RequestReply, blocking.RequestReply),
    (request_reply.Responder, blocking.Responder),
]


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_twins_when_written_again_then_are_the_same():
    assert [twin.target for twin in blocking_facade.stale()] == []


def test_check_when_a_twin_is_stale_then_fails(monkeypatch, capsys, tmp_path):
    streams = blocking_facade.family("streams")
    assert streams is not None
    twin = replace(streams, doc="Verbs about rivers.")
    monkeypatch.setattr(blocking_facade, "TWINS", (twin,))

    assert blocking_facade.main(["--check"]) == 1
    assert "stale iggy_sdk.blocking.families.streams" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "twin"), PAIRS, ids=lambda kind: kind.__name__)
def test_twin_when_compared_then_has_every_member(kind, twin):
    wanted = {RENAMED.get(name, name) for name in public(kind)}

    assert wanted - public(twin) <= ASYNC_ONLY


@pytest.mark.parametrize(("kind", "twin"), PAIRS, ids=lambda kind: kind.__name__)
def test_twin_when_compared_then_nothing_is_left_to_await(kind, twin):
    left = [
        name
        for name in public(twin)
        if inspect.iscoroutinefunction(inspect.getattr_static(twin, name))
    ]

    assert not left


@pytest.mark.parametrize(("kind", "twin"), PAIRS, ids=lambda kind: kind.__name__)
def test_twin_when_compared_then_arguments_have_the_same_names(kind, twin):
    different = []
    for name in public(kind) & public(twin):
        one, other = getattr(kind, name), getattr(twin, name)
        if callable(one) and list(inspect.signature(one).parameters) != list(
            inspect.signature(other).parameters
        ):
            different.append(name)

    assert not different
