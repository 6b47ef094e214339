"""``iggy-server check`` and ``repair`` on a directory that something has happened to."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from iggy_ref_server.__main__ import main
from iggy_ref_server.cli import StartFlags
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.config.load import load_config
from iggy_ref_server.fsck.command import check_context, repair_context
from iggy_ref_server.fsck.context import FsckContext
from iggy_ref_server.process.locks import lock_data_directory, record_boot_id
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.fsck.damaged_directory import HEADER_BYTES, MESSAGES, DataDirectory, flip

pytestmark = pytest.mark.timeout(60)

ALL = dict(enumerate(MESSAGES))
MESSAGE_BYTES = HEADER_BYTES + len(MESSAGES[0])
CLEAN, REPAIRABLE, UNREPAIRABLE = 0, 1, 2
DISK = Path(__file__).parents[2] / "golden" / "disk"


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


def without(*offsets):
    return {offset: payload for offset, payload in ALL.items() if offset not in offsets}


def assert_check_changes_nothing(data_directory, status):
    before = data_directory.content()
    assert data_directory.check() == status, data_directory.text()
    assert data_directory.content() == before


def test_directory_when_sound_then_check_and_repair_say_so_and_change_nothing(data_directory):
    before = data_directory.content()

    assert data_directory.check() == CLEAN
    assert "no problems found" in data_directory.text()
    assert "1 streams, 1 topics, 2 partitions" in data_directory.text()
    assert data_directory.repair() == CLEAN
    assert data_directory.content() == before


def test_command_line_when_called_then_prints_and_exits_with_the_status(data_directory, capsys):
    assert main(["check", str(data_directory.directory)]) == CLEAN
    assert "no problems found" in capsys.readouterr().out

    data_directory.logs()[0].with_suffix(".index").unlink()
    assert main(["check", str(data_directory.directory)]) == REPAIRABLE
    assert main(["repair", str(data_directory.directory)]) == CLEAN
    assert main(["check", str(data_directory.directory)]) == CLEAN


def test_message_when_damaged_then_repair_saves_all_others(data_directory):
    flip(data_directory.logs()[0], 3 * MESSAGE_BYTES + HEADER_BYTES + 5)
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "the messages 3 are lost" in data_directory.text()

    assert data_directory.repair() == CLEAN
    assert data_directory.check() == CLEAN
    assert data_directory.read() == without(3)
    assert data_directory.read(1) == ALL
    assert data_directory.next_offset() == 40
    [kept] = (data_directory.directory / "quarantine/0001").rglob("*.bytes-*")
    assert len(kept.read_bytes()) == MESSAGE_BYTES


@pytest.mark.parametrize("cut", [1, 70, MESSAGE_BYTES - 1])
def test_log_when_its_end_is_torn_then_repair_cuts_what_is_no_message(data_directory, cut):
    log = data_directory.logs()[-1]
    log.write_bytes(log.read_bytes()[:-cut])
    assert_check_changes_nothing(data_directory, REPAIRABLE)

    assert data_directory.repair() == CLEAN
    assert data_directory.read() == without(39)


def test_log_when_the_last_one_is_missing_then_its_index_tells_which_offsets_are_lost(
    data_directory,
):
    """As after a kill: nothing else was noted of these messages."""
    log = data_directory.logs()[-1]
    assert int(log.stem) == 39
    log.unlink()
    (data_directory.partition() / "reservation").write_text("{}")
    assert not data_directory.is_served()
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "the messages 39 are lost" in data_directory.text()

    assert data_directory.repair() == CLEAN
    assert data_directory.read() == without(39)
    # The index may have lagged behind.
    assert data_directory.next_offset() >= 40


def test_log_when_the_last_one_is_missing_and_its_index_is_empty_then_named_and_never_reused(
    data_directory,
):
    record_boot_id(data_directory.directory)
    log = data_directory.logs()[-1]
    log.unlink()
    log.with_suffix(".index").write_bytes(b"")
    (data_directory.partition() / "reservation").write_text("{}")
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "all messages from 39 on are lost" in data_directory.text()
    assert log.name in data_directory.text()

    assert data_directory.repair() == CLEAN
    assert data_directory.read() == without(39)
    assert data_directory.next_offset() >= 40


def test_logs_when_all_are_missing_after_a_kill_then_repair_begins_behind_their_indexes(
    data_directory,
):
    for log in data_directory.logs():
        log.unlink()
    (data_directory.partition() / "reservation").write_text("{}")

    assert data_directory.repair() == CLEAN
    assert data_directory.next_offset() >= 40


@pytest.mark.parametrize("kept_bytes", [0, MESSAGE_BYTES])
def test_log_when_zeroed_after_a_kill_then_server_and_repair_give_no_offset_again(
    data_directory, kept_bytes
):
    log = data_directory.logs()[-2]
    for path in (data_directory.logs()[-1], log.with_suffix(".index")):
        path.unlink()
        path.with_suffix(".index").unlink(missing_ok=True)
    (data_directory.partition() / "reservation").write_text("{}")
    content = log.read_bytes()
    log.write_bytes(content[:kept_bytes] + bytes(len(content) - kept_bytes))
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "are not given again" in data_directory.text()
    served = data_directory.directory.with_name("served")
    shutil.copytree(data_directory.directory, served)

    assert data_directory.repair() == CLEAN
    assert data_directory.next_offset() >= 39
    data_directory.directory = served
    assert data_directory.next_offset() >= 39


@pytest.mark.parametrize("place", [1, -1])
def test_log_when_it_belongs_to_another_segment_then_repair_takes_none_of_its_messages(
    data_directory, place
):
    theirs = data_directory.logs(1)[2].read_bytes()
    log = data_directory.logs()[place]
    log.write_bytes(theirs)
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "another segment's log" in data_directory.text()

    assert data_directory.repair() == CLEAN
    first = int(log.stem)
    following = [int(other.stem) for other in data_directory.logs() if int(other.stem) > first]
    last = min(following, default=len(MESSAGES))
    assert data_directory.read() == without(*range(first, last))
    assert data_directory.next_offset() >= len(MESSAGES)
    kept = [path.read_bytes() for path in data_directory.directory.glob("quarantine/**/*.log*")]
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
def test_index_when_wrong_then_repair_makes_it_as_it_was(data_directory, place, damage):
    index = data_directory.logs()[place].with_suffix(".index")
    before = index.read_bytes()
    damage(index)
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "the index" in data_directory.text()

    assert data_directory.repair() == CLEAN
    assert index.read_bytes() == before
    assert data_directory.read() == ALL


def test_segment_when_missing_in_the_middle_then_repair_notes_the_loss_and_serves_the_rest(
    data_directory,
):
    gone, following = data_directory.logs()[1:3]
    gone.unlink()
    gone.with_suffix(".index").unlink()
    lost = range(int(gone.stem), int(following.stem))
    assert not data_directory.is_served()
    assert_check_changes_nothing(data_directory, REPAIRABLE)
    assert "are missing" in data_directory.text()

    assert data_directory.repair() == CLEAN
    assert data_directory.read() == without(*lost)


def test_stored_offsets_when_they_make_no_sense_then_repair_puts_them_right(data_directory):
    consumers = data_directory.partition() / "offsets" / "consumers"
    (consumers / "2").write_bytes(b"short")
    (consumers / "name").write_bytes(bytes(8))
    (consumers / "3").write_bytes((999).to_bytes(8, "little"))
    (data_directory.partition() / "offsets" / "groups" / "77").write_bytes(bytes(8))
    assert_check_changes_nothing(data_directory, REPAIRABLE)

    assert data_directory.repair() == CLEAN
    assert {path.name: path.read_bytes() for path in consumers.iterdir()} == {
        "1": (20).to_bytes(8, "little"),
        "3": (39).to_bytes(8, "little"),
    }
    assert not list((data_directory.partition() / "offsets" / "groups").iterdir())


@pytest.mark.parametrize("name", ["reservation", "incarnation"])
def test_small_file_when_it_cannot_be_understood_then_repair_opens_the_partition_again(
    data_directory, name
):
    (data_directory.partition() / name).write_bytes(b"{nonsense")
    assert not data_directory.is_served()
    assert data_directory.is_served(1)
    assert_check_changes_nothing(data_directory, REPAIRABLE)

    assert data_directory.repair() == CLEAN
    assert data_directory.read() == ALL
    assert data_directory.next_offset() >= 40, "no offset is given twice"


def test_stream_when_the_metadata_do_not_know_it_then_repair_moves_it_away(data_directory):
    foreign = data_directory.directory / "streams/7/topics/0/partitions/0"
    shutil.copytree(data_directory.partition(), foreign)
    before = data_directory.logs()[0].read_bytes()
    assert_check_changes_nothing(data_directory, REPAIRABLE)

    assert data_directory.repair() == CLEAN
    assert not foreign.exists()
    kept = data_directory.directory / "quarantine/0001/streams/7/topics/0/partitions/0"
    assert (kept / data_directory.logs()[0].name).read_bytes() == before


def test_metadata_when_gone_then_nothing_is_guessed(data_directory):
    shutil.rmtree(data_directory.directory / "state")

    assert_check_changes_nothing(data_directory, UNREPAIRABLE)
    assert "restore the directory `state` from a backup" in data_directory.text()
    before = {path.read_bytes() for path in (data_directory.directory / "streams").rglob("*.log")}
    assert data_directory.repair() == CLEAN
    assert not (data_directory.directory / "streams").exists()
    kept = (data_directory.directory / "quarantine").rglob("*.log")
    assert {path.read_bytes() for path in kept} == before


def test_logs_when_two_claim_the_same_offsets_then_a_person_has_to_decide(data_directory):
    log, following = data_directory.logs()[1:3]
    log.write_bytes(log.read_bytes() + following.read_bytes())

    assert_check_changes_nothing(data_directory, UNREPAIRABLE)
    assert "it is unknown which of the two is right" in data_directory.text()
    assert data_directory.repair() == UNREPAIRABLE
    assert following.exists()


def test_directory_when_a_server_uses_it_then_it_is_left_alone(data_directory):
    flip(data_directory.logs()[0], 100)
    before = data_directory.content()
    lock_data_directory(data_directory.directory)

    assert data_directory.check() == UNREPAIRABLE
    assert "is in use by the server with process id" in data_directory.text()
    assert data_directory.repair() == UNREPAIRABLE
    assert data_directory.content() == before


def test_directory_when_it_is_none_then_that_is_said(data_directory):
    data_directory.directory = data_directory.directory / "streams"

    assert data_directory.check() == UNREPAIRABLE
    assert "is not a data directory" in data_directory.text()


@pytest.mark.parametrize("sample", ["plain", "segments"])
def test_directory_when_a_real_server_left_it_then_check_tells_what_would_be_taken_over(
    data_directory, tmp_path, sample
):
    data_directory.directory = tmp_path / "real"
    shutil.copytree(DISK / sample, data_directory.directory)

    assert_check_changes_nothing(data_directory, CLEAN)
    assert "it is the metadata log of Apache Iggy" in data_directory.text()


async def copied(directory, plan):
    """Copy a directory into memory, on a disk that fails as planned."""
    storage = SimulatedStorage(plan)
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir():
            await storage.make_directories(name)
        elif path.name != ".lock":
            await storage.replace(name, path.read_bytes())
    return storage


async def treated(treat, storage):
    """Run check or repair on a directory in memory."""
    config = load_config(StartFlags(), {}, Path("/")).config
    context = FsckContext(
        storage=storage, clock=SimulatedClock(), config=config, print_line=lambda line: None
    )
    return await treat(context)


@pytest.mark.parametrize("verb", ["write", "sync", "truncate", "rename", "replace"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_repair_when_interrupted_then_the_next_one_loses_nothing_more(data_directory, verb, at):
    for log, place in zip(data_directory.logs(), (3, 1), strict=False):
        flip(log, place * MESSAGE_BYTES + HEADER_BYTES + 5)

    async def run():
        plan = FaultPlan(seed=at)
        storage = await copied(data_directory.directory, plan)
        plan.fail(verb, at=at)
        with suppress(StorageError):
            await treated(repair_context, storage)
        plan.heal()
        storage = storage.kill()
        assert await treated(repair_context, storage) == CLEAN
        assert await treated(check_context, storage) == CLEAN
        path = "streams/0/topics/0/partitions/0"
        names = [entry.name for entry in await storage.entries(path)]
        logs = [await storage.read_file(f"{path}/{name}") for name in names if ".log" in name]
        return sum(map(len, logs))

    sizes = sum(log.stat().st_size for log in data_directory.logs())
    assert trio.run(run) == sizes - 2 * MESSAGE_BYTES
