"""Commands in the texts of errors and logs: their name and place, and nothing that is secret."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from iggy_protocol import Command, LoginUser, LoginWithPersonalAccessToken, Register

# The fields that describe a command. Messages, passwords and tokens are left out.
_DESCRIBED_FIELDS: Final = ("stream", "topic", "group", "partition_id", "user", "username", "name")

_LOGINS: Final = (LoginUser, LoginWithPersonalAccessToken, Register)


def describe_command(command: Command[Any]) -> str:
    """Name a command and its place, as in ``CreateTopic(stream='shop', name='orders')``."""
    present = {field.name for field in fields(command)}  # type: ignore[arg-type]
    places = [
        f"{name}={getattr(command, name)!r}"
        for name in _DESCRIBED_FIELDS
        if name in present and getattr(command, name) is not None
    ]
    return f"{type(command).__name__}({', '.join(places)})"


def is_login(command: Command[Any]) -> bool:
    """Say whether a command logs a user in."""
    return isinstance(command, _LOGINS)
