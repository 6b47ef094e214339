"""Consumers: reading topics alone or in groups, with at-least-once commits by default.

auto_commit, options     when offsets are stored; the options of a consumer
cursor, tracker          where the next poll starts; which offsets may be stored
poller, fetch_buffer     one poll; the buffer of fetched messages
membership, retry_policy joining the group; which errors are retried
commit_scheduler         storing offsets
delivery                 iteration over messages and batches
runner, handler_retry    concurrent handlers, retries and dead letters
core                     the parts of a consumer and their lifetime
consumer, builder        the public classes
"""

from __future__ import annotations

from iggy_sdk.consumer.auto_commit import AutoCommit
from iggy_sdk.consumer.builder import ConsumerBuilder
from iggy_sdk.consumer.consumer import IggyConsumer
from iggy_sdk.consumer.delivery import BatchIterator, MessageList
from iggy_sdk.consumer.options import ConsumerOptions, ConsumerSettings
from iggy_sdk.statistics import ConsumerStatistics

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
