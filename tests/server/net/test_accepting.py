"""How listeners accept: clients that are gone, and machines without free descriptors."""

from __future__ import annotations

import errno
import os
import resource
import socket

import pytest
import trio
import trio.testing

from iggy_ref_server.net.tcp import ACCEPT_PAUSE_S, accept_next

pytestmark = pytest.mark.trio


@pytest.fixture
async def listener():
    with trio.socket.socket() as listening:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


@pytest.fixture
def descriptors():
    """Let the process open no more than it has open, and yield what takes that back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def release() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def exhaust() -> None:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))

    yield exhaust, release
    release()


async def test_accepting_when_descriptors_run_out_then_pauses_and_takes_the_client_later(
    listener, descriptors, mock_clock, caplog
):
    exhaust, release = descriptors
    accepted = []

    async def accept() -> None:
        accepted.append(await accept_next(listener, "TCP"))

    with socket.create_connection(listener.getsockname()) as client:
        async with trio.open_nursery() as nursery:
            exhaust()
            nursery.start_soon(accept)
            while not caplog.records:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert [record.getMessage() for record in caplog.records] == [
                f"cannot accept TCP connections: {os.strerror(errno.EMFILE)}"
            ]
            release()
            mock_clock.jump(ACCEPT_PAUSE_S)
        ((served, address),) = accepted
        assert address == client.getsockname()
        served.close()


async def test_accepting_when_only_the_reserve_is_left_then_refuses_and_says_why(
    listener, mock_clock, caplog
):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    accepted = []

    async def accept() -> None:
        accepted.append(await accept_next(listener, "TCP"))

    with socket.create_connection(listener.getsockname()) as client:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        try:
            # A quarter of so low a limit is the reserve, and the next number lies in it.
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free * 4 // 3, hard))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept)
                while not caplog.records:
                    await trio.lowlevel.checkpoint()
                assert "refused a TCP connection" in caplog.text
                assert client.recv(1) == b""
                await trio.testing.wait_all_tasks_blocked()
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                with socket.create_connection(listener.getsockname()) as second:
                    mock_clock.jump(ACCEPT_PAUSE_S)
                    while not accepted:
                        await trio.lowlevel.checkpoint()
                    assert accepted[0][1] == second.getsockname()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    accepted[0][0].close()
