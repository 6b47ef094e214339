"""Which old log files have to go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.logs.writer import LogArchive, LogLimits, plan_removal


def limits(file: int = 100, total: int = 400, retention_s: float = 1000) -> LogLimits:
    """Make limits of which a test names only those that matter."""
    return LogLimits(file_size_bytes_max=file, total_size_bytes_max=total, retention_s=retention_s)


def archives(*sizes: int) -> list[LogArchive]:
    """Make files, one each second, the oldest first."""
    return [LogArchive(str(number), size, float(number)) for number, size in enumerate(sizes)]


def test_sweep_when_all_is_within_bounds_then_removes_nothing():
    assert plan_removal(archives(100, 100, 100), 10, limits()) == []


def test_sweep_when_files_are_old_then_removes_them():
    assert plan_removal(archives(1, 1, 1), 11, limits(retention_s=10)) == ["0", "1"]


def test_sweep_when_there_is_too_much_then_the_oldest_go_and_room_is_left_for_the_next():
    assert plan_removal(archives(100, 100, 90, 100, 100), 10, limits()) == ["0", "1"]


def test_sweep_when_there_are_too_many_small_ones_then_the_oldest_go():
    assert plan_removal(archives(1, 1, 1, 1, 1), 10, limits()) == ["0", "1"]


def test_sweep_when_the_total_is_unbounded_then_only_age_counts():
    assert plan_removal(archives(*[100] * 50), 10, limits(total=0)) == []


def test_sweep_when_files_are_unbounded_then_their_total_still_counts():
    assert plan_removal(archives(300, 300, 300), 10, limits(file=0)) == ["0", "1"]


@given(
    st.lists(st.integers(0, 200), max_size=12),
    st.integers(1, 100),
    st.integers(1, 8),
    st.floats(0, 30),
)
def test_sweep_when_done_then_the_rest_and_a_full_file_fit(sizes, file, files, now_s):
    bounds = limits(file=file, total=file * files, retention_s=10)
    before = archives(*sizes)

    removed = plan_removal(before, now_s, bounds)

    kept = [archive for archive in before if archive.name not in removed]
    assert sum(archive.size_bytes for archive in kept) + file <= file * files or not kept
    assert len(kept) + 1 <= files
    assert all(archive.modified_at_s > now_s - 10 for archive in kept)
    assert kept == before[len(removed) :]
