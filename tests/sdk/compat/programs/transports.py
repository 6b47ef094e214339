"""Sends and reads over one transport with a configuration of the official client 0.9.

Run with an interpreter that has the wheel: ``transports.py tcp|websocket|quic|http HOST:PORT``.
Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    AutoLogin,
    Consumer,
    HttpConfig,
    IggyClient,
    PollingStrategy,
    QuicConfig,
    QuicReconnectionConfig,
    SendMessage,
    TcpConfig,
    WebSocketConfig,
    WebSocketFramingConfig,
    WebSocketReconnectionConfig,
)

LOGIN = AutoLogin.username_password("iggy", "iggy")
SECOND = timedelta(seconds=1)


def config_of(transport, address):
    """Return a configuration with some settings of each transport."""
    if transport == "quic":
        return QuicConfig(
            server_address=address,
            client_address="127.0.0.1:0",
            server_name="localhost",
            auto_login=LOGIN,
            reconnection=QuicReconnectionConfig(max_retries=2, interval=SECOND),
            initial_mtu=1400,
            keep_alive_interval=2 * SECOND,
            max_idle_timeout=20 * SECOND,
            validate_certificate=False,
        )
    if transport == "websocket":
        return WebSocketConfig(
            server_address=address,
            auto_login=LOGIN,
            reconnection=WebSocketReconnectionConfig(enabled=True, max_retries=2),
            framing=WebSocketFramingConfig(max_frame_size=8 << 20, max_message_size=None),
        )
    if transport == "http":
        return HttpConfig(api_url=f"http://{address}", retries=1, heartbeat_interval=SECOND)
    return TcpConfig(server_address=address, auto_login=LOGIN)


async def main():
    transport, address = sys.argv[1:]
    config = config_of(transport, address)
    client = IggyClient(config)
    await client.connect()
    if transport == "http":
        await client.login_user("iggy", "iggy")
    await client.create_stream("shop")
    await client.create_topic("shop", "orders", partitions_count=1)
    await client.send_messages("shop", "orders", 0, [SendMessage("tea"), SendMessage(b"x" * 9999)])
    messages = await client.poll_messages(
        "shop",
        "orders",
        consumer=Consumer.Single("reader"),
        polling_strategy=PollingStrategy.First(),
        count=10,
        auto_commit=False,
        partition_id=0,
    )
    await client.delete_stream("shop")
    sys.stdout.write(
        json.dumps({"read": [message.length() for message in messages], "config": repr(config)})
    )


asyncio.run(main())
