"""Secrets of a pipeline come from the environment or from files, and are never shown.

A file says ``{ env = "NAME" }`` or ``{ file = "/run/secrets/name" }``. What was revealed once is
removed from every text that leaves the process: errors, status files, plans.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from spark_jobs.errors import OptionError

HIDDEN: Final = "***"
SECRET_BYTES_MAX: Final = 65_536
"""A longer file is no secret."""

REDACTED_CHARACTERS_MIN: Final = 5
"""Shorter secrets are only removed where they stand in a URL: elsewhere they may be any word."""

_URL_LOGIN: Final = re.compile(r"(?P<scheme>[a-z][\w+.:-]*://)(?P<login>[^/\s@]*:[^/\s@]*)@", re.I)
_URL_PARAMETER: Final = re.compile(
    r"(?P<name>[?&;](?:password|passwd|pwd|token|secret|api_?key)=)(?P<value>[^&;\s'\"]+)", re.I
)
_SECRET_NAME: Final = re.compile(
    r"(?:.*_)?(?:password|passwd|token|secret|salt|credentials?|authorization|"
    r"(?:api|secret|access|private)_?key)"
)


@dataclass(frozen=True)
class SecretReference:
    """A value that is not in the pipeline file.

    Attributes:
        kind: ``env``, ``file``, or ``given`` for one of the command line.
        name: the variable or the path.
        value: what was given.
    """

    kind: str
    name: str = ""
    value: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Say where it comes from."""
        return HIDDEN if self.kind == "given" else f"{{{self.kind} {self.name}}}"

    def reveal(self) -> str:
        """Return the value.

        Raises:
            OptionError: the variable is not set, or the file cannot be read.
        """
        value = self._read()
        _remember(value)
        return value

    def _read(self) -> str:
        if self.kind == "given":
            return self.value
        if self.kind == "env":
            found = os.environ.get(self.name)
            if not found:
                raise OptionError(f"the environment variable {self.name} is not set; export it")
            return found
        try:
            with Path(self.name).open("rb") as file:
                text = file.read(SECRET_BYTES_MAX).decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise OptionError(f"the secret file {self.name} cannot be read: {reason}") from None
        if not text:
            raise OptionError(f"the secret file {self.name} is empty; write the secret to it")
        return text


SecretOrText: TypeAlias = str | SecretReference


def reveal(value: SecretOrText) -> str:
    """Return a text, or what a secret holds."""
    return value.reveal() if isinstance(value, SecretReference) else value


def is_secret_name(name: str) -> bool:
    """Tell whether a key holds a secret, as its name says."""
    return _SECRET_NAME.fullmatch(re.sub(r"[-.\s]", "_", name.lower())) is not None


def holds_secret(text: str) -> bool:
    """Tell whether a text is a URL with a password in it."""
    return any(pattern.search(text) for pattern in (_URL_LOGIN, _URL_PARAMETER))


def is_reference(value: Any) -> bool:
    """Tell whether a value of a file names a secret."""
    return isinstance(value, dict) and len(value) == 1 and bool({"env", "file"} & set(value))


_revealed: set[str] = set()
_lock = threading.Lock()


def _remember(value: str) -> None:
    """Keep what must not be shown: the value, and the passwords of a URL."""
    found = {value}
    for match in _URL_LOGIN.finditer(value):
        found |= {match["login"], match["login"].partition(":")[2]}
    found |= {match["value"] for match in _URL_PARAMETER.finditer(value)}
    with _lock:
        _revealed.update(one for one in found if len(one) >= REDACTED_CHARACTERS_MIN)


def redact(text: str) -> str:
    """Remove revealed secrets, and the login of every URL."""
    with _lock:
        known = sorted(_revealed, key=len, reverse=True)
    for value in known:
        text = text.replace(value, HIDDEN)
    text = _URL_LOGIN.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _URL_PARAMETER.sub(rf"\g<name>{HIDDEN}", text)
