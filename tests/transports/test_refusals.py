"""What the server refuses or leaves without an answer, and what the error says of it: each way."""

from __future__ import annotations

import anyio
import pytest

from iggy_sdk import (
    AuthenticationError,
    IggyClient,
    PermissionDeniedError,
    Permissions,
    RequestTimeoutError,
    SendFailedError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

GENERATIONS = ("0.8", "0.9", "0.10")
WAYS = [
    *(("tcp", one) for one in GENERATIONS),
    *(("ws", one) for one in GENERATIONS),
    *(("quic", one) for one in GENERATIONS),
    ("http", "auto"),
]
NEVER_MADE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def server(open_server):
    """Share the server that has all listeners without TLS."""
    return open_server(shards=1, secured=False)


@pytest.mark.parametrize(("transport", "protocol"), WAYS)
async def test_token_when_deleted_or_never_made_then_is_an_authentication_error(
    server, transport, protocol
):
    token_name = server.fresh_name()
    address = server.url(transport, login="", protocol=protocol)
    async with IggyClient(server.url(transport, protocol=protocol)) as root:
        made = await root.create_personal_access_token(token_name)
        async with IggyClient(address, token=made.token) as client:
            await client.get_streams()
        await root.delete_personal_access_token(token_name)

    for token in (made.token, NEVER_MADE):
        with pytest.raises(AuthenticationError) as caught, anyio.fail_after(20):
            await IggyClient(address, token=token).connect()
        assert token not in str(caught.value)
        assert "token" in caught.value.advice or "Log in" in caught.value.advice


@pytest.mark.parametrize(("transport", "protocol"), WAYS)
async def test_login_when_the_user_was_deleted_then_is_an_authentication_error(
    server, transport, protocol
):
    user = server.fresh_name()
    url = server.url(transport, protocol=protocol)
    async with IggyClient(url) as root:
        await root.create_user(user, "secret-word")
        await root.delete_user(user)

    address = server.url(transport, login=f"{user}:secret-word@", protocol=protocol)
    with pytest.raises(AuthenticationError):
        await IggyClient(address).connect()


@pytest.mark.parametrize("is_background", [False, True], ids=["direct", "background"])
@pytest.mark.parametrize(("transport", "protocol"), WAYS)
async def test_send_when_the_user_may_not_then_is_a_permission_error_with_the_messages(
    server, transport, protocol, is_background
):
    name = server.fresh_name()
    async with IggyClient(server.url(transport, protocol=protocol)) as root:
        await root.create_stream(name)
        await root.create_topic(name, "orders")
        await root.create_user(name, "secret-word", permissions=Permissions())

    address = server.url(transport, login=f"{name}:secret-word@", protocol=protocol)
    async with IggyClient(address) as client:
        builder = client.producer(name, "orders")
        async with builder.background() if is_background else builder.direct() as producer:
            with pytest.raises(PermissionDeniedError) as caught:
                await (await producer.send(b"one", partition_id=0)).delivered()

    error = caught.value
    assert isinstance(error, SendFailedError)
    assert isinstance(error, PermissionError)
    assert error.messages == (b"one",)
    assert isinstance(error.cause, PermissionDeniedError)
    assert (error.code, error.name) == (error.cause.code, error.cause.name)
    assert f"code {error.cause.code}" in str(error)


@pytest.mark.parametrize(("transport", "protocol"), WAYS)
async def test_request_when_the_server_is_silent_then_the_error_says_that_it_was_sent(
    server, transport, protocol
):
    async with IggyClient(server.url(transport, protocol=protocol), close_timeout=0.1) as client:
        await client.ping()
        with server.stopped(), pytest.raises(RequestTimeoutError) as caught:
            await client.get_streams(timeout=0.1)

    assert caught.value.sent
    assert "may have been carried out" in str(caught.value)
