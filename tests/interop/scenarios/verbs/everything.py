"""Everything that the installed version can ask for, once: a line for each step.

The steps are the same for all versions; what one has no name for is left out.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from tests.interop.scenarios.installed import IS_CLASSIC, Client
from tests.interop.scenarios.report import GaveUp, hangs, say
from tests.interop.scenarios.verbs import (
    consumers,
    groups,
    logins,
    messages,
    options,
    producers,
    system,
    topics,
    users,
)


@dataclass
class Scene:
    """What the steps share.

    Attributes:
        client: logged in as root.
        url: a connection string with ``{login}`` where the login goes.
        stream: a name that nobody else uses; what other names begin with.
        token: the secret of the token, once there is one.
    """

    client: Client
    url: str
    stream: str
    token: str = ""

    @property
    def calls(self) -> Any:
        """The client itself."""
        return self.client.calls

    @property
    def token_name(self) -> str:
        """The name of the token, at most 30 characters."""
        return f"{self.stream}-token"

    def url_as(self, login: str) -> str:
        """Return the connection string with another login in it."""
        return self.url.replace("{login}", login + "@" * bool(login))

    async def connect_as(self, username: str, password: str) -> Client:
        """Connect another client as a user."""
        return await Client.connected(self.url_as(f"{username}:{password}"))


async def run(url: str, stream: str) -> None:
    """Do everything over one transport.

    Args:
        url: a connection string with ``{login}`` where the login goes.
        stream: the name of the stream to work in.
    """
    hangs.clear()
    client = await Client.connected(url.replace("{login}", "iggy:iggy@"))
    scene = Scene(client, url, stream)
    families = [logins, topics, messages, consumers]
    if not IS_CLASSIC:
        families += [system, options, groups, producers, users]
    for family in families:
        try:
            await family.run(scene)
        except GaveUp:
            return
        except Exception:
            # Something between the steps failed. The other families say whether it is alone.
            say(step=family.__name__.rpartition(".")[2], saw=traceback.format_exc())
