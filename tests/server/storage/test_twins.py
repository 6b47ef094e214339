"""Memory and real files side by side: the same calls, the same answers, the same refusals."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iggy_ref_server.storage.files import WritebackLimit
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from iggy_ref_server.storage.threads import ThreadStorage

PATHS = st.sampled_from(["a", "b", "c", "a/a", "a/b", "b/a", "a/b/c", "../a", ""])
CONTENTS = st.binary(max_size=6)
CALLS = st.one_of(
    st.tuples(st.just("make_directories"), PATHS),
    st.tuples(st.just("make_directories"), PATHS),
    st.tuples(st.just("replace"), PATHS, CONTENTS),
    st.tuples(st.just("put"), PATHS, CONTENTS, st.integers(0, 9)),
    st.tuples(st.just("truncate"), PATHS, st.integers(-1, 9)),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("remove_tree"), PATHS),
    st.tuples(st.just("sync_directory"), PATHS),
    st.tuples(st.just("read_file"), PATHS),
    st.tuples(st.just("open"), PATHS),
)


async def call(storage, verb, path, *arguments):
    """Call a verb; return its answer, or how it was refused."""
    try:
        match verb:
            case "put":
                file = await storage.open(path, create=True)
                return file.write_nowait([arguments[0]], arguments[1]), file.size()
            case "truncate":
                return await (await storage.open(path)).truncate(*arguments)
            case "open":
                file = await storage.open(path)
                return file.path, await file.read(100, 1)
            case _:
                return await getattr(storage, verb)(path, *arguments)
    except StorageError as error:
        return error.action, error.path, error.errno


async def listing(storage, path=""):
    """List all names with all contents."""
    found = []
    for entry in await storage.entries(path):
        below = f"{path}/{entry.name}".lstrip("/")
        inside = await (listing if entry.is_directory else read_file)(storage, below)
        found.append((entry, inside))
    return found


async def read_file(storage, path):
    """Read a file of a listing."""
    return await storage.read_file(path)


@pytest.mark.trio
@settings(max_examples=settings().max_examples // 4)  # each is many visits to a disk
@given(st.lists(CALLS, min_size=5, max_size=15))
async def test_twins_when_given_the_same_calls_then_agree(calls):
    with tempfile.TemporaryDirectory() as root:
        real = ThreadStorage(root, writeback_limit=WritebackLimit(clock=lambda: 0.0))
        memory = SimulatedStorage()
        for verb, path, *arguments in calls:
            expected = await call(real, verb, path, *arguments)

            assert await call(memory, verb, path, *arguments) == expected, (verb, path, arguments)
        assert await listing(memory) == await listing(real)
