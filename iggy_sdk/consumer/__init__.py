"""Consumers: reading topics alone or in groups, with at-least-once commits by default.

auto_commit, options     when offsets are stored; the options of a consumer
start, new_start         places to read from; where a new group starts
cursor, tracker          where the next poll starts; which offsets may be stored
poller, fetch_buffer     one poll; the buffer of fetched messages
prefetch, idle           what was polled ahead; that there is nothing to poll
membership, assignment   joining the group, and its retries; the partitions of a member
handover                 telling the application which partitions come and go
commit_scheduler         storing offsets
events, latency          the log; how long things take
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
from iggy_sdk.consumer.handover import PartitionsCallback
from iggy_sdk.consumer.options import ConsumerOptions, ConsumerSettings
from iggy_sdk.consumer.start import ReplayFrom, ReplayPlace, StartIfNew
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
    "PartitionsCallback",
    "ReplayFrom",
    "ReplayPlace",
    "StartIfNew",
]
