"""Hooks: called in order, with what happened, and unable to break anything."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_sdk.errors import DisconnectedError
from iggy_sdk.hooks import Hook, Hooks
from tests.sdk.api.polling import polled

SEND = SendMessages("shop", "orders", Partitioning.balanced(), [b"x"])
POLL = PollMessages(ConsumerIdentity.single(1), "shop", "orders", PollingStrategy.next(), 10)


class Notes(Hook):
    """A hook that notes every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("on_", "before_", "after_")):
            calls = super().__getattribute__("calls")
            return lambda *args, **details: calls.append((name, (*args, *details.values())))
        return super().__getattribute__(name)


class Broken(Hook):
    """A hook that breaks everywhere."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("on_", "before_", "after_", "outgoing_")):
            raise ZeroDivisionError(name)
        return super().__getattribute__(name)

    def outgoing_headers(self, *, stream: Any, topic: Any) -> dict[str, str]:
        return {}


def drive(hooks: Hooks) -> None:
    """Have every callback called."""
    error = DisconnectedError()
    hooks.on_connect("host:1")
    hooks.before_request(Ping())
    hooks.after_request(Ping(), seconds=0.5)
    hooks.before_request(SEND)
    hooks.after_request(SEND, seconds=0.5, error=error)
    hooks.after_request(POLL, seconds=0.5, reply=polled([b"x"]))
    hooks.after_request(POLL, seconds=0.5, error=error)
    hooks.on_message("message")
    hooks.on_disconnect("host:1", error)


def test_hooks_when_something_happens_then_are_told_in_order():
    notes = Notes()

    drive(Hooks([notes]))

    assert [name for name, _ in notes.calls] == [
        "on_connect",
        "before_request",
        "after_request",
        "before_request",
        "before_send",
        "after_request",
        "after_send",
        "after_request",
        "on_poll",
        "after_request",
        "on_poll",
        "on_message",
        "on_disconnect",
    ]
    told = dict(notes.calls)
    assert told["on_connect"] == ("host:1",)
    assert told["before_send"] == (SEND,)
    assert told["on_poll"][1] is None
    assert isinstance(told["on_disconnect"][1], DisconnectedError)


def test_hook_when_nothing_is_overridden_then_does_nothing():
    hooks = Hooks([Hook()])

    drive(hooks)

    assert hooks.failures_count == 0
    assert hooks.outgoing_headers(stream="shop", topic="orders") == {}
    assert not hooks.adds_headers


def test_hooks_when_one_breaks_then_others_go_on_and_it_is_counted(caplog):
    notes, broken = Notes(), Broken()
    hooks = Hooks([broken, notes])

    with caplog.at_level(logging.ERROR, "iggy_sdk.hooks"):
        drive(hooks)
        hooks.outgoing_headers(stream="shop", topic="orders")

    assert len(notes.calls) == 13
    assert hooks.failures_count == 14
    assert len(caplog.records) == 14
    assert "Broken.on_connect raised" in caplog.text


class Cancelling(Hook):
    """A hook that is cancelled, which is no failure of its own."""

    def on_connect(self, endpoint: str) -> None:
        raise KeyboardInterrupt


def test_hooks_when_interrupted_then_do_not_swallow_it():
    with pytest.raises(KeyboardInterrupt):
        Hooks([Cancelling()]).on_connect("host:1")


class First(Hook):
    """A hook that adds a header."""

    def outgoing_headers(self, *, stream, topic):
        return {"a": 1, "b": 1}


class Second(Hook):
    """A hook that adds others."""

    def outgoing_headers(self, *, stream, topic):
        return {"b": 2, "c": topic}


class Silent(Hook):
    """A hook that has nothing to add this time."""

    def outgoing_headers(self, *, stream, topic):
        return None


def test_hooks_when_several_add_headers_then_the_last_one_counts():
    hooks = Hooks([First(), Silent(), Second()])

    assert hooks.adds_headers
    assert hooks.outgoing_headers(stream="shop", topic="t") == {"a": 1, "b": 2, "c": "t"}


def test_hooks_when_there_are_none_then_are_false():
    assert not Hooks()
    assert Hooks([Hook()])
