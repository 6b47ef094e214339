"""What ``check`` and ``repair`` make of a partition whose files are not simply its own."""

from __future__ import annotations

import shutil

import pytest
import trio

from iggy_protocol import Partitioning, PurgeTopic, SendMessages
from iggy_ref_server.partitions.generation import (
    Generation,
    GenerationState,
    read_generation,
    write_generation,
)
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.fsck.damaged_directory import MESSAGES, DataDirectory, flip

pytestmark = pytest.mark.timeout(60)

ALL = dict(enumerate(MESSAGES))
CLEAN, REPAIRABLE, UNREPAIRABLE = 0, 1, 2
PATH = "streams/0/topics/0/partitions/0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Make a sound directory once; tests damage copies of it."""
    return DataDirectory(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture
def data_directory(sound, tmp_path):
    """Copy the sound directory."""
    copy = DataDirectory.__new__(DataDirectory)
    copy.directory, copy.printed = tmp_path / "data", []
    shutil.copytree(sound.directory, copy.directory)
    return copy


def number_of(data_directory):
    """Return what the record says."""
    return trio.run(read_generation, ThreadStorage(data_directory.directory), PATH)


def set_number(data_directory, generation):
    """Write a record whose checksum holds."""
    trio.run(write_generation, ThreadStorage(data_directory.directory), PATH, generation)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: flip(path, 17),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["missing", "flipped", "cut", "empty"],
)
def test_record_when_damaged_then_set_aside_until_repair_writes_it_anew(data_directory, damage):
    record = data_directory.partition() / "incarnation"
    before, content = record.read_bytes(), data_directory.content()
    damage(record)
    assert not data_directory.is_served()
    assert data_directory.is_served(1)
    assert data_directory.check() == REPAIRABLE
    assert "a server does not serve the partition" in data_directory.text()
    assert {**data_directory.content(), f"{PATH}/incarnation": before}.keys() >= content.keys()

    assert data_directory.repair() == CLEAN
    assert record.read_bytes() == before
    assert data_directory.read() == ALL
    assert data_directory.next_offset() == 40


def test_generation_when_higher_than_the_metadata_know_then_a_person_has_to_decide(data_directory):
    found = number_of(data_directory)
    set_number(data_directory, found._replace(number=found.number + 1_000))
    assert not data_directory.is_served()
    before = data_directory.content()

    assert data_directory.check() == UNREPAIRABLE
    assert "the metadata are older than the messages" in data_directory.text()
    assert data_directory.repair() == UNREPAIRABLE
    assert {name for name in before if name not in data_directory.content()} == set()


@pytest.mark.parametrize("is_creating", [True, False])
def test_generation_when_over_then_repair_keeps_its_files_in_quarantine(
    data_directory, is_creating
):
    found = number_of(data_directory)
    log = data_directory.logs()[0].read_bytes()
    over = Generation(found.number, GenerationState.CREATING)
    set_number(data_directory, over if is_creating else Generation(found.number - 1))

    assert data_directory.check() == REPAIRABLE
    assert data_directory.repair() == CLEAN
    assert data_directory.read() == {}
    [kept] = (data_directory.directory / "quarantine").rglob(f"{0:020}.log")
    assert kept.read_bytes() == log


class PurgedDirectory(DataDirectory):
    """A data directory whose topic was purged a second before its only message came."""

    async def _fill(self, client):
        await super()._fill(client)
        await client.ask(PurgeTopic("s", "t"))
        await trio.sleep(1)
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), [b"after the purge"]))


@pytest.mark.parametrize("is_creating", [True, False])
def test_record_when_older_than_the_messages_then_set_aside_until_repair_writes_it_anew(
    tmp_path, is_creating
):
    data_directory = PurgedDirectory(tmp_path / "data")
    found = number_of(data_directory)
    creating = Generation(found.number, GenerationState.CREATING)
    set_number(data_directory, creating if is_creating else Generation(found.number - 1))
    # As after a kill in the first second of the generation.
    (data_directory.directory / "state" / "opened.0").unlink()
    content = data_directory.logs()[0].read_bytes()
    assert not data_directory.is_served()
    assert data_directory.logs()[0].read_bytes() == content

    assert data_directory.check() == REPAIRABLE
    assert "the first message is newer than that" in data_directory.text()
    assert data_directory.repair() == CLEAN
    assert data_directory.read() == {0: b"after the purge"}


def test_text_when_one_bit_is_wrong_then_repair_takes_it_for_the_number(data_directory):
    number = number_of(data_directory).number
    record = data_directory.partition() / "incarnation"
    record.write_bytes(f"{number ^ 1}\n".encode())
    assert not data_directory.is_served()

    assert data_directory.check() == REPAIRABLE
    assert data_directory.repair() == CLEAN
    assert data_directory.read() == ALL


def test_logs_when_all_are_missing_then_repair_begins_behind_all_offsets(data_directory):
    for path in data_directory.partition().glob("0*"):
        path.unlink()
    assert not data_directory.is_served()

    assert data_directory.check() == REPAIRABLE
    assert "restore them from a backup" in data_directory.text()
    assert data_directory.repair() == CLEAN
    assert data_directory.next_offset() == 40


def test_reservation_when_missing_then_repair_makes_one_that_skips_offsets(data_directory):
    (data_directory.partition() / "reservation").unlink()
    assert not data_directory.is_served()

    assert data_directory.check() == REPAIRABLE
    assert "`reservation` is missing" in data_directory.text()
    assert data_directory.repair() == CLEAN
    assert data_directory.read() == ALL
    assert data_directory.next_offset() >= 40


def test_directory_when_it_is_missing_then_the_partition_is_set_aside_and_not_begun_anew(
    data_directory,
):
    shutil.rmtree(data_directory.partition())
    assert not data_directory.is_served()
    assert data_directory.is_served(1)
    assert not data_directory.partition().exists()

    assert data_directory.check() == UNREPAIRABLE
    assert "missing, although they existed before" in data_directory.text()
    assert data_directory.repair() == UNREPAIRABLE
    assert not data_directory.is_served()


def test_directories_when_exchanged_then_neither_is_served_nor_adopted_by_a_repair(data_directory):
    first, second, aside = (
        data_directory.partition(),
        data_directory.partition(1),
        data_directory.directory / "aside",
    )
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)
    assert not data_directory.is_served()
    assert not data_directory.is_served(1)

    assert data_directory.check() == UNREPAIRABLE
    assert f"the files are those of {PATH}" in data_directory.text()
    assert data_directory.repair() == UNREPAIRABLE
    assert not data_directory.is_served()
