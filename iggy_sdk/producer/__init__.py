"""Producers: direct ones that wait for the server, and ones that deliver in the background.

``client.producer()`` makes a ``ProducerBuilder``, which is entered as a ``Producer``.
"""

from __future__ import annotations

from iggy_sdk.producer.builder import ProducerBuilder
from iggy_sdk.producer.options import (
    BackgroundMode,
    Backpressure,
    DirectMode,
    ErrorCallback,
    NewTopic,
    ProducerOptions,
)
from iggy_sdk.producer.producer import Producer
from iggy_sdk.producer.receipts import Receipt
from iggy_sdk.statistics import ProducerStatistics

__all__ = [
    "BackgroundMode",
    "Backpressure",
    "DirectMode",
    "ErrorCallback",
    "NewTopic",
    "Producer",
    "ProducerBuilder",
    "ProducerOptions",
    "ProducerStatistics",
    "Receipt",
]
