"""The credentials of the root user of a new data directory.

    both IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD     they are used
    neither                                            iggy, with a generated password, printed once
    one of them                                        an error

Later starts do not read them: the stored user stays as it is.
"""

from __future__ import annotations

import os
import string
from dataclasses import field
from typing import TYPE_CHECKING, Final

from iggy_protocol import record
from iggy_ref_server.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["RootCredentials", "choose_root_credentials"]

USERNAME_VARIABLE: Final = "IGGY_ROOT_USERNAME"
PASSWORD_VARIABLE: Final = "IGGY_ROOT_PASSWORD"
USERNAME_DEFAULT: Final = "iggy"
USERNAME_BYTES: Final = range(3, 51)
PASSWORD_BYTES: Final = range(3, 101)
GENERATED_LENGTH: Final = 32
ALPHABET: Final = string.ascii_letters + string.digits


@record
class RootCredentials:
    """A name and a password.

    Attributes:
        password: never logged.
        is_generated: whether the password was generated, so that it must be printed.
    """

    username: str
    password: str = field(repr=False)
    is_generated: bool = False


def choose_root_credentials(
    environment: Mapping[str, str], choose: Callable[[str], str]
) -> RootCredentials:
    """Return the credentials of the root user.

    Args:
        environment: may hold both.
        choose: picks a character at random, such as ``secrets.choice``.

    Raises:
        ConfigError: only one is set, or one is too short or too long.
    """
    username, password = environment.get(USERNAME_VARIABLE), environment.get(PASSWORD_VARIABLE)
    if username is None and password is None:
        generated = "".join(choose(ALPHABET) for _ in range(GENERATED_LENGTH))
        return RootCredentials(USERNAME_DEFAULT, generated, is_generated=True)
    if username is None or password is None:
        missing = USERNAME_VARIABLE if username is None else PASSWORD_VARIABLE
        message = "is missing: set both the name and the password of the root user, or neither"
        raise ConfigError([Problem(missing, message)])
    given = (
        (USERNAME_VARIABLE, len(os.fsencode(username)), USERNAME_BYTES),
        (PASSWORD_VARIABLE, len(os.fsencode(password)), PASSWORD_BYTES),
    )
    problems = [
        Problem(name, f"must have from {sizes.start} to {sizes.stop - 1} bytes, not {size}")
        for name, size, sizes in given
        if size not in sizes
    ]
    if problems:
        raise ConfigError(problems)
    return RootCredentials(username, password)
