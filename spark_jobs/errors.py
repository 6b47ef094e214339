"""What can go wrong in Spark's use of Iggy; each message ends with what to do next.

Errors of the server and of the way to it are those of ``iggy_sdk`` and pass through as they are.
"""

from __future__ import annotations

import re
from typing import Final


class DataLossError(RuntimeError):
    """Messages that were to be read are gone."""


class OptionError(ValueError):
    """An option is missing, unknown, or has a value that cannot be used."""


class SchemaError(ValueError):
    """A schema asks for columns that a topic has not, or lacks one that a topic needs."""


class StaleBatchError(RuntimeError):
    """A micro-batch comes after a later one of its writer, so the checkpoint is another one."""


# How Spark quotes an error of this package or of the SDK: a line of a traceback, and its message.
_RAISED: Final = re.compile(
    r"(?:^|\n)(?:spark_jobs|iggy_sdk)(?:\.\w+)+: (?P<words>.+?)(?=\n\s*(?:at |\n|$|JVM)|\Z)",
    re.DOTALL,
)
# A named error of Spark: [SOME_NAME] and the rest of the line.
_NAMED: Final = re.compile(r"\[[A-Z_.0-9]{5,}\] [^\n]+")
_USER_RAISED: Final = "[USER_RAISED_EXCEPTION] "


def raised_message(text: str) -> str | None:
    """Return what an error says that was raised in Python, of a text in which Spark quotes it."""
    raised = list(_RAISED.finditer(text))
    if raised:
        return _one_line(raised[-1]["words"])
    named = _NAMED.search(text)
    if named and named[0].startswith(_USER_RAISED):
        return _one_line(named[0].removeprefix(_USER_RAISED))
    return None


def first_message(text: str) -> str:
    """Return the first thing that Spark says in an error, on one line."""
    named = _NAMED.search(text)
    return _one_line(named[0] if named else text.strip().partition("\n")[0])


def _one_line(text: str) -> str:
    """Put a text on one line, without the SQLSTATE codes of Spark."""
    return " ".join(text.partition("SQLSTATE:")[0].split())
