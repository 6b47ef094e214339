"""Messages as Apache Arrow: whole topics, parts of them, and what a consumer reads.

    table = await client.read_arrow("shop", "orders")

    async with client.arrow_batches("shop", "orders", columns=["offset", "payload"]) as batches:
        async for batch in batches:
            ...

The columns come straight from the bytes of the polls: no Python object is made for a message,
unless it is encrypted, compressed, or has headers that are not text. The extra ``arrow`` brings
``pyarrow``; ``iggy_sdk.polars`` and ``iggy_sdk.duckdb`` stand on this package.
"""

from __future__ import annotations

from iggy_sdk.errors import ConfigurationError

try:
    import pyarrow  # type: ignore[import-untyped]  # noqa: F401  it comes without types
except ModuleNotFoundError:
    raise ConfigurationError(
        "Arrow needs the package pyarrow",
        advice="Install it with pip install 'iggy-python[arrow]'.",
    ) from None

from iggy_sdk.arrow.columns import ArrowRowBuilder
from iggy_sdk.arrow.memory import keep_freed_memory
from iggy_sdk.arrow.messages import ArrowMessageBuilder, ArrowMessages
from iggy_sdk.arrow.payloads import PayloadDecodeError
from iggy_sdk.arrow.reader import ArrowTopicReader
from iggy_sdk.arrow.settings import ArrowColumnSettings, ArrowReadSettings, Bound

__all__ = [
    "ArrowColumnSettings",
    "ArrowMessageBuilder",
    "ArrowMessages",
    "ArrowReadSettings",
    "ArrowRowBuilder",
    "ArrowTopicReader",
    "Bound",
    "PayloadDecodeError",
    "keep_freed_memory",
]
