"""Small Iggy servers on real sockets, with and without TLS, for tests of the transports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from iggy_protocol import RequestReceived, ServerConnection, decode_request
from iggy_sdk.connection_string import Endpoint
from tests.sdk.scripted_peer import MANNERS

Serve = Callable[[ByteStream], Awaitable[None]]


async def serve_politely(stream: ByteStream) -> None:
    """Answer what clients ask, until they go."""
    connection = ServerConnection()
    while True:
        try:
            connection.receive_data(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
        while isinstance(event := connection.next_event(), RequestReceived):
            answer = MANNERS[type(decode_request(event.code, event.payload))]
            if isinstance(answer, int):
                buffers = connection.send_error(answer)
            else:
                buffers = connection.send(answer)
            await stream.send(b"".join(buffers))


@asynccontextmanager
async def socket_server(
    serve: Serve = serve_politely,
    *,
    context: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Endpoint]:
    """Serve on a free port as long as the block lasts."""

    async def attend(stream: ByteStream) -> None:
        async with stream:
            if context is None:
                await serve(stream)
                return
            try:
                secured = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=context, standard_compatible=False
                )
            except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
                return  # The client does not trust this server, or the other way round.
            try:
                await serve(secured)
            except ssl.SSLError:
                return

    listener = await anyio.create_tcp_listener(local_host=host)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, attend)
        yield Endpoint(host, listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()
