"""Consumers: reading topics alone or in groups, with commits that lose nothing.

auto_commit           the modes of committing, as values
ledger, cursor        books: what is done, where polls go on            pure
idle, lanes           when there is nothing to do; who may run when     pure
options, place        what a consumer goes by; who reads what           pure
patience, membership  bearing errors; a seat in a group
poller, intake        one poll; a buffer of messages
commits               storing offsets
handout, messages     one by one
batches               many at once
handling, dead_letters, runner, many hands
works, setup          the parts put together, their beginning and end
consumer, builder     what users see
"""

from __future__ import annotations

from iggy_sdk.consumer.auto_commit import AutoCommit
from iggy_sdk.consumer.batches import BatchIterator, MessageList
from iggy_sdk.consumer.builder import ConsumerBuilder
from iggy_sdk.consumer.consumer import IggyConsumer
from iggy_sdk.consumer.options import ConsumerOptions, ConsumerSettings
from iggy_sdk.consumer.statistics import ConsumerStatistics

__all__ = [
    "AutoCommit",
    "BatchIterator",
    "ConsumerBuilder",
    "ConsumerOptions",
    "ConsumerSettings",
    "ConsumerStatistics",
    "IggyConsumer",
    "MessageList",
]
