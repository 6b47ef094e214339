"""Which shard runs on which core, on machines of every shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.shard.cpu_topology import (
    CpuCore,
    CpuTopology,
    ShardPlacement,
    TopologyError,
    place_shards,
    read_cpu_topology,
)

PLAIN = CpuTopology(tuple(CpuCore(number) for number in range(4)))
CONTAINER = CpuTopology(tuple(CpuCore(number) for number in (4, 5, 8, 9)))
# Two nodes of two physical cores with two threads each, numbered as Linux does.
THREADED = CpuTopology(tuple(CpuCore(number, (number % 4) // 2, number % 4) for number in range(8)))
UNEVEN = CpuTopology((CpuCore(0), CpuCore(1), CpuCore(2, 1)))


def cores(cpu_allocation: str, topology: CpuTopology) -> list[int]:
    """List the cores that the shards get."""
    return [placement.core for placement in place_shards(cpu_allocation, topology)]


PLACED = [
    ("all", PLAIN, [0, 1, 2, 3]),
    ("all", CONTAINER, [4, 5, 8, 9]),
    ("all", CpuTopology(PLAIN.cores, quota_cores=2), [0, 1]),
    ("3", PLAIN, [0, 1, 2]),
    ("3", CONTAINER, [4, 5, 8]),
    ("3", CpuTopology(PLAIN.cores, quota_cores=2), [0, 1, 2]),
    ("1..3", PLAIN, [1, 2]),
    ("4..6", CONTAINER, [4, 5]),
    ("0..4", CONTAINER, [4, 5, 8, 9]),
    ("numa:auto", PLAIN, [0, 1, 2, 3]),
    ("numa:auto", THREADED, [0, 1, 2, 3]),
    ("numa:auto", CpuTopology(THREADED.cores, quota_cores=2), [0, 1]),
    ("numa:auto", UNEVEN, [0, 1, 2]),
    ("numa:nodes=1", THREADED, [2, 3]),
    ("numa:nodes=1,0;cores=1", THREADED, [2, 0]),
    ("numa:nodes=0;cores=3;no_ht=false", THREADED, [0, 1, 4]),
    ("numa:cores=0;no_ht=false", THREADED, [0, 1, 4, 5, 2, 3, 6, 7]),
    # Only the second thread of each core may be used: it stands for the core.
    ("numa:auto", CpuTopology(THREADED.cores[4:]), [4, 5, 6, 7]),
]


@pytest.mark.parametrize(("cpu_allocation", "topology", "expected"), PLACED)
def test_shards_when_placed_then_get_these_cores(cpu_allocation, topology, expected):
    assert cores(cpu_allocation, topology) == expected


def test_shards_when_placed_then_numbered_without_gaps():
    assert place_shards("numa:nodes=1", THREADED) == [
        ShardPlacement(shard_id=0, core=2, node=1),
        ShardPlacement(shard_id=1, core=3, node=1),
    ]


REFUSED = [
    ("5", PLAIN, r"5 shards need 5 cores, but only 4 are usable \(cores 0, 1, 2, 3\)"),
    ("2..5", PLAIN, "the cores 2..5 are not all usable; this process can use cores 0, 1, 2, 3"),
    ("3..6", CONTAINER, "the cores 3..6 are not all usable"),
    ("numa:nodes=2", THREADED, "there is no NUMA node 2; this process can use nodes 0, 1"),
    (
        "numa:nodes=0;cores=3",
        THREADED,
        "NUMA node 0 does not have 3 physical cores; this process can use 2",
    ),
    (
        "numa:nodes=0;cores=5;no_ht=false",
        THREADED,
        "NUMA node 0 does not have 5 cores; this process can use 4",
    ),
    ("numa:cores=2", UNEVEN, "NUMA node 1 does not have 2 physical cores; this process can use 1"),
]


@pytest.mark.parametrize(("cpu_allocation", "topology", "message"), REFUSED)
def test_shards_when_more_is_asked_than_there_is_then_refused(cpu_allocation, topology, message):
    with pytest.raises(TopologyError, match=message):
        place_shards(cpu_allocation, topology)


@given(
    st.lists(st.integers(0, 63), min_size=1, unique=True),
    st.sampled_from(["all", "numa:auto", "1", "numa:no_ht=false"]),
)
def test_shards_when_placed_anywhere_then_no_two_share_a_core(numbers, cpu_allocation):
    topology = CpuTopology(
        tuple(CpuCore(number, number % 3, number // 2) for number in sorted(numbers))
    )

    taken = cores(cpu_allocation, topology)

    assert taken
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(numbers)


def test_machine_when_read_then_has_nodes_threads_and_quota(tmp_path):
    for node, numbers in ((0, "0-1,4-5\n"), (1, "2,3,6,7\n")):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(numbers)
    for number in range(8):
        topology = tmp_path / f"devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    (tmp_path / "fs/cgroup").mkdir(parents=True)
    (tmp_path / "fs/cgroup/cpu.max").write_text("350000 100000\n")

    assert read_cpu_topology(tmp_path, range(8)) == CpuTopology(THREADED.cores, quota_cores=3)
    assert read_cpu_topology(tmp_path, {7, 2}) == CpuTopology(
        (THREADED.cores[2], THREADED.cores[7]), 3
    )


@pytest.mark.parametrize("quota", [None, "max 100000\n", "rubbish"])
def test_machine_when_the_kernel_tells_nothing_then_every_core_stands_for_itself(tmp_path, quota):
    if quota:
        (tmp_path / "fs/cgroup").mkdir(parents=True)
        (tmp_path / "fs/cgroup/cpu.max").write_text(quota)

    assert read_cpu_topology(tmp_path, [1, 0]) == CpuTopology((CpuCore(0), CpuCore(1)))


def test_machine_when_it_is_this_one_then_every_shard_finds_a_core():
    assert cores("all", read_cpu_topology())
