"""The table of calls between shards: each call has a row, and no row is left over."""

from __future__ import annotations

import inspect

from iggy_ref_server.dispatch.table import Execution
from iggy_ref_server.shard import messages
from iggy_ref_server.shard.call_handler import SHARD_CALLS

# Messages that ask and reply with one struct; all other calls are named so.
ASKING_REPLIES = {messages.GroupMemberships, messages.PartitionTotals, messages.ConnectedClients}


def test_table_when_compared_with_the_messages_then_has_a_row_for_each_call():
    calls = {
        kind
        for name, kind in vars(messages).items()
        if name.endswith("Call") and inspect.isclass(kind)
    }

    assert set(SHARD_CALLS) == calls | ASKING_REPLIES


def test_handler_when_its_row_says_task_then_waits_and_otherwise_never_does():
    waiting = {
        kind for kind, row in SHARD_CALLS.items() if inspect.iscoroutinefunction(row.handler)
    }

    assert waiting == {kind for kind, row in SHARD_CALLS.items() if row.execution is Execution.TASK}


def test_shard_that_opens_when_called_then_handles_calls_about_metadata_alone():
    early = {kind for kind, row in SHARD_CALLS.items() if row.is_handled_before_open}

    assert early == {
        messages.SnapshotCall,
        messages.MetadataEntryCall,
        messages.PublishMetadataCall,
    }
