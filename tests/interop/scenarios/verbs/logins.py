"""Logging in: with a password, right and wrong, with a token, and once more after a logout."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.interop.scenarios.installed import HAS_TOPIC_OPTIONS, IS_CLASSIC, Client
from tests.interop.scenarios.report import step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

GET_ME, CREATE_TOKEN, DELETE_TOKEN = 20, 42, 43
ME_HEAD = struct.Struct("<II")
NEVER = 0


def named(text: str) -> bytes:
    """Return a short text as the protocol writes it."""
    return bytes([len(text)]) + text.encode()


async def run(scene: Scene) -> None:
    """Log in in every way that the installed version knows."""
    await step("connect with a wrong password", scene.connect_as, "iggy", "not-the-password")
    await step("log in with a wrong password", scene.calls.login_user, "iggy", "not-the-password")
    await step("log in once more", log_in, scene.client)
    await step("ping", scene.calls.ping)
    if IS_CLASSIC:
        return
    await step("who am I", who_am_i, scene.client)
    token = await step("make a token", make_token, scene)
    await step("log in with a token", log_in_with_token, scene)
    if HAS_TOPIC_OPTIONS:
        await step("log in with a token by hand", log_in_with_token_by_hand, scene)
    await step("delete the token", forget_token, scene)
    if token:
        await step("log in with a deleted token", log_in_with_token, scene)
    await step("log out", scene.calls.logout_user)
    await step("ask after the logout", scene.calls.get_streams)
    await step("log in after the logout", log_in, scene.client)
    await step("who am I after it", who_am_i, scene.client)


async def log_in(client: Client) -> None:
    """Log in as root; what the client returns differs by version and says nothing new."""
    await client.calls.login_user("iggy", "iggy")


async def who_am_i(client: Client) -> int:
    """Return the number of the user that this client is."""
    _, user = ME_HEAD.unpack_from(await client.calls.send_binary_request(GET_ME, b""))
    return int(user)


async def make_token(scene: Scene) -> bool:
    """Make a token that never expires, and keep it."""
    body = named(scene.token_name) + NEVER.to_bytes(8, "little")
    reply = await scene.calls.send_binary_request(CREATE_TOKEN, body)
    scene.token = reply[1:].decode()
    return reply[0] == len(scene.token) > 0


async def forget_token(scene: Scene) -> int:
    """Delete the token; what the server answers has no content."""
    reply: bytes = await scene.calls.send_binary_request(DELETE_TOKEN, named(scene.token_name))
    return len(reply)


async def log_in_with_token(scene: Scene) -> Any:
    """Log another client in with the token, and ask who it is."""
    return await who_am_i(await Client.connected(scene.url_as(scene.token)))


async def log_in_with_token_by_hand(scene: Scene) -> int:
    """Log this client out and in with the token, and ask who it is."""
    await scene.calls.logout_user()
    await scene.calls.login_with_personal_access_token(scene.token)
    return await who_am_i(scene.client)
