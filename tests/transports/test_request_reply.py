"""Request and reply over every transport; a responder is a member of a group, which HTTP lacks."""

from __future__ import annotations

import anyio
import pytest

from iggy_sdk.client import IggyClient
from iggy_sdk.errors import InvalidRequestError
from tests.sdk.request_reply.services import REPLIES, REQUESTS, answering, make_service, shout
from tests.transports.servers import SECURED

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_calls_when_made_over_a_transport_then_all_are_answered(
    client, transport, transport_server
):
    stream = transport_server.fresh_name()
    await make_service(client, stream)
    over_tcp = transport_server.url("tls" if transport in SECURED else "tcp")
    replies = []
    async with (
        IggyClient(over_tcp) as other,
        answering(other, stream, shout),
        client.request_reply(stream, REQUESTS, reply_topic=REPLIES) as calls,
        anyio.create_task_group() as tasks,
    ):

        async def call(number: int) -> None:
            replies.append(await calls.call(b"item-%d" % number))

        for number in range(20):
            tasks.start_soon(call, number)

    assert sorted(replies) == sorted(b"ITEM-%d" % number for number in range(20))


async def test_responder_when_opened_over_a_transport_then_answers_unless_it_is_http(
    client, transport, transport_server
):
    stream = transport_server.fresh_name()
    await make_service(client, stream)
    if transport in ("http", "https"):
        with pytest.raises(InvalidRequestError, match="lasting connection"):
            await client.responder(stream, REQUESTS).__aenter__()
        return
    async with (
        answering(client, stream, shout),
        client.request_reply(stream, REQUESTS, reply_topic=REPLIES) as calls,
    ):
        assert await calls.call(b"tea") == b"TEA"
