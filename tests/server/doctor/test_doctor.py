"""``iggy-server check`` and ``repair`` on a directory that something has happened to."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from iggy_ref_server.__main__ import main
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.config import StartFlags, load_config
from iggy_ref_server.doctor.case import Case
from iggy_ref_server.doctor.visit import check_case, repair_case
from iggy_ref_server.guards import lock_data_directory
from iggy_ref_server.storage.fault_plan import FaultPlan
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.memory import MemoryStorage
from tests.server.doctor.patient import HEADER_BYTES, MESSAGES, Patient, flip

pytestmark = pytest.mark.timeout(60)

ALL = dict(enumerate(MESSAGES))
MESSAGE_BYTES = HEADER_BYTES + len(MESSAGES[0])
SOUND, TO_MEND, BEYOND = 0, 1, 2
DISK = Path(__file__).parents[2] / "golden" / "disk"


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


def without(*offsets):
    return {offset: payload for offset, payload in ALL.items() if offset not in offsets}


def assert_check_changes_nothing(patient, status):
    before = patient.content()
    assert patient.check() == status, patient.text()
    assert patient.content() == before


def test_directory_when_sound_then_check_and_repair_say_so_and_change_nothing(patient):
    before = patient.content()

    assert patient.check() == SOUND
    assert "no problems found" in patient.text()
    assert "1 streams, 1 topics, 2 partitions" in patient.text()
    assert patient.repair() == SOUND
    assert patient.content() == before


def test_command_line_when_called_then_prints_and_exits_with_the_status(patient, capsys):
    assert main(["check", str(patient.directory)]) == SOUND
    assert "no problems found" in capsys.readouterr().out

    patient.logs()[0].with_suffix(".index").unlink()
    assert main(["check", str(patient.directory)]) == TO_MEND
    assert main(["repair", str(patient.directory)]) == SOUND
    assert main(["check", str(patient.directory)]) == SOUND


def test_message_when_damaged_then_repair_saves_all_others(patient):
    flip(patient.logs()[0], 3 * MESSAGE_BYTES + HEADER_BYTES + 5)
    assert_check_changes_nothing(patient, TO_MEND)
    assert "the messages 3 are lost" in patient.text()

    assert patient.repair() == SOUND
    assert patient.check() == SOUND
    assert patient.read() == without(3)
    assert patient.read(1) == ALL
    assert patient.next_offset() == 40
    [kept] = (patient.directory / "quarantine/0001").rglob("*.bytes-*")
    assert len(kept.read_bytes()) == MESSAGE_BYTES


@pytest.mark.parametrize("cut", [1, 70, MESSAGE_BYTES - 1])
def test_log_when_its_end_is_torn_then_repair_cuts_what_is_no_message(patient, cut):
    log = patient.logs()[-1]
    log.write_bytes(log.read_bytes()[:-cut])
    assert_check_changes_nothing(patient, TO_MEND)

    assert patient.repair() == SOUND
    assert patient.read() == without(39)


@pytest.mark.parametrize("place", [1, -1])
def test_log_when_it_belongs_to_another_segment_then_repair_takes_none_of_its_messages(
    patient, place
):
    theirs = patient.logs(1)[2].read_bytes()
    log = patient.logs()[place]
    log.write_bytes(theirs)
    assert_check_changes_nothing(patient, TO_MEND)
    assert "another segment's log" in patient.text()

    assert patient.repair() == SOUND
    first = int(log.stem)
    following = [int(other.stem) for other in patient.logs() if int(other.stem) > first]
    last = min(following, default=len(MESSAGES))
    assert patient.read() == without(*range(first, last))
    assert patient.next_offset() >= len(MESSAGES)
    kept = [path.read_bytes() for path in patient.directory.glob("quarantine/**/*.log*")]
    assert theirs in kept


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-16]),
        lambda path: path.write_bytes(path.read_bytes() + bytes(7)),
        lambda path: flip(path, 5),
    ],
)
def test_index_when_wrong_then_repair_makes_it_as_it_was(patient, place, damage):
    index = patient.logs()[place].with_suffix(".index")
    before = index.read_bytes()
    damage(index)
    assert_check_changes_nothing(patient, TO_MEND)
    assert "the index" in patient.text()

    assert patient.repair() == SOUND
    assert index.read_bytes() == before
    assert patient.read() == ALL


def test_segment_when_missing_in_the_middle_then_repair_notes_the_loss_and_serves_the_rest(patient):
    gone, following = patient.logs()[1:3]
    gone.unlink()
    gone.with_suffix(".index").unlink()
    lost = range(int(gone.stem), int(following.stem))
    assert not patient.is_served()
    assert_check_changes_nothing(patient, TO_MEND)
    assert "are missing" in patient.text()

    assert patient.repair() == SOUND
    assert patient.read() == without(*lost)


def test_stored_offsets_when_they_make_no_sense_then_repair_puts_them_right(patient):
    consumers = patient.partition() / "offsets" / "consumers"
    (consumers / "2").write_bytes(b"short")
    (consumers / "name").write_bytes(bytes(8))
    (consumers / "3").write_bytes((999).to_bytes(8, "little"))
    (patient.partition() / "offsets" / "groups" / "77").write_bytes(bytes(8))
    assert_check_changes_nothing(patient, TO_MEND)

    assert patient.repair() == SOUND
    assert {path.name: path.read_bytes() for path in consumers.iterdir()} == {
        "1": (20).to_bytes(8, "little"),
        "3": (39).to_bytes(8, "little"),
    }
    assert not list((patient.partition() / "offsets" / "groups").iterdir())


@pytest.mark.parametrize("name", ["reservation", "incarnation"])
def test_small_file_when_it_cannot_be_understood_then_repair_opens_the_partition_again(
    patient, name
):
    (patient.partition() / name).write_bytes(b"{nonsense")
    assert not patient.is_served()
    assert patient.is_served(1)
    assert_check_changes_nothing(patient, TO_MEND)

    assert patient.repair() == SOUND
    assert patient.read() == ALL
    assert patient.next_offset() >= 40, "no offset is given twice"


def test_stream_when_the_metadata_do_not_know_it_then_repair_moves_it_away(patient):
    stranger = patient.directory / "streams/7/topics/0/partitions/0"
    shutil.copytree(patient.partition(), stranger)
    before = patient.logs()[0].read_bytes()
    assert_check_changes_nothing(patient, TO_MEND)

    assert patient.repair() == SOUND
    assert not stranger.exists()
    kept = patient.directory / "quarantine/0001/streams/7/topics/0/partitions/0"
    assert (kept / patient.logs()[0].name).read_bytes() == before


def test_metadata_when_gone_then_nobody_guesses(patient):
    shutil.rmtree(patient.directory / "state")

    assert_check_changes_nothing(patient, BEYOND)
    assert "restore the directory `state` from a backup" in patient.text()
    before = {path.read_bytes() for path in (patient.directory / "streams").rglob("*.log")}
    assert patient.repair() == SOUND
    assert not (patient.directory / "streams").exists()
    kept = (patient.directory / "quarantine").rglob("*.log")
    assert {path.read_bytes() for path in kept} == before


def test_logs_when_two_claim_the_same_offsets_then_a_person_has_to_decide(patient):
    log, following = patient.logs()[1:3]
    log.write_bytes(log.read_bytes() + following.read_bytes())

    assert_check_changes_nothing(patient, BEYOND)
    assert "it is unknown which of the two is right" in patient.text()
    assert patient.repair() == BEYOND
    assert following.exists()


def test_directory_when_a_server_uses_it_then_it_is_left_alone(patient):
    flip(patient.logs()[0], 100)
    before = patient.content()
    lock_data_directory(patient.directory)

    assert patient.check() == BEYOND
    assert "is in use by the server with process id" in patient.text()
    assert patient.repair() == BEYOND
    assert patient.content() == before


def test_directory_when_it_is_none_then_that_is_said(patient):
    patient.directory = patient.directory / "streams"

    assert patient.check() == BEYOND
    assert "is not a data directory" in patient.text()


@pytest.mark.parametrize("sample", ["plain", "segments"])
def test_directory_when_a_real_server_left_it_then_check_tells_what_would_be_taken_over(
    patient, tmp_path, sample
):
    patient.directory = tmp_path / "real"
    shutil.copytree(DISK / sample, patient.directory)

    assert_check_changes_nothing(patient, SOUND)
    assert "it is the metadata log of Apache Iggy" in patient.text()


async def copied(directory, plan):
    """Copy a directory into memory, on a disk that fails as planned."""
    storage = MemoryStorage(plan)
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir():
            await storage.make_directories(name)
        elif path.name != ".lock":
            await storage.replace(name, path.read_bytes())
    return storage


async def treated(treat, storage):
    """Have the doctor treat a directory in memory."""
    config = load_config(StartFlags(), {}, Path("/")).config
    case = Case(storage=storage, clock=SimulatedClock(), config=config, say=lambda line: None)
    return await treat(case)


@pytest.mark.parametrize("verb", ["write", "sync", "truncate", "rename", "replace"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_repair_when_interrupted_then_the_next_one_loses_nothing_more(patient, verb, at):
    for log, place in zip(patient.logs(), (3, 1), strict=False):
        flip(log, place * MESSAGE_BYTES + HEADER_BYTES + 5)

    async def run():
        plan = FaultPlan(seed=at)
        storage = await copied(patient.directory, plan)
        plan.fail(verb, at=at)
        with suppress(StorageError):
            await treated(repair_case, storage)
        plan.heal()
        storage = storage.kill()
        assert await treated(repair_case, storage) == SOUND
        assert await treated(check_case, storage) == SOUND
        path = "streams/0/topics/0/partitions/0"
        names = [entry.name for entry in await storage.entries(path)]
        logs = [await storage.read_file(f"{path}/{name}") for name in names if ".log" in name]
        return sum(map(len, logs))

    sizes = sum(log.stat().st_size for log in patient.logs())
    assert trio.run(run) == sizes - 2 * MESSAGE_BYTES
