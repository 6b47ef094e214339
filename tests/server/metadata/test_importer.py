"""What real servers left behind, and what becomes of it."""

from __future__ import annotations

import base64
import json
import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from argon2 import PasswordHasher
from blake3 import blake3

from iggy_protocol import (
    NEVER_EXPIRES,
    UNLIMITED,
    ChangePassword,
    CommandCode,
    CompressionAlgorithm,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteSegments,
    DeleteStream,
    GetStreams,
    PayloadCipher,
    PurgeStream,
    UpdateStream,
    UserStatus,
    checksum,
    decode_reply,
    encode_request,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.metadata.errors import MetadataKeyMismatch
from iggy_ref_server.metadata.importer import import_if_new, import_state
from iggy_ref_server.metadata.plan_users import ROOT_PERMISSIONS
from iggy_ref_server.metadata.state import MetadataSettings
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.metadata.upstream_log import (
    UPSTREAM_LOG_PATH,
    ImportRefused,
    read_upstream_log,
)
from iggy_ref_server.metadata.views import (
    PartitionCounters,
    no_statistics,
    view_streams,
    view_topic_details,
)
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.metadata.metadata_calls import planned

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_ref_server.metadata.state import Metadata

DISK = Path(__file__).parents[2] / "golden" / "disk"
KEY = PayloadCipher.from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
DEFAULTS = MetadataSettings()

SAMPLES = {"plain": None, "encrypted": KEY, "segments": None}
RICH = pytest.mark.parametrize("sample", ["plain", "encrypted"])


def sample_log(sample: str) -> bytes:
    return (DISK / sample / "state" / "log").read_bytes()


def imported(sample: str, settings: MetadataSettings = DEFAULTS) -> Metadata:
    return import_state(sample_log(sample), settings, SAMPLES[sample]).metadata


def recorded(sample: str, command: str) -> list[tuple[bytes, bytes]]:
    """Find all requests of a kind that led to a sample, with their answers."""
    lines = [json.loads(line) for line in (DISK / f"{sample}.jsonl").read_text().splitlines()]
    return [
        (bytes.fromhex(line["request"])[8:], bytes.fromhex(line["reply"])[8:])
        for line in lines
        if line.get("cmd") == command
    ]


@RICH
def test_sample_when_imported_then_streams_and_topics_are_those_of_the_real_server(sample):
    metadata = imported(sample)

    [stream] = metadata.streams
    assert (stream.id, stream.name) == (1, "stream")
    assert metadata.streams.next_id == 0
    assert [
        (topic.id, topic.name, len(topic.partitions), topic.compression, topic.replication_factor)
        for topic in stream.topics
    ] == [
        (0, "t", 3, CompressionAlgorithm.NONE, 1),
        (1, "v", 1, CompressionAlgorithm.GZIP, 3),
    ]
    assert stream.topics.next_id == 2
    assert (
        stream.require_topic("v").message_expiry_us,
        stream.require_topic("v").max_size_bytes,
    ) == (
        61_000_000,
        2_147_483_648,
    )


@RICH
def test_sample_when_imported_then_the_answer_is_the_recorded_one(sample):
    [(_, reply)] = recorded(sample, "get_topic")
    told = decode_reply(CommandCode.GET_TOPIC, reply)
    counters = {
        entry.id: PartitionCounters(
            entry.segments_count, entry.size_bytes, entry.messages_count, entry.current_offset
        )
        for entry in told.partitions
    }

    ours = view_topic_details(
        imported(sample).require_topic("stream", "t"), lambda s, t, partition: counters[partition]
    )

    # The log says when an entry was written, which was some moments after the creation.
    assert 0 <= ours.created_at_us - told.created_at_us < 1_000_000
    partitions = tuple(
        replace(entry, created_at_us=mine.created_at_us)
        for entry, mine in zip(told.partitions, ours.partitions, strict=True)
    )
    assert replace(told, created_at_us=ours.created_at_us, partitions=partitions) == ours


@RICH
def test_sample_when_imported_then_partitions_accept_the_files_that_are_there(sample):
    metadata = imported(sample)

    for topic in metadata.require_stream("stream").topics:
        folder = DISK / sample / "streams" / "1" / "topics" / str(topic.id) / "partitions"
        assert sorted(path.name for path in folder.iterdir()) == [
            str(entry.id) for entry in topic.partitions
        ]
        assert {entry.generation for entry in topic.partitions} == {0}


@RICH
def test_sample_when_imported_then_groups_have_their_ids(sample):
    [group] = imported(sample).require_topic("stream", "t").groups

    assert (group.id, group.name) == (1, "g")


@RICH
@pytest.mark.parametrize(("username", "password"), [("iggy", "iggy"), ("alice", "secret2")])
def test_sample_when_imported_then_passwords_still_work(sample, username, password):
    user = imported(sample).require_user(username)

    assert PasswordHasher().verify(user.password_hash, password)
    assert user.status is UserStatus.ACTIVE


@RICH
def test_sample_when_imported_then_users_have_their_permissions(sample):
    metadata = imported(sample)

    assert [(user.id, user.username) for user in metadata.users] == [(0, "iggy"), (1, "alice")]
    assert metadata.users.next_id == 2
    assert metadata.require_user("iggy").permissions == ROOT_PERMISSIONS
    permissions = metadata.require_user("alice").permissions
    assert permissions is not None
    assert permissions.server.read_streams
    assert [entry.stream_id for entry in permissions.streams] == [1]


@RICH
def test_sample_when_imported_then_tokens_still_work(sample):
    metadata = imported(sample)
    (_, reply), _ = recorded(sample, "create_personal_access_token")
    raw = decode_reply(CommandCode.CREATE_PERSONAL_ACCESS_TOKEN, reply).token

    token = metadata.find_token(blake3(raw.encode()).hexdigest())
    assert token is not None
    assert (token.user_id, token.name, token.expires_at_us) == (0, "tok", None)
    assert len(metadata.tokens) == 1


def test_sample_when_it_has_segments_only_then_is_imported_too():
    metadata = imported("segments")

    [stream] = view_streams(metadata, no_statistics)
    assert (stream.id, stream.topics_count) == (0, 1)
    assert len(metadata.require_topic(0, 0).partitions) == 1


@RICH
def test_topics_when_left_to_the_server_then_get_the_defaults_of_ours(sample):
    settings = MetadataSettings(message_expiry_us=5, max_topic_size_bytes=7)

    ordinary = imported(sample).require_topic("stream", "t")
    resolved = imported(sample, settings).require_topic("stream", "t")

    assert (ordinary.message_expiry_us, ordinary.max_size_bytes) == (NEVER_EXPIRES, UNLIMITED)
    assert (resolved.message_expiry_us, resolved.max_size_bytes) == (5, 7)


@pytest.mark.parametrize("cut", [1, 5, 60])
@pytest.mark.parametrize("sample", SAMPLES)
def test_log_when_its_tail_is_torn_then_all_before_it_is_imported(sample, cut, caplog):
    whole = read_upstream_log(sample_log(sample), SAMPLES[sample])

    with caplog.at_level(logging.WARNING):
        read = read_upstream_log(sample_log(sample)[:-cut], SAMPLES[sample])

    assert read == whole[: len(read)]
    assert len(read) < len(whole)
    assert "incomplete" in caplog.text


@pytest.mark.parametrize("sample", SAMPLES)
def test_log_when_any_byte_before_the_last_entry_is_wrong_then_is_refused(sample):
    data = sample_log(sample)
    *_, last = read_upstream_log(data, SAMPLES[sample])
    for position in range(0, last.position, 11):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises((ImportRefused, MetadataKeyMismatch)) as refusal:
            read_upstream_log(bytes(damaged), SAMPLES[sample])
        assert refusal.value.position <= position


def test_log_when_several_entries_in_a_row_are_wrong_then_is_refused():
    data = bytearray(sample_log("plain"))
    third, fourth = read_upstream_log(bytes(data))[2:4]
    # The length of one points behind the end, the other does not match its checksum.
    data[third.position + 63] = 0xFF
    data[fourth.position + 64] ^= 1

    with pytest.raises(ImportRefused, match="entry 2 is damaged, but entry 4 follows"):
        read_upstream_log(bytes(data))


@pytest.mark.parametrize("cipher", [None, PayloadCipher(bytes(32))])
def test_log_when_the_key_is_missing_or_wrong_then_is_refused(cipher):
    with pytest.raises((ImportRefused, MetadataKeyMismatch), match=r"key|encrypt"):
        read_upstream_log(sample_log("encrypted"), cipher)


def test_log_when_plain_but_there_is_a_key_then_is_refused():
    with pytest.raises(MetadataKeyMismatch):
        read_upstream_log(sample_log("plain"), KEY)


def body_of(command: Command) -> bytes:
    return b"".join(bytes(part) for part in encode_request(command) if isinstance(part, bytes))


def entry(index: int, command: Command | bytes, *, code: int = 0) -> bytes:
    """Write an entry as a real server does."""
    body = command if isinstance(command, bytes) else body_of(command)
    code = code if isinstance(command, bytes) else command.CODE
    head = struct.pack("<QQIIQQI", index, 0, 0, 8000, 0, 1000 + index, 0)
    tail = struct.pack("<III", 0, code, len(body)) + body
    return head + struct.pack("<Q", checksum(head + tail)) + tail


def with_id(number: int, command: Command) -> bytes:
    body = body_of(command)
    return struct.pack("<II", number, len(body)) + body


def with_hash(digest: bytes, command: Command) -> bytes:
    body = body_of(command)
    return struct.pack("<I", len(digest)) + digest + struct.pack("<I", len(body)) + body


def creating(index: int, number: int, command: Command) -> bytes:
    return entry(index, with_id(number, command), code=command.CODE)


ROOT = creating(0, 0, CreateUser("iggy", "$argon2id$"))
STREAM = creating(1, 3, CreateStream("s"))
TOPIC = creating(2, 5, CreateTopic("s", "t", 0))


def test_ids_when_they_have_gaps_then_stay_and_the_gaps_are_free():
    metadata = import_state(ROOT + STREAM + TOPIC, DEFAULTS).metadata

    assert (metadata.require_stream("s").id, metadata.require_topic("s", "t").id) == (3, 5)
    assert metadata.streams.next_id == 2


def test_partitions_when_added_to_none_then_start_at_zero():
    log = ROOT + STREAM + TOPIC + entry(3, CreatePartitions(3, 5, 4))
    metadata = import_state(log + entry(4, DeletePartitions("s", "t", 1)), DEFAULTS).metadata

    partitions = metadata.require_topic(3, 5).partitions
    assert [(part.id, part.created_at_us, part.generation) for part in partitions] == [
        (0, 1003, 0),
        (1, 1003, 0),
        (2, 1003, 0),
    ]


def test_entries_when_they_left_only_files_then_change_nothing():
    log = ROOT + STREAM + TOPIC
    more = entry(3, PurgeStream("s")) + entry(4, DeleteSegments("s", "t", 0, 1))

    assert import_state(log + more, DEFAULTS) == import_state(log, DEFAULTS)


def test_token_when_made_again_after_it_expired_unlogged_then_the_later_counts():
    token = CreatePersonalAccessToken("tok", 10)
    log = ROOT + b"".join(
        entry(index, with_hash(digest, token), code=token.CODE)
        for index, digest in ((1, b"first"), (2, b"second"))
    )
    metadata = import_state(log, DEFAULTS).metadata

    [kept] = metadata.tokens
    assert (kept.hash, kept.expires_at_us) == ("second", 1012)
    gone = import_state(log + entry(3, DeletePersonalAccessToken("tok")), DEFAULTS).metadata
    assert len(gone.tokens) == 0


def test_password_when_changed_then_the_new_hash_counts():
    log = ROOT + entry(1, ChangePassword("iggy", "", "$argon2id$new"))

    assert import_state(log, DEFAULTS).metadata.require_user(0).password_hash == "$argon2id$new"


REFUSED = {
    "a stream that is not there": ROOT + entry(1, DeleteStream("s")),
    "a stream twice": ROOT + STREAM + creating(2, 3, CreateStream("other")),
    "a user that is not there": ROOT + entry(1, ChangePassword("bob", "", "#")),
    "a command that is never logged": ROOT + entry(1, GetStreams()),
    "no command at all": ROOT + entry(1, b"", code=9999),
    "a creation without its id": ROOT + entry(1, b"\1", code=CommandCode.CREATE_STREAM),
    "a command that is cut": ROOT + entry(1, b"\2\1", code=CommandCode.DELETE_STREAM),
    "an entry missing": ROOT + STREAM + entry(3, UpdateStream("s", "x")),
}


@pytest.mark.parametrize("log", REFUSED.values(), ids=REFUSED)
def test_log_when_it_says_what_cannot_be_then_is_refused(log):
    with pytest.raises(ImportRefused, match="nothing was changed"):
        import_state(log, DEFAULTS)


async def directory(sample: str) -> SimulatedStorage:
    """Copy the state of a sample into a data directory."""
    storage = SimulatedStorage()
    await storage.make_directories("state")
    for path in (DISK / sample / "state").iterdir():
        await storage.replace(f"state/{path.name}", path.read_bytes())
    return storage


async def open_store(storage: SimulatedStorage, cipher: PayloadCipher | None) -> MetadataStore:
    return await MetadataStore.open(storage, SimulatedClock(), encryptor=cipher)


@pytest.mark.trio
@pytest.mark.parametrize("sample", SAMPLES)
async def test_import_when_done_then_is_kept_and_the_original_is_untouched(sample):
    storage = await directory(sample)
    cipher = SAMPLES[sample]
    store = await open_store(storage, cipher)
    taken = await import_if_new(store, storage, DEFAULTS, encryptor=cipher)

    assert taken is not None
    assert store.current == taken.metadata == imported(sample)
    left = storage.crash()
    assert (await open_store(left, cipher)).current == store.current
    assert await left.read_file(UPSTREAM_LOG_PATH) == sample_log(sample)


@pytest.mark.trio
async def test_import_when_there_is_metadata_of_our_own_then_does_nothing():
    storage = await directory("plain")
    store = await open_store(storage, None)
    await import_if_new(store, storage, DEFAULTS)
    await store.change(planned(CreateStream("ours")))
    reopened = await open_store(storage.crash(), None)
    await storage.aclose()

    again = await import_if_new(reopened, await directory("segments"), DEFAULTS)

    assert again is None
    assert reopened.current == store.current


@pytest.mark.trio
@pytest.mark.parametrize("content", [None, b""])
async def test_import_when_there_is_nothing_to_import_then_does_nothing(content):
    storage = SimulatedStorage()
    store = await open_store(storage, None)
    if content is not None:
        await storage.replace(UPSTREAM_LOG_PATH, content)

    assert await import_if_new(store, storage, DEFAULTS) is None
    assert store.is_new


@pytest.mark.trio
async def test_import_when_refused_then_may_be_tried_again():
    storage = await directory("plain")
    await storage.replace(UPSTREAM_LOG_PATH, b"\1" + sample_log("plain")[1:])
    store = await open_store(storage, None)

    with pytest.raises(ImportRefused):
        await import_if_new(store, storage, DEFAULTS)
    await storage.replace(UPSTREAM_LOG_PATH, sample_log("plain"))

    assert (await open_store(storage, None)).is_new
    assert await import_if_new(store, storage, DEFAULTS)


def test_key_when_written_as_in_the_samples_then_is_32_bytes_in_order():
    assert base64.b64decode("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=") == bytes(range(32))
