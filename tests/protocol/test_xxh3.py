"""Our XXH3-64 against the xxhash package, at every length that matters and on every level."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from iggy_protocol import batch_python
from tests.protocol.batch_strategies import exact, load_twin

LENGTHS_MAX = 4096
ALIGNMENTS = (0, 1, 3, 8, 15, 31, 63)
LEVELS = ("scalar", "sse2", "avx2", "avx512")


@pytest.fixture(scope="module", params=LEVELS)
def extension(request):
    module = load_twin("c")
    available = module.available_levels()
    if request.param not in available:
        pytest.skip(f"this processor has no {request.param}")
    module._use(request.param)
    yield module
    module._use(available[-1])


@pytest.fixture(scope="module")
def noise():
    return random.Random(20).randbytes(LENGTHS_MAX + max(ALIGNMENTS))


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_checksum_when_of_any_length_then_equals_the_package(extension, noise, alignment):
    window = memoryview(noise)[alignment:]

    different = [
        length
        for length in range(LENGTHS_MAX + 1)
        if extension.checksum(window[:length]) != xxh3_64_intdigest(window[:length])
    ]

    assert different == []


def test_checksum_when_memory_ends_with_the_input_then_reads_no_further(extension, noise):
    different = [
        length
        for length in range(1200)
        if extension.checksum(exact(noise[:length])) != xxh3_64_intdigest(noise[:length])
    ]

    assert different == []


@pytest.mark.parametrize("seed", [1, 2**63 + 12345, 2**64 - 1])
def test_checksum_with_a_seed_when_of_any_length_then_equals_the_package(extension, noise, seed):
    """Through the ids of contents, whose halves are two seeded hashes."""
    lengths = range(1200)
    columns = ((1, 0, None, length, None, exact(noise[:length])) for length in lengths)

    made = [extension.ContentIds(seed, seed, 1).assign(one, None, None, 0) for one in columns]

    assert [int.from_bytes(one[:8], "little") for one in made] == [
        xxh3_64_intdigest(noise[:length], seed=seed) for length in lengths
    ]
    assert all(one[:8] == one[8:] for one in made)


@pytest.mark.parametrize(
    "size", [65_536, 1_000_003, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20]
)
def test_checksum_when_large_then_equals_the_package(extension, size):
    data = random.Random(size).randbytes(size)

    assert extension.checksum(data) == xxh3_64_intdigest(data)


@given(data=st.binary(max_size=3000), start=st.integers(0, 64))
def test_checksum_when_of_any_bytes_then_equals_the_package(extension, data, start):
    window = memoryview(data)[start:]

    assert extension.checksum(window) == batch_python.checksum(window) == xxh3_64_intdigest(window)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x2D06800538D394C2), (b"hello", 0x9555E8555C62DCFD)],
)
def test_checksum_when_of_a_known_text_then_has_the_known_value(extension, data, expected):
    assert extension.checksum(data) == batch_python.checksum(data) == expected


def test_levels_when_listed_then_rise_from_the_portable_one_without_a_gap():
    levels = load_twin("c").available_levels()

    assert levels
    assert levels == LEVELS[: len(levels)]


@pytest.mark.parametrize(
    ("level", "error"), [("avx9", ValueError), ("", ValueError), (3, TypeError)]
)
def test_use_when_level_is_unknown_then_is_refused(level, error):
    with pytest.raises(error):
        load_twin("c")._use(level)
