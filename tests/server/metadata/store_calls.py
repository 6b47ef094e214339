"""Short words for tests of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iggy_protocol import (
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    DeleteStream,
    PayloadCipher,
    PurgeStream,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.log import LOG_PATH
from iggy_ref_server.metadata.store import CompactionPolicy, MetadataStore
from tests.server.metadata.metadata_calls import planned

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_ref_server.metadata.changes import StreamCreated
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.storage.simulated.storage import SimulatedStorage

KEY = PayloadCipher(bytes(range(32)))
OTHER_KEY = PayloadCipher(bytes(32))

COMMANDS = (
    CreateStream("gone"),
    CreateStream("stream"),
    DeleteStream("gone"),
    CreateTopic("stream", "topic", 3),
    CreateConsumerGroup("stream", "topic", "group"),
    PurgeStream("stream"),
)


async def open_store(
    storage: SimulatedStorage, *, encryptor: PayloadCipher | None = None, entries_max: int = 1000
) -> MetadataStore:
    return await MetadataStore.open(
        storage,
        SimulatedClock(),
        encryptor=encryptor,
        compaction=CompactionPolicy(entries_max=entries_max),
    )


async def make(store: MetadataStore, *commands: Command) -> None:
    for command in commands:
        await store.change(planned(command))


async def status_of_failed(store: MetadataStore, command: Command) -> int:
    with pytest.raises(ServerFault) as fault:
        await make(store, command)
    return fault.value.status


def nothing(metadata: Metadata) -> StreamCreated | None:
    """Plan nothing."""
    return None


async def read(storage: SimulatedStorage, path: str = LOG_PATH) -> bytes:
    data = await storage.read_file(path)
    assert data is not None
    return data
