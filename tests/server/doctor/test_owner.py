"""What ``check`` and ``repair`` make of a partition whose files are not simply its own."""

from __future__ import annotations

import shutil

import pytest
import trio

from iggy_ref_server.partitions.incarnation import (
    Generation,
    GenerationState,
    read_generation,
    write_generation,
)
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.doctor.patient import MESSAGES, Patient, flip

pytestmark = pytest.mark.timeout(60)

ALL = dict(enumerate(MESSAGES))
SOUND, TO_MEND, BEYOND = 0, 1, 2
PATH = "streams/0/topics/0/partitions/0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Make a sound directory once; tests damage copies of it."""
    return Patient(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture
def patient(sound, tmp_path):
    """Copy the sound directory."""
    copy = Patient.__new__(Patient)
    copy.directory, copy.said = tmp_path / "data", []
    shutil.copytree(sound.directory, copy.directory)
    return copy


def number_of(patient):
    """Return what the record says."""
    return trio.run(read_generation, ThreadStorage(patient.directory), PATH)


def set_number(patient, generation):
    """Write a record whose checksum holds."""
    trio.run(write_generation, ThreadStorage(patient.directory), PATH, generation)


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
def test_record_when_damaged_then_set_aside_until_repair_writes_it_anew(patient, damage):
    record = patient.partition() / "incarnation"
    before, content = record.read_bytes(), patient.content()
    damage(record)
    assert not patient.is_served()
    assert patient.is_served(1)
    assert patient.check() == TO_MEND
    assert "a server does not serve the partition" in patient.text()
    assert {**patient.content(), f"{PATH}/incarnation": before}.keys() >= content.keys()

    assert patient.repair() == SOUND
    assert record.read_bytes() == before
    assert patient.read() == ALL
    assert patient.next_offset() == 40


def test_generation_when_higher_than_the_metadata_know_then_a_person_has_to_decide(patient):
    found = number_of(patient)
    set_number(patient, found._replace(number=found.number + 1_000))
    assert not patient.is_served()
    before = patient.content()

    assert patient.check() == BEYOND
    assert "the metadata are older than the messages" in patient.text()
    assert patient.repair() == BEYOND
    assert {name for name in before if name not in patient.content()} == set()


@pytest.mark.parametrize("is_creating", [True, False])
def test_generation_when_over_then_repair_keeps_its_files_in_quarantine(patient, is_creating):
    found = number_of(patient)
    log = patient.logs()[0].read_bytes()
    over = Generation(found.number, GenerationState.CREATING)
    set_number(patient, over if is_creating else Generation(found.number - 1))

    assert patient.check() == TO_MEND
    assert patient.repair() == SOUND
    assert patient.read() == {}
    [kept] = (patient.directory / "quarantine").rglob(f"{0:020}.log")
    assert kept.read_bytes() == log


def test_text_when_one_bit_is_wrong_then_repair_takes_it_for_the_number(patient):
    number = number_of(patient).number
    record = patient.partition() / "incarnation"
    record.write_bytes(f"{number ^ 1}\n".encode())
    assert not patient.is_served()

    assert patient.check() == TO_MEND
    assert patient.repair() == SOUND
    assert patient.read() == ALL


def test_logs_when_all_are_missing_then_repair_begins_behind_all_offsets(patient):
    for path in patient.partition().glob("0*"):
        path.unlink()
    assert not patient.is_served()

    assert patient.check() == TO_MEND
    assert "restore them from a backup" in patient.text()
    assert patient.repair() == SOUND
    assert patient.next_offset() == 40


def test_reservation_when_missing_then_repair_makes_one_that_skips_offsets(patient):
    (patient.partition() / "reservation").unlink()
    assert not patient.is_served()

    assert patient.check() == TO_MEND
    assert "`reservation` is missing" in patient.text()
    assert patient.repair() == SOUND
    assert patient.read() == ALL
    assert patient.next_offset() >= 40


def test_directory_when_it_is_missing_then_the_partition_is_set_aside_and_not_begun_anew(patient):
    shutil.rmtree(patient.partition())
    assert not patient.is_served()
    assert patient.is_served(1)
    assert not patient.partition().exists()

    assert patient.check() == BEYOND
    assert "missing, although they existed before" in patient.text()
    assert patient.repair() == BEYOND
    assert not patient.is_served()


def test_directories_when_exchanged_then_neither_is_served_nor_adopted_by_a_repair(patient):
    first, second, aside = patient.partition(), patient.partition(1), patient.directory / "aside"
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)
    assert not patient.is_served()
    assert not patient.is_served(1)

    assert patient.check() == BEYOND
    assert f"the files are those of {PATH}" in patient.text()
    assert patient.repair() == BEYOND
    assert not patient.is_served()
