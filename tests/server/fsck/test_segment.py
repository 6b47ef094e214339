"""What fsck reads from the files of one segment."""

from __future__ import annotations

import pytest

from iggy_ref_server.fsck.segments import check_segment
from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.segments.file_names import SegmentFiles
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import PATH, create, send

pytestmark = pytest.mark.trio

COUNT = 10
SIZE = 64 + 10
LOG = f"{PATH}/{0:020}.log"


async def killed_storage():
    """Store messages whose index entries are in memory only, and kill the process."""
    storage = SimulatedStorage()
    partition = await create(storage, PartitionSettings())
    for number in range(COUNT):
        await send(partition, b"%010d" % number)
    return storage.kill()


async def examine(storage, content):
    """Look at the only segment, with another content of its log."""
    await storage.replace(LOG, content)
    files = SegmentFiles(0, len(content), 0)
    return await check_segment(storage, PATH, files, None, lambda _: None)


@pytest.mark.parametrize(("damaged", "lost"), [(1, ((9, 10),)), (3, ((7, 10),))])
async def test_messages_when_damaged_at_the_very_end_then_are_lost_and_their_offsets_known(
    damaged, lost
):
    storage = await killed_storage()
    content = bytearray(await storage.read_file(LOG))
    for number in range(1, damaged + 1):
        content[-number * SIZE + 70] ^= 1

    segment = await examine(storage, content)

    assert segment.lost == lost
    assert segment.known_end == COUNT


async def test_header_when_nonsense_behind_a_whole_message_then_none_gets_a_lower_offset():
    storage = await killed_storage()
    content = bytearray(await storage.read_file(LOG))
    content[-3 * SIZE + 70] ^= 1
    content[-2 * SIZE :] = b"\xff" * (2 * SIZE)

    segment = await examine(storage, content)

    assert segment.known_end >= COUNT


@pytest.mark.parametrize("cut", [1, 9, 10, 73])
async def test_end_when_torn_then_nothing_is_said_to_be_lost(cut):
    storage = await killed_storage()
    content = await storage.read_file(LOG)

    segment = await examine(storage, content[:-cut])

    assert segment.lost == ()
    assert segment.known_end == COUNT - 1
