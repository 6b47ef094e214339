"""Encryption at rest: what is on disk, what is delivered, and what cannot be opened."""

from __future__ import annotations

import pytest

from iggy_protocol import MessageBatch, NewMessage, PayloadCipher, PollingStrategy
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.settings import AckLevel, DeduplicationSettings, PartitionSettings
from iggy_ref_server.partitions.steps import run_async, run_if_ready
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.partitions.partition_calls import (
    FROM_START,
    PATH,
    create,
    offsets,
    payloads,
    poll,
    reopen,
    request,
    send,
)

pytestmark = pytest.mark.trio

CANNOT_DECRYPT_DATA = 72
KEY = PayloadCipher(bytes(range(32)))
OTHER_KEY = PayloadCipher(bytes(32))
LEVELS = pytest.mark.parametrize("ack", AckLevel)


def sealed(ack: AckLevel = AckLevel.WRITTEN, cipher: PayloadCipher = KEY) -> PartitionSettings:
    """Encrypt."""
    return PartitionSettings(ack=ack, encryptor=cipher, segment_size_bytes=600)


async def logs(storage: SimulatedStorage) -> bytes:
    """Read all logs."""
    content = b""
    for entry in await storage.entries(PATH):
        if entry.name.endswith(".log"):
            content += await storage.read_file(f"{PATH}/{entry.name}") or b""
    return content


@LEVELS
async def test_messages_when_sealed_then_plain_in_polls_and_not_on_disk(ack):
    storage = SimulatedStorage()
    partition = await create(storage, sealed(ack))
    for number in range(8):
        await send(
            partition,
            NewMessage(b"secret %d" % number, id=number + 1, user_headers=b"hidden"),
            b"secret too",
            b"",
        )

    async def check() -> None:
        found = await poll(partition)
        assert [message.payload for message in found[:4]] == [
            b"secret 0",
            b"secret too",
            b"",
            b"secret 1",
        ]
        assert [message.user_headers for message in found[:3]] == [b"hidden", b"", b""]
        assert [message.offset for message in found] == list(range(24))
        assert (found[0].id, found[3].id) == (1, 2)

    await check()
    await partition.aclose()
    content = await logs(storage)
    assert b"secret" not in content
    assert b"hidden" not in content
    MessageBatch(content).verify()
    partition = await reopen(storage.kill(), sealed(ack))
    await check()


async def test_record_when_sealed_then_has_the_layout_of_the_real_server():
    storage = SimulatedStorage()
    partition = await create(storage, sealed())
    await send(partition, NewMessage(b"payload", user_headers=b"headers"), b"payload")

    first, second = MessageBatch(await logs(storage))

    assert (len(first.payload), len(first.user_headers)) == (7 + 28, 7 + 28)
    assert (len(second.payload), len(second.user_headers)) == (7 + 28, 0)
    assert KEY.open(first.payload) == b"payload"
    assert KEY.open(first.user_headers) == b"headers"
    assert bytes(first.payload[:12]) != bytes(second.payload[:12]), "no nonce is used twice"


async def test_messages_when_the_key_is_another_then_told_and_never_skipped():
    """The real server logs and leaves them out (C16)."""
    storage = SimulatedStorage()
    partition = await create(storage, sealed())
    await send(partition, b"secret")
    await partition.aclose()

    partition = await reopen(storage, sealed(cipher=OTHER_KEY))

    with pytest.raises(ServerFault) as caught:
        run_if_ready(partition.poll(FROM_START))
    assert caught.value.status == CANNOT_DECRYPT_DATA
    assert "offset 0" in caught.value.message
    with pytest.raises(ServerFault):
        await run_async(partition.poll(FROM_START))


async def test_messages_when_stored_before_encryption_then_told_and_later_ones_readable():
    storage = SimulatedStorage()
    partition = await create(storage)
    await send(partition, b"plain")
    await partition.aclose()
    partition = await reopen(storage, sealed())
    await send(partition, b"secret")

    with pytest.raises(ServerFault):
        await run_async(partition.poll(FROM_START))
    assert await payloads(partition, request(PollingStrategy.offset(1))) == [b"secret"]


async def test_poll_when_cold_then_has_to_be_awaited():
    plan = FaultPlan()
    partition = await create(SimulatedStorage(plan), sealed())
    await send(partition, b"secret")
    plan.uncache()

    assert run_if_ready(partition.poll(FROM_START)) is None
    assert await payloads(partition) == [b"secret"]


async def test_poll_when_limited_in_bytes_then_cut_at_a_message():
    partition = await create(SimulatedStorage(), sealed())
    await send(partition, *[bytes(100)] * 5)

    wanted = request(PollingStrategy.first(), size_max_bytes=600)

    assert await offsets(partition, wanted) == [0, 1, 2]


async def test_duplicates_when_sealed_then_still_found_by_id():
    storage = SimulatedStorage()
    settings = PartitionSettings(
        encryptor=KEY, deduplication=DeduplicationSettings(entries_max=10, expiry_us=0)
    )
    partition = await create(storage, settings)
    await send(partition, NewMessage(b"one", id=1), NewMessage(b"one", id=1))
    await send(partition, NewMessage(b"one", id=1))
    partition = await reopen(storage.kill(), settings)
    await send(partition, NewMessage(b"one", id=1), NewMessage(b"two", id=2))

    assert await payloads(partition) == [b"one", b"two"]
