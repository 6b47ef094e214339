"""The envelope that producer and consumer agree on: typed events in one structure.

The kind of an event stands in the message itself, so any consumer can read it without headers.
Run it to see what goes over the wire.
"""

from __future__ import annotations

import msgspec

from iggy_sdk import MsgspecSerde


class OrderCreated(msgspec.Struct, tag=True):
    """A customer has ordered something."""

    order_id: int
    item: str


class OrderConfirmed(msgspec.Struct, tag=True):
    """An order has got its price."""

    order_id: int
    price: float


class Envelope(msgspec.Struct):
    """One event, and who speaks."""

    source: str
    event: OrderCreated | OrderConfirmed


SERDE = MsgspecSerde(Envelope)


def main() -> None:
    """Show an envelope as it travels."""
    print(bytes(SERDE.encode(Envelope("shop", OrderCreated(1, "tea")))).decode())


if __name__ == "__main__":
    main()
