"""Nothing that is logged has a password, a token or a payload, whatever carries it."""

from __future__ import annotations

import base64
import logging

import pytest

from iggy_sdk import ConsumerIdentity, IggyClient, IggyError, Message, PollingStrategy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

GENERATIONS = ("0.8", "0.9", "0.10")
WAYS = [
    *((transport, one) for transport in ("tcp", "ws", "quic") for one in GENERATIONS),
    ("http", "auto"),
]
PASSWORD, PAYLOAD, HEADER = "sentinel-password", b"sentinel-payload", "sentinel-header"


@pytest.mark.parametrize(("transport", "protocol"), WAYS)
async def test_log_when_everything_is_shown_then_has_no_secret(
    open_server, caplog, transport, protocol
):
    caplog.set_level(logging.DEBUG)
    server = open_server(shards=1, secured=False)
    name = server.fresh_name()
    async with IggyClient(server.url(transport, protocol=protocol)) as root:
        await root.create_user(name, PASSWORD)
        token = (await root.create_personal_access_token(name)).token
        await root.create_stream(name)
        await root.create_topic(name, "orders")
        await root.send_messages(
            name, "orders", [Message(PAYLOAD, headers={"kind": HEADER})], partition_id=0
        )
        polled = await root.poll_messages(
            *(name, "orders"),
            consumer=ConsumerIdentity.single("one"),
            strategy=PollingStrategy.first(),
        )
        assert [one.payload for one in polled] == [PAYLOAD]
        login = server.url(transport, login=f"{name}:{PASSWORD}@", protocol=protocol)
        async with IggyClient(login) as user:
            with pytest.raises(IggyError):
                await user.send_messages(name, "orders", [PAYLOAD], partition_id=0)
        async with IggyClient(
            server.url(transport, login="", protocol=protocol), token=token
        ) as user:
            await user.ping()
        await root.delete_user(name)
        with pytest.raises(IggyError):
            await IggyClient(login).connect()

    secrets = ("sentinel", token, base64.b64encode(PAYLOAD).decode(), PAYLOAD.hex())
    formatter = logging.Formatter()
    assert [one for one in caplog.records if one.name == "iggy_sdk.session"]
    for record in caplog.records:
        whole = f"{formatter.format(record)} {vars(record)!r}"
        assert not [secret for secret in secrets if secret in whole], whole
