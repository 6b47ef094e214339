"""Who the first user is."""

from __future__ import annotations

import secrets

import pytest

from iggy_ref_server.config.load import choose_root_credentials, given_root_credentials
from iggy_ref_server.config.tree import ConfigError


def given(**variables: str) -> dict[str, str]:
    """Name the variables of the root user."""
    return {f"IGGY_ROOT_{name.upper()}": value for name, value in variables.items()}


def test_root_when_both_are_set_then_they_are_taken():
    root = choose_root_credentials(given(username="admin", password="hush"), secrets.choice)

    assert (root.username, root.password, root.is_generated) == ("admin", "hush", False)
    assert "hush" not in repr(root)


def test_root_when_none_is_set_then_a_password_is_made_up():
    roots = [choose_root_credentials({}, secrets.choice) for _ in range(2)]

    assert {root.username for root in roots} == {"iggy"}
    assert len({root.password for root in roots}) == 2
    assert all(20 <= len(root.password) < 40 and root.password.isalnum() for root in roots)
    assert all(root.is_generated for root in roots)


@pytest.mark.parametrize(("name", "missing"), [("username", "PASSWORD"), ("password", "USERNAME")])
def test_root_when_one_is_set_then_refused(name, missing):
    with pytest.raises(ConfigError, match=f"IGGY_ROOT_{missing} is missing"):
        choose_root_credentials(given(**{name: "iggy"}), secrets.choice)


@pytest.mark.parametrize(
    ("username", "password", "culprit"),
    [
        ("ab", "hush", "USERNAME"),
        ("a" * 51, "hush", "USERNAME"),
        ("é" * 26, "hush", "USERNAME"),
        ("admin", "", "PASSWORD"),
        ("admin", "ab", "PASSWORD"),
        ("admin", "a" * 101, "PASSWORD"),
    ],
)
def test_root_when_too_short_or_too_long_then_refused(username, password, culprit):
    with pytest.raises(ConfigError, match=f"IGGY_ROOT_{culprit} must have from 3 to"):
        choose_root_credentials(given(username=username, password=password), secrets.choice)


@pytest.mark.parametrize(("username", "password"), [("abc", "abc"), ("a" * 50, "a" * 100)])
def test_root_when_at_the_bounds_then_taken(username, password):
    root = choose_root_credentials(given(username=username, password=password), secrets.choice)

    assert (root.username, root.password) == (username, password)


@pytest.mark.parametrize("name", ["username", "password"])
def test_root_when_not_utf_8_then_refused_because_no_client_could_say_it(name):
    variables = given(username="admin", password="hush") | given(**{name: "h\udcffsh"})

    with pytest.raises(ConfigError, match=f"IGGY_ROOT_{name.upper()} must be UTF-8"):
        choose_root_credentials(variables, secrets.choice)
    assert given_root_credentials(variables) is None


def test_given_root_when_one_is_missing_then_is_none():
    both = given(username="admin", password="hush")

    assert given_root_credentials(both) == choose_root_credentials(both, secrets.choice)
    for name in both:
        assert given_root_credentials({name: both[name]}) is None
