"""Signals that wake whoever waits for them."""

from __future__ import annotations

import os
import select
import signal
import threading

import pytest

from iggy_ref_server.process.monitor import WATCHED_SIGNALS, read_stop_signal, watch_signals


def is_readable(descriptor):
    return bool(select.select([descriptor], [], [], 10)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signal_when_it_came_before_the_watch_then_it_is_read(number):
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    # To this thread: the others of the test process have not blocked it and would end by it.
    signal.pthread_kill(threading.get_ident(), number)

    with watch_signals() as signals:
        assert is_readable(signals)
        assert read_stop_signal(signals) == number
        assert read_stop_signal(signals) is None


def test_stop_signal_when_children_ended_meanwhile_then_it_is_read():
    with watch_signals() as signals:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGCHLD):
            os.kill(os.getpid(), number)

        assert is_readable(signals)
        assert read_stop_signal(signals) == signal.SIGTERM


def test_child_that_ended_when_watched_then_it_wakes_and_stops_nothing():
    with watch_signals() as signals:
        child = os.fork()
        if not child:
            os._exit(0)

        assert is_readable(signals)
        assert read_stop_signal(signals) is None
        os.waitpid(child, 0)


def test_signal_handlers_when_the_watch_is_over_then_they_are_as_before():
    before = [signal.getsignal(number) for number in WATCHED_SIGNALS]

    with watch_signals():
        pass

    assert [signal.getsignal(number) for number in WATCHED_SIGNALS] == before
