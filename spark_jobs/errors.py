"""What can go wrong in Spark's use of Iggy; each message ends with what to do next.

Errors of the server and of the way to it are those of ``iggy_sdk`` and pass through as they are.
"""

from __future__ import annotations


class DataLossError(RuntimeError):
    """Messages that were to be read are gone."""


class OptionError(ValueError):
    """An option is missing, unknown, or has a value that cannot be used."""


class SchemaError(ValueError):
    """A schema asks for columns that a topic has not, or lacks one that a topic needs."""


class StaleBatchError(RuntimeError):
    """A micro-batch comes after a later one of its writer, so the checkpoint is another one."""
