"""Producers: direct ones that wait for the server, and ones that deliver in the background.

``client.producer()`` makes a ``ProducerBuilder``, which is entered as a ``Producer``.
"""

from __future__ import annotations

from iggy_sdk.producer.builder import ProducerBuilder
from iggy_sdk.producer.options import (
    BackgroundMode,
    BackgroundSettings,
    Backpressure,
    DirectMode,
    DirectSettings,
    ErrorCallback,
    NewTopic,
    NewTopicSettings,
    ProducerOptions,
    ProducerSettings,
)
from iggy_sdk.producer.producer import Producer
from iggy_sdk.producer.receipts import Receipt
from iggy_sdk.statistics import ProducerStatistics
from iggy_sdk.value_types import Payload

__all__ = [
    "BackgroundMode",
    "BackgroundSettings",
    "Backpressure",
    "DirectMode",
    "DirectSettings",
    "ErrorCallback",
    "NewTopic",
    "NewTopicSettings",
    "Payload",
    "Producer",
    "ProducerBuilder",
    "ProducerOptions",
    "ProducerSettings",
    "ProducerStatistics",
    "Receipt",
]
