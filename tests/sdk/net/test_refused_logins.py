"""Logins that are refused: one class in every generation, whatever the status."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import LoginUser, LoginWithPersonalAccessToken, Register, StatusCode
from iggy_sdk.connection_string import PasswordLogin, ServerProtocol, TokenLogin
from iggy_sdk.errors import AuthenticationError, IncompatibleServerError
from iggy_sdk.options import Reconnect
from tests.sdk.dialects import SPOKEN
from tests.sdk.net.clients import ONE, TWO, client_of
from tests.sdk.scripted_peer import scripted_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

STATUSES = (
    StatusCode.RESOURCE_NOT_FOUND,
    StatusCode.INVALID_CREDENTIALS,
    StatusCode.INVALID_PERSONAL_ACCESS_TOKEN,
    StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED,
    StatusCode.USER_INACTIVE,
)


@pytest.mark.usefixtures("every_dialect")
@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.name)
@pytest.mark.parametrize(
    "credentials", [PasswordLogin("iggy", "secret"), TokenLogin("secret")], ids=["user", "token"]
)
async def test_login_when_refused_then_is_an_authentication_error_at_once(status, credentials):
    async def refuses(peer) -> None:
        while True:
            command = await peer.hear()
            if isinstance(command, LoginUser | LoginWithPersonalAccessToken | Register):
                await peer.reply(status)
            else:
                await peer.answer(command)

    async with scripted_server(refuses, peers=SPOKEN.peers) as server:
        begun_at = anyio.current_time()
        with pytest.raises(AuthenticationError) as caught:
            await client_of(server, **SPOKEN.options, credentials=credentials).connect()

        assert anyio.current_time() == begun_at
    # Later servers end the session for it, and tell a reason of few.
    assert caught.value.code == status or SPOKEN.dialect.is_vsr
    assert "secret" not in str(caught.value)


async def test_connect_when_all_endpoints_fail_for_one_reason_then_its_class_is_kept():
    async with scripted_server() as server:
        client = client_of(
            server,
            protocol=ServerProtocol("0.10"),
            endpoints=(ONE, TWO),
            reconnect=Reconnect(retries=0),
        )
        with pytest.raises(IncompatibleServerError, match="none of 2 endpoints"):
            await client.connect()
