"""The budget of a shard, from what the machine or the container says of its memory."""

from __future__ import annotations

import pytest

from iggy_ref_server.shard.settings import (
    BUDGET_BYTES_MIN,
    MEMORY_UNKNOWN_BYTES,
    available_memory_bytes,
    buffer_budget_bytes,
)

GIB = 1 << 30
MEMINFO = "MemTotal:       8388608 kB\nMemFree:  1 kB\n"


def make_system(root, **files):
    """Write the files of a system."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": MEMINFO}, 8 * GIB),
        ({"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": "max\n"}, 8 * GIB),
        ({"proc/meminfo": MEMINFO, "sys/fs/cgroup/memory.max": str(2 * GIB)}, 2 * GIB),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/box/memory.max": str(GIB),
                "proc/meminfo": MEMINFO,
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "0::/system.slice/iggy.service\n",
                "sys/fs/cgroup/system.slice/memory.max": str(GIB),
                "sys/fs/cgroup/system.slice/iggy.service/memory.max": "max\n",
                "proc/meminfo": MEMINFO,
            },
            GIB,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            },
            8 * GIB,
        ),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": str(3 * GIB)}, 3 * GIB),
        ({}, MEMORY_UNKNOWN_BYTES),
    ],
)
def test_memory_when_several_say_how_much_then_the_least_counts(tmp_path, files, expected):
    make_system(tmp_path, **files)
    assert available_memory_bytes(tmp_path) == expected


def test_budget_when_left_to_the_machine_then_is_a_quarter_divided_among_shards(tmp_path):
    make_system(tmp_path, **{"proc/meminfo": MEMINFO})
    assert buffer_budget_bytes(0, 4, tmp_path) == GIB // 2
    assert buffer_budget_bytes(0, 1000, tmp_path) == BUDGET_BYTES_MIN
    assert buffer_budget_bytes(10 * GIB, 2, tmp_path) == 5 * GIB
