"""What a start prepares for the first logins."""

from __future__ import annotations

import logging

import pytest

from iggy_protocol.layout import Layout
from iggy_ref_server.config.load import RootCredentials
from iggy_ref_server.identity.credentials import Passwords
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.plan_users import plan_create_root
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.shard.opening import prepare_logins
from tests.server.metadata.metadata_calls import CONTEXT
from tests.server.simulated.server import CHEAP

pytestmark = pytest.mark.trio


class CountedPasswords(Passwords):
    """Passwords that count how many hashes they compute to verify."""

    def __init__(self):
        super().__init__(CHEAP, workers=0)
        self.checks = 0

    def _matches(self, password_hash, password):
        self.checks += 1
        return super()._matches(password_hash, password)


async def stored(passwords):
    root = plan_create_root(Metadata.EMPTY, "admin", await passwords.hash("hush"), CONTEXT)
    assert root is not None
    return apply(Metadata.EMPTY, root)


async def test_first_login_when_the_environment_has_the_password_then_costs_no_hash():
    passwords = CountedPasswords()
    metadata = await stored(passwords)
    await prepare_logins(passwords, metadata, RootCredentials("admin", "hush"))
    (root,) = metadata.users
    checked = passwords.checks

    assert await passwords.verify(root.password_hash, "hush", remember=True)
    assert passwords.checks == checked == 1


async def test_start_when_the_password_was_changed_later_then_says_that_the_variable_is_not_read(
    caplog,
):
    passwords = CountedPasswords()
    metadata = await stored(passwords)

    with caplog.at_level(logging.INFO):
        await prepare_logins(passwords, metadata, RootCredentials("admin", "former"))

    assert "IGGY_ROOT_PASSWORD is not the password of the root user any more" in caplog.text
    (root,) = metadata.users
    assert not await passwords.verify(root.password_hash, "former", remember=True)
    assert passwords.checks == 2


@pytest.mark.parametrize("given", [None, RootCredentials("another", "hush")])
async def test_start_when_the_environment_has_other_credentials_then_hashes_nothing(given):
    passwords = CountedPasswords()

    await prepare_logins(passwords, await stored(passwords), given)
    await prepare_logins(passwords, Metadata.EMPTY, RootCredentials("admin", "hush"))

    assert passwords.checks == 0


async def test_start_when_prepared_then_what_clients_send_first_is_compiled(monkeypatch):
    """Compiled when the first client came, these took longer than the login itself."""
    compiled = set()
    monkeypatch.setattr(Layout, "compile", lambda layout: compiled.add(layout.name))

    await prepare_logins(CountedPasswords(), Metadata.EMPTY, None)

    wanted = {"LoginUser", "LoginWithPersonalAccessToken", "BindSession", "Identity"}
    assert wanted | {"ClusterMetadata", "SessionDetails"} <= compiled
