"""The schedule of delays."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.options import Backoff


def middle() -> float:
    """A random number that makes no jitter."""
    return 0.5


def test_delays_when_there_is_no_jitter_then_double_up_to_the_maximum():
    backoff = Backoff(initial=0.1, maximum=1.0, jitter=0)

    delays = list(islice(backoff.delays(middle), 6))

    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(
    attempt=st.integers(0, 100_000),
    initial=st.floats(0, 10),
    maximum=st.floats(0, 100),
    jitter=st.floats(0, 1),
    random=st.floats(0, 1, exclude_max=True),
)
def test_delay_when_anything_is_drawn_then_stays_within_the_jitter(
    attempt, initial, maximum, jitter, random
):
    backoff = Backoff(initial=initial, maximum=maximum, jitter=jitter)

    delay = backoff.delay(attempt, lambda: random)

    plain = min(initial * 2.0 ** min(attempt, 64), maximum)
    assert plain * (1 - jitter) - 1e-9 <= delay <= plain * (1 + jitter) + 1e-9


def test_delay_when_random_differs_then_spreads():
    backoff = Backoff(initial=1.0, maximum=8.0, jitter=0.5)

    assert backoff.delay(0, lambda: 0.0) == 0.5
    assert backoff.delay(0, lambda: 1.0) == 1.5
    assert backoff.delay(9, lambda: 0.0) == 4.0
