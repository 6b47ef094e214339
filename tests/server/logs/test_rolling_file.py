"""The log file and those put aside: by size, by hour, by several processes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from iggy_ref_server.logs import LogLimits, RollingFile

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600.0


class Clock:
    """A time that a test moves."""

    def __init__(self, now_s: float = 1000 * HOUR_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(directory: Path, clock: Clock, *, file: int = 100, total: int = 400) -> RollingFile:
    """Open a log whose files were last written when the clock says."""
    if (directory / "iggy-server.log").exists():
        os.utime(directory / "iggy-server.log", (clock.now_s, clock.now_s))
    limits = LogLimits(file_size_bytes_max=file, total_size_bytes_max=total, retention_s=1e12)
    return RollingFile(directory, limits, now_s=clock)


def sizes(directory: Path) -> list[int]:
    """List the sizes of all log files, the current one last; their names are all valid ones."""
    names = sorted(path.name for path in directory.iterdir())
    assert all(re.fullmatch(r"iggy-server\.log(\.[0-9]{20})?", name) for name in names)
    return [(directory / name).stat().st_size for name in [*names[1:], *names[:1]]]


def test_file_when_lines_fit_then_there_is_one(tmp_path, clock):
    log = make(tmp_path / "logs", clock)
    log.append(b"x" * 49 + b"\n")
    clock.now_s += 1
    log.append(b"x" * 49 + b"\n")

    assert sizes(tmp_path / "logs") == [100]
    log.close()


def test_file_when_it_would_grow_too_large_then_is_put_aside(tmp_path, clock):
    log = make(tmp_path, clock)
    for _ in range(5):
        log.append(b"x" * 39 + b"\n")

    assert sizes(tmp_path) == [80, 80, 40]
    log.close()


def test_files_when_there_are_too_many_then_the_total_is_kept(tmp_path, clock):
    log = make(tmp_path, clock)
    for number in range(50):
        log.append(b"%049d\n" % number)
        assert sum(sizes(tmp_path)) <= 400
        assert len(sizes(tmp_path)) <= 4

    newest = (tmp_path / "iggy-server.log").read_bytes().split()
    assert newest[-1] == b"%049d" % 49
    log.close()


def test_file_when_the_hour_changes_then_is_put_aside(tmp_path, clock):
    log = make(tmp_path, clock, file=10_000, total=0)
    log.append(b"old\n")
    log.append(b"new\n")
    clock.now_s += HOUR_S
    log.append(b"newer\n")

    assert sizes(tmp_path)[-1] == len(b"newer\n")
    log.close()


def test_file_when_it_is_from_an_earlier_hour_then_is_put_aside_after_a_restart(tmp_path, clock):
    (tmp_path / "iggy-server.log").write_text("yesterday\n")
    log = make(tmp_path, clock, total=0)
    clock.now_s += 24 * HOUR_S
    log.append(b"today\n")

    assert sizes(tmp_path) == [len(b"yesterday\n"), len(b"today\n")]
    log.close()


def test_file_when_its_size_is_unbounded_then_stays_alone(tmp_path, clock):
    log = make(tmp_path, clock, file=0)
    for _ in range(50):
        clock.now_s += HOUR_S
        log.append(b"x" * 99 + b"\n")

    assert sizes(tmp_path) == [5000]
    log.close()


def test_archives_when_the_total_is_unbounded_then_all_stay(tmp_path, clock):
    log = make(tmp_path, clock, total=0)
    for _ in range(20):
        log.append(b"x" * 99 + b"\n")

    assert sizes(tmp_path) == [100] * 20
    log.close()


def test_file_when_two_processes_write_then_no_line_is_lost(tmp_path, clock):
    logs = [make(tmp_path, clock, file=1000, total=0) for _ in range(2)]
    for number in range(200):
        logs[number % 2].append(b"%019d\n" % number)

    lines = [line for path in tmp_path.iterdir() for line in path.read_bytes().split()]
    assert sorted(map(int, lines)) == list(range(200))
    assert max(sizes(tmp_path)) <= 1000
    for log in logs:
        log.close()


def test_file_when_removed_then_a_new_one_is_made(tmp_path, clock):
    log = make(tmp_path, clock)
    log.append(b"one\n")
    (tmp_path / "iggy-server.log").unlink()
    log.append(b"two\n")

    assert (tmp_path / "iggy-server.log").read_bytes() == b"two\n"
    log.close()


def test_sweep_when_called_then_touches_only_archives(tmp_path, clock):
    for name in ("iggy-server.log.1", "iggy-server.log.bak", "other.log.1"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (0, 0))
    limits = LogLimits(file_size_bytes_max=100, total_size_bytes_max=400, retention_s=10)
    log = RollingFile(tmp_path, limits, now_s=clock)

    assert log.remove_old() == ["iggy-server.log.1"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "iggy-server.log",
        "iggy-server.log.bak",
        "other.log.1",
    }
    log.close()


def test_line_when_the_disk_is_full_then_is_counted_and_nothing_is_raised(tmp_path, clock):
    (tmp_path / "iggy-server.log").symlink_to("/dev/full")
    limits = LogLimits(file_size_bytes_max=100, total_size_bytes_max=400, retention_s=10)
    log = RollingFile(tmp_path, limits, now_s=clock)

    log.append(b"x\n")

    assert log.lines_lost == 1
    log.close()
