"""Recovery: logs and indexes as crashes leave them, and as accidents do."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import MessageBatch
from iggy_ref_server.segments import log_scanner, recovery
from iggy_ref_server.segments import log_scanner as walk_module
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.segments.file_names import SegmentFiles
from iggy_ref_server.segments.index import ENTRY_BYTES
from iggy_ref_server.segments.log_scanner import LogScanner
from iggy_ref_server.segments.recovery import rebuild_index, recover_segment, verify_segment
from iggy_ref_server.segments.torn_tail import SurvivingWrites
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.segments.segment_calls import DIRECTORY, contents, index_of, log_of, put, sizes_of

if TYPE_CHECKING:
    from iggy_ref_server.segments.segment import Segment

PAYLOADS = [b"one", b"", b"three" * 50, b"four", b"five" * 9]
LOG = log_of(PAYLOADS)
INDEX = index_of(LOG)


async def mend(
    storage: SimulatedStorage,
    log: bytes,
    index: bytes | None,
    *,
    next_start: int | None = None,
    may_be_torn: bool | None = None,
    start_offset: int = 0,
    kept: SurvivingWrites = SurvivingWrites.EVERYTHING,
) -> Segment:
    """Put files on a disk and mend them."""
    await put(storage, log, index, start_offset=start_offset)
    files = SegmentFiles(start_offset, len(log), None if index is None else len(index))
    return await recover_segment(
        storage, DIRECTORY, files, next_start=next_start, may_be_torn=may_be_torn, kept=kept
    )


def flipped(log: bytes, number: int) -> bytes:
    """Turn over one bit in the middle of a message."""
    at = sum(sizes_of(log)[:number]) + 30
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


@pytest.mark.trio
async def test_open_segment_when_clean_then_nothing_is_written():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    plan.fail("write")
    plan.fail("truncate")

    segment = await mend(storage, LOG, INDEX)

    assert (segment.messages_count, segment.size_bytes) == (5, len(LOG))
    assert (segment.first_timestamp_us, segment.last_timestamp_us) == (1_000, 1_004)
    assert segment.next_offset == 5


@pytest.mark.trio
async def test_sealed_segment_when_sizes_agree_then_log_is_not_read():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    plan.fail("open", path="*.log")
    plan.fail("read", path="*.log")

    segment = await mend(storage, LOG, INDEX, next_start=5)

    assert segment.messages_count == 5


@pytest.mark.trio
async def test_open_segment_when_clean_then_only_its_end_is_read():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    log = log_of([bytes(50)] * 500)
    reads = plan.delay("read", seconds=0)

    await mend(storage, log, index_of(log))

    assert reads.matched_count < 10


@pytest.mark.trio
@pytest.mark.parametrize(
    "index",
    [
        None,
        b"",
        INDEX[:16],
        INDEX[:-16],
        INDEX[:-3],
        INDEX + b"\x01\x02\x03",
        INDEX + bytes(16),
        INDEX + INDEX,
        bytes(80),
        INDEX[16:] + INDEX[:16],
        INDEX[:64] + b"\xff" * 16,
    ],
    ids=[
        "missing",
        "empty",
        "first entry only",
        "last entry missing",
        "cut in an entry",
        "a few bytes more",
        "zeros behind",
        "twice",
        "zeros",
        "rotated",
        "last entry garbage",
    ],
)
@pytest.mark.parametrize("next_start", [None, 5], ids=["open", "sealed"])
async def test_index_when_wrong_then_made_anew_from_the_log(index, next_start):
    storage = SimulatedStorage()

    segment = await mend(storage, LOG, index, next_start=next_start)

    assert await contents(storage) == (LOG, INDEX)
    assert segment.messages_count == 5


@pytest.mark.trio
@pytest.mark.parametrize("index", [INDEX, INDEX[:32], b""], ids=["whole", "short", "empty"])
@pytest.mark.parametrize("kept", range(len(LOG) - len(PAYLOADS[-1]) - 64, len(LOG), 7))
async def test_log_when_its_end_is_torn_then_whole_messages_stay(kept, index, caplog):
    storage = SimulatedStorage()
    whole = len(LOG) - sizes_of(LOG)[-1]
    with caplog.at_level(logging.WARNING):
        segment = await mend(storage, LOG[:kept], index, kept=SurvivingWrites.SYNCED)

    assert await contents(storage) == (LOG[:whole], INDEX[:64])
    assert segment.messages_count == 4
    assert "truncated" in caplog.text or kept == whole


@pytest.mark.trio
async def test_log_when_garbage_follows_then_cut():
    storage = SimulatedStorage()

    for garbage in (b"garbage" * 30, bytes(64), bytes(640), b"\xff" * 200):
        segment = await mend(storage, LOG + garbage, INDEX)

        assert await contents(storage) == (LOG, INDEX)
        assert segment.size_bytes == len(LOG)


@pytest.mark.trio
async def test_log_when_an_intact_message_lies_behind_damage_then_refused_and_left_alone():
    storage = SimulatedStorage()
    for damaged in (LOG + log_of([b"stray"], start_offset=6), flipped(LOG, 3), flipped(LOG, 0)):
        for index in (INDEX[:16], b"", None):
            if index and damaged == flipped(LOG, 0):
                continue  # the entry vouches for the message before it
            with pytest.raises(CorruptPartition, match="there is an intact one behind it"):
                await mend(storage, damaged, index)
            assert await contents(storage) == (damaged, index)
            await storage.remove_tree(DIRECTORY)


@pytest.mark.trio
@pytest.mark.parametrize("cut", [1, 30, 70, len(LOG) - 80, len(LOG)])
@pytest.mark.parametrize("kept", [SurvivingWrites.EVERYTHING, SurvivingWrites.INDEXED])
async def test_index_when_it_tells_of_more_messages_than_the_log_then_refused(cut, kept):
    storage = SimulatedStorage()

    with pytest.raises(CorruptPartition, match=r"the index tells that . messages were written"):
        await mend(storage, LOG[:-cut], INDEX, kept=kept)

    assert await contents(storage) == (LOG[:-cut], INDEX)


@pytest.mark.trio
@pytest.mark.parametrize("cut", [1, 70])
async def test_sealed_segment_when_not_whole_and_nothing_was_lost_then_refused(cut):
    storage = SimulatedStorage()

    with pytest.raises(CorruptPartition):
        await mend(storage, LOG[:-cut], INDEX, next_start=5, may_be_torn=True)

    assert await contents(storage) == (LOG[:-cut], INDEX)


@pytest.mark.trio
async def test_sealed_log_when_only_garbage_follows_then_cut():
    storage = SimulatedStorage()

    await mend(storage, LOG + b"garbage", INDEX, next_start=5)

    assert await contents(storage) == (LOG, INDEX)


@pytest.mark.trio
async def test_sealed_log_when_damaged_then_refused_and_left_alone():
    storage = SimulatedStorage()
    damaged = bytearray(LOG)
    damaged[sizes_of(LOG)[0] + 30] ^= 1

    for index in (b"", None):
        with pytest.raises(CorruptPartition, match="offset 1 cannot be read, and segment 5 follo"):
            await mend(storage, bytes(damaged), index, next_start=5)
        assert (await contents(storage))[0] == bytes(damaged)


@pytest.mark.trio
async def test_segment_when_all_checksums_are_asked_for_then_damage_is_found_anywhere():
    storage = SimulatedStorage()
    damaged = bytearray(LOG)
    damaged[sizes_of(LOG)[0] + 30] ^= 1
    segment = await mend(storage, bytes(damaged), INDEX)
    assert segment.messages_count == 5, "the last message vouches for those before it"

    with pytest.raises(CorruptPartition, match="offset 1 cannot be read"):
        await verify_segment(storage, segment)


@pytest.mark.trio
async def test_open_log_when_damaged_in_the_middle_and_index_is_gone_then_refused_every_time():
    storage = SimulatedStorage()
    damaged = bytearray(LOG)
    damaged[sizes_of(LOG)[0] + 30] ^= 1

    for _ in range(2):
        with pytest.raises(CorruptPartition, match="there is an intact one behind it"):
            await mend(storage, bytes(damaged), None)
        assert await contents(storage) == (bytes(damaged), None)


@pytest.mark.trio
async def test_index_when_long_and_made_anew_then_written_in_pieces(monkeypatch):
    monkeypatch.setattr(recovery, "UNWRITTEN_BYTES_MAX", 32)
    monkeypatch.setattr(walk_module, "PIECE_BYTES", 100)
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    plan.fail("write", at=2)

    segment = await mend(storage, LOG, None)

    assert (await contents(storage))[1] == INDEX[:48]
    assert segment.index.memory_bytes == 32
    assert (segment.first_timestamp_us, segment.last_timestamp_us) == (1_000, 1_004)


@pytest.mark.trio
async def test_disk_when_full_then_a_torn_segment_can_be_mended():
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    plan.fail("write")

    segment = await mend(storage, LOG + b"torn", INDEX[:20])

    assert segment.messages_count == 5
    assert segment.index.entry_nowait(4) is not None
    assert await contents(storage) == (LOG, INDEX[:16])


@pytest.mark.trio
async def test_sealed_segment_when_it_was_not_on_the_disk_yet_then_may_be_torn():
    storage = SimulatedStorage()

    segment = await mend(
        storage, LOG[:-1], INDEX, next_start=5, may_be_torn=True, kept=SurvivingWrites.SYNCED
    )

    assert segment.messages_count == 4
    with pytest.raises(CorruptPartition):
        await mend(storage, LOG[:-1], INDEX, next_start=5)


@pytest.mark.trio
@pytest.mark.parametrize("index", [INDEX, INDEX[:20], b"", None])
async def test_sealed_segment_when_it_reaches_into_the_next_and_was_not_safe_then_cut(index):
    """A power loss may undo the cut behind a failed write, and its messages are whole."""
    storage = SimulatedStorage()

    segment = await mend(storage, LOG, index, next_start=3, may_be_torn=True)

    assert segment.messages_count == 3
    assert await contents(storage) == (LOG[: sum(sizes_of(LOG)[:3])], INDEX[:48])


@pytest.mark.trio
async def test_message_when_larger_than_a_piece_then_still_walked(monkeypatch):
    monkeypatch.setattr(walk_module, "PIECE_BYTES", 100)
    storage = SimulatedStorage()

    await mend(storage, LOG + b"x", None)

    assert await contents(storage) == (LOG, INDEX)


@pytest.mark.trio
async def test_length_when_it_is_nonsense_then_not_believed():
    """A torn header may announce gigabytes; nobody reads that much to find out."""
    storage = SimulatedStorage()
    header = bytearray(log_of([b""], start_offset=5))
    header[52:56] = b"\xff" * 4

    segment = await mend(storage, LOG + bytes(header), INDEX)

    assert segment.size_bytes == len(LOG)


@pytest.mark.trio
async def test_rebuild_when_an_index_has_a_hole_then_file_is_right_again():
    storage = SimulatedStorage()
    segment = await mend(storage, LOG, INDEX)
    await segment.open(storage)
    assert segment.index.file is not None
    await segment.index.file.write([bytes(32)], 16)

    await rebuild_index(segment)

    assert await contents(storage) == (LOG, INDEX)
    found = segment.index.entry_nowait(2)
    assert found is not None
    assert found.end_position == sum(sizes_of(LOG)[:3])


@st.composite
def damages(draw) -> tuple[bytes, bytes, bytes | None]:
    """Draw a log, and what an accident makes of it and of its index."""
    log = log_of(draw(st.lists(st.binary(max_size=120), min_size=1, max_size=12)))
    damaged, index = bytearray(log), bytearray(index_of(log))
    for target in (damaged, index):
        for kind in draw(st.lists(st.sampled_from(["cut", "flip", "append"]), max_size=2)):
            if kind == "append":
                target += draw(st.binary(min_size=1, max_size=200))
            elif target and kind == "cut":
                del target[draw(st.integers(0, len(target) - 1)) :]
            elif target:
                target[draw(st.integers(0, len(target) - 1))] ^= draw(st.integers(1, 255))
    return log, bytes(damaged), draw(st.sampled_from([bytes(index), None]))


@given(damages())
def test_segment_when_damaged_anywhere_then_a_prefix_is_left_or_it_is_refused(damage):
    log, damaged, index = damage

    async def scenario() -> None:
        storage = SimulatedStorage()
        try:
            segment = await mend(storage, damaged, index)
        except CorruptPartition:
            assert await contents(storage) == (damaged, index)
            return
        left, made = await contents(storage)
        assert left is not None
        assert made is not None
        assert damaged.startswith(left), "recovery only ever cuts"
        assert (len(left), len(made)) == (segment.size_bytes, segment.messages_count * ENTRY_BYTES)
        if left == log[: len(left)]:
            await verify_segment(storage, segment)
            assert left == damaged[: await good_bytes(damaged)], "nothing good was cut"
            offsets = [view.offset for view in MessageBatch(left)]
            assert offsets == list(range(segment.messages_count))
        else:
            # A bit flipped before a message that its index entry vouches for.
            with pytest.raises(CorruptPartition):
                await verify_segment(storage, segment)
        again = await mend(storage, left, made)
        assert again.messages_count == segment.messages_count

    trio.run(scenario)


async def good_bytes(log: bytes) -> int:
    """Measure the good messages at the start of a log, from the first one on."""
    storage = SimulatedStorage()
    await storage.replace("log", log)
    walk = LogScanner(await storage.open("log"), 0, 0, len(log))
    await walk.finish()
    return walk.position


@given(damages())
def test_segment_when_only_its_index_is_damaged_then_nothing_is_lost(damage):
    log, _, index = damage

    async def scenario() -> None:
        storage = SimulatedStorage()
        segment = await mend(storage, log, index)
        await segment.open(storage)
        await rebuild_index(segment)
        assert await contents(storage) == (log, index_of(log))

    trio.run(scenario)


def lookalikes(count: int) -> bytes:
    """Make a torn message whose payload is headers, each of which claims all that follows it."""
    sizes = [(count - number) * 64 - 64 for number in range(count)]
    headers = [
        struct.pack("<24xQQQIIQ", 6 + number, 1, 1, 0, size, 0) for number, size in enumerate(sizes)
    ]
    return struct.pack("<24xQQQIIQ", 5, 1, 1, 0, count * 64 + 1, 0) + b"".join(headers)


@pytest.mark.trio
async def test_payload_when_made_of_headers_then_the_search_ends_and_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(log_scanner, "SEARCH_BYTES_MAX", 1 << 20)
    storage = SimulatedStorage()
    log = LOG + lookalikes(1000)
    for kept in SurvivingWrites:
        with pytest.raises(CorruptPartition, match="too much behind it looks like messages"):
            await mend(storage, log, INDEX, kept=kept)

    assert await contents(storage) == (log, INDEX)


@pytest.mark.trio
async def test_payload_when_made_of_few_headers_then_cut_as_any_torn_end():
    storage = SimulatedStorage()

    segment = await mend(storage, LOG + lookalikes(100), INDEX)

    assert segment.size_bytes == len(LOG)


@pytest.mark.trio
@pytest.mark.parametrize("kept", [SurvivingWrites.EVERYTHING, SurvivingWrites.SYNCED])
async def test_bytes_when_cut_and_more_than_a_torn_message_then_are_kept_elsewhere(kept):
    """Such as whole messages of a longer log that was put in the place of this one."""
    storage = SimulatedStorage()
    surplus = log_of([b"theirs"] * 3, start_offset=5)
    for garbage, next_start in ((surplus, 5), (b"garbage" * 30, None)):
        log = LOG + garbage
        await mend(storage, log, None, next_start=next_start, may_be_torn=True, kept=kept)

        copy = f"quarantine/at-start/{DIRECTORY}/{0:020}.log.bytes-{len(LOG)}-{len(log)}"
        assert await storage.read_file(copy) == garbage
        assert (await contents(storage))[0] == LOG


@pytest.mark.trio
async def test_bytes_when_cut_and_only_torn_then_are_not_kept():
    storage = SimulatedStorage()
    torn = log_of([b"torn" * 30], start_offset=5)
    for size in (1, 63, 64, len(torn) - 1):
        await mend(storage, LOG + torn[:size], None)

        assert not await storage.entries("quarantine/at-start")
