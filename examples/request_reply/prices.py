"""Ask a service and await its reply: two responders share the work, many calls run at a time.

Run ``python -m examples.request_reply.prices [URL]``. The callers and the responders are in one
program here; usually they are several, on several machines.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import anyio

from iggy_sdk import (
    IggyClient,
    MsgspecSerde,
    ReceivedMessage,
    RemoteHandlerError,
    RequestReply,
    Responder,
)

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, REQUESTS, REPLIES = "request-reply", "prices", "price-replies"
CENTS = {"tea": 250, "coffee": 320, "cake": 410}


@dataclass
class Question:
    """What somebody wants to buy."""

    item: str
    count: int


@dataclass
class Quote:
    """What it costs."""

    cents: int


QUESTIONS, QUOTES = MsgspecSerde(Question), MsgspecSerde(Quote)


async def quote(request: ReceivedMessage[Question]) -> Quote:
    """Answer one request; a KeyError reaches the caller as a RemoteHandlerError."""
    question = request.value
    return Quote(CENTS[question.item] * question.count)


async def ask(calls: RequestReply[Question, Quote]) -> None:
    """Ask for one price, for one that does not exist, and for many at a time."""
    print(f"2 x tea: {(await calls.call(Question('tea', 2), timeout=10.0)).cents} cents")
    try:
        await calls.call(Question("gold", 1))
    except RemoteHandlerError as error:
        print(f"gold: {error.remote_type}")
    quotes: list[Quote] = []

    async def ask_one(count: int) -> None:
        quotes.append(await calls.call(Question("cake", count)))

    async with anyio.create_task_group() as tasks:
        for count in range(200):
            tasks.start_soon(ask_one, count)
    print(f"{len(quotes)} quotes for cake, {sum(one.cents for one in quotes)} cents in all")


async def run(url: str) -> None:
    """Start two responders of one group, call them, and stop them."""
    async with IggyClient(url) as client:
        await client.create_stream(STREAM, exist_ok=True)
        await client.create_topic(STREAM, REQUESTS, partitions_count=2, exist_ok=True)
        await client.create_topic(STREAM, REPLIES, partitions_count=2, exist_ok=True)

        def responder() -> Responder[Question, Quote]:
            return client.responder(
                STREAM, REQUESTS, group="pricing", request_serde=QUESTIONS, reply_serde=QUOTES
            )

        calls = client.request_reply(
            STREAM, REQUESTS, reply_topic=REPLIES, request_serde=QUESTIONS, reply_serde=QUOTES
        )
        async with (
            responder() as one,
            responder() as other,
            calls as asking,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(one.serve, quote)
            tasks.start_soon(other.serve, quote)
            await ask(asking)
            one.stop()
            other.stop()
        answered = one.statistics().replies + other.statistics().replies
    print(f"the responders have answered {answered} requests")


def main(arguments: list[str]) -> None:
    """Ask over the server that the command line names."""
    # A responder logs what its handler raises; here one exception is part of the show.
    logging.getLogger("iggy_sdk.request_reply").setLevel(logging.CRITICAL)
    anyio.run(run, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])
