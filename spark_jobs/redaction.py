"""Keeps passwords out of what Spark shows: plans, pages of its UI, event logs.

Spark hides options by their names in some places, and prints them as they are in others, above all
in the plans of streams. So a session gets two patterns more, one for each way. What the user has
set is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


SECRET_OPTIONS: Final = ("url", "server", "password", "token")
"""The options that may hold a secret."""

OPTIONS_PATTERN: Final = "spark.sql.redaction.options.regex"
TEXT_PATTERN: Final = "spark.sql.redaction.string.regex"
_LOGIN: Final = r"\biggy(?:\+\w+)?://\S*@"


def options_pattern() -> str:
    """Return the pattern of options to hide; Spark compares names and values with it."""
    return rf"^(?i:{'|'.join(SECRET_OPTIONS)})$|{_LOGIN}"


def text_pattern(names: Sequence[str]) -> str:
    """Return the pattern of texts to hide within plans: logins, and values of secret options.

    A plan has options as ``[topic=t, password=p, stream=s], [columns]``. A value may hold commas,
    so it ends where another option begins, or where the list ends.

    Args:
        names: all options.
    """
    end = rf", (?i:{'|'.join(names)})=|\](?:, |\n|$)"
    begin = "|".join(rf"(?<=[\[ ](?i:{name})=)" for name in SECRET_OPTIONS)
    return rf"(?:{begin})[^\n]*?(?={end})|{_LOGIN}"


def hide_secrets(spark: SparkSession, names: Sequence[str]) -> None:
    """Add both patterns to a session."""
    for setting, pattern in (
        (OPTIONS_PATTERN, options_pattern()),
        (TEXT_PATTERN, text_pattern(names)),
    ):
        # Without a default of ours, because that would hide Spark's.
        present = spark.conf.get(setting)
        if not present:
            spark.conf.set(setting, pattern)
        elif pattern not in present:
            spark.conf.set(setting, f"(?:{present})|{pattern}")
