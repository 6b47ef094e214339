"""The end of an HTTP connection that the server closes while it still reads."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_ref_server.web.http_connection import TimeoutStream


@pytest.mark.trio
async def test_receive_when_another_task_closes_then_it_is_told_and_the_end_waits(autojump_clock):
    client, server = trio.socket.socketpair()
    stream = TimeoutStream(trio.SocketStream(server), stall_timeout_s=30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.aclose)
        await trio.testing.wait_all_tasks_blocked()

        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some(100)

        # The task that closes still reads, so that the kernel does not throw the last reply away.
        assert nursery.child_tasks
    client.close()
