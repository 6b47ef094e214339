"""The responder that ``app`` asks for prices.

Run ``python -m examples.fastapi_app.prices [URL]``; start several to share the work. Ctrl-C stops
it in order.
"""

from __future__ import annotations

import signal
import sys

import anyio

from examples.fastapi_app.app import PRICES, STREAM, URL, create_topics
from iggy_sdk import IggyClient, JsonSerde, ReceivedMessage, Responder, StrSerde

CENTS = {"tea": 250, "coffee": 320, "cake": 410}


async def price_of(request: ReceivedMessage[str]) -> int:
    """Answer one request."""
    return CENTS[request.value]


async def stop_on_signal(responder: Responder[str, int]) -> None:
    """Stop in order: the requests in progress are answered."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            responder.stop()
            return


async def serve(url: str) -> None:
    """Answer until a signal comes."""
    async with IggyClient(url) as client:
        await create_topics(client)
        answers = client.responder(
            STREAM, PRICES, group="prices", request_serde=StrSerde(), reply_serde=JsonSerde()
        )
        async with answers as responder, anyio.create_task_group() as tasks:
            tasks.start_soon(stop_on_signal, responder)
            print("answering", flush=True)
            await responder.serve(price_of)
            tasks.cancel_scope.cancel()


def main(arguments: list[str]) -> None:
    """Answer over the server that the command line names."""
    anyio.run(serve, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])
