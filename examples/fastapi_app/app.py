"""A web service over Iggy: it stores orders, asks a responder for prices, and ships in between.

    IGGY_URL=iggy://iggy:iggy@127.0.0.1:8090 uvicorn examples.fastapi_app.app:app

All connections are opened once, when the service starts, and closed in order when it stops: first
the requests end, then the consumer, then the producers deliver what they have.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from iggy_sdk import (
    IggyClient,
    JsonSerde,
    Producer,
    PydanticSerde,
    ReceivedMessage,
    RemoteHandlerError,
    ReplyTimeoutError,
    RequestReply,
    SendFailedError,
    StrSerde,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM = "web-shop"
ORDERS, PRICES, REPLIES, LOOKUPS = "orders", "prices", "price-replies", "lookups"
PRICE_SECONDS = 2.0


class Order(BaseModel):
    """What a customer orders."""

    number: int
    item: str
    count: int = Field(ge=1)


@dataclass
class Shop:
    """What the handlers of web requests share."""

    orders: Producer[Order]
    lookups: Producer[str]
    prices: RequestReply[str, int]


async def ship(message: ReceivedMessage[Order]) -> None:
    """Handle one order; it is committed when this returns."""
    order = message.value
    print(f"shipping order {order.number}: {order.count} x {order.item}", flush=True)


def report_lost(error: SendFailedError) -> None:
    """Say what nobody waits for and was not sent; without this, the next send would raise it."""
    print(f"lost {len(error.messages)} lookups: {error}", flush=True)


async def create_topics(client: IggyClient) -> None:
    """Create what is missing."""
    await client.create_stream(STREAM, exist_ok=True)
    for topic in (ORDERS, PRICES, REPLIES, LOOKUPS):
        await client.create_topic(STREAM, topic, partitions_count=2, exist_ok=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Shop]]:
    """Open everything before the first request, and close it after the last one."""
    serde = PydanticSerde(Order)
    async with IggyClient(os.environ.get("IGGY_URL", URL)) as client:
        await create_topics(client)
        async with (
            client.producer(STREAM, ORDERS, serde=serde).background() as orders,
            client.producer(STREAM, LOOKUPS, serde=StrSerde()).background(
                linger_time=1.0, on_error=report_lost
            ) as lookups,
            client.request_reply(
                STREAM,
                PRICES,
                reply_topic=REPLIES,
                request_serde=StrSerde(),
                reply_serde=JsonSerde(),
            ) as prices,
            client.consumer_group("shipping", STREAM, ORDERS, serde=serde) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, ship)
            yield {"shop": Shop(orders, lookups, prices)}
            # The handler finishes the order that it has; the rest waits for the next start.
            consumer.stop()


app = FastAPI(title="A shop over Iggy", lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place_order(order: Order, request: Request) -> dict[str, str]:
    """Store an order; the answer means that the server has it."""
    shop: Shop = request.state.shop
    try:
        # Requests that come together share a batch, and each waits for its own delivery.
        receipt = await shop.orders.send(order, key=order.item)
        await receipt.delivered()
    except SendFailedError as error:
        raise HTTPException(503, "the order was not stored, try again") from error
    return {"status": "stored"}


@app.get("/prices/{item}")
async def price(item: str, request: Request) -> dict[str, int]:
    """Ask whoever answers for prices."""
    shop: Shop = request.state.shop
    # Nobody waits for this one: it leaves with the next batch, or when the service stops.
    await shop.lookups.send(item)
    try:
        return {"cents": await shop.prices.call(item, timeout=PRICE_SECONDS)}
    except RemoteHandlerError as error:
        raise HTTPException(404, f"{item} has no price") from error
    except ReplyTimeoutError as error:
        raise HTTPException(504, "nobody answers for prices") from error
