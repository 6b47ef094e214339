"""Requests that wait, for tests: values that keep the rules of their fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from iggy_protocol.commands.deferred import (
    FetchMessages,
    FetchTarget,
    PollDeferred,
    WaitForMessages,
    WaitTarget,
)
from iggy_protocol.model.identifier import (
    ConsumerIdentity,
    ConsumerKind,
    PollingKind,
    PollingStrategy,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
IDENTIFIERS = U32 | st.text(min_size=1, max_size=20)
CONSUMERS = st.builds(
    ConsumerIdentity, st.sampled_from([ConsumerKind.SINGLE, ConsumerKind.GROUP]), IDENTIFIERS
)
STARTS = st.builds(PollingStrategy, st.sampled_from([PollingKind.OFFSET, PollingKind.NEXT]), U64)
# Wait and timeout: those at the edges of the rules among them.
TIMES_US = st.sampled_from([(600_000_000, 630_000_000), (5, 1_000_005)]) | st.integers(
    0, 600_000_000
).map(lambda wait_us: (wait_us, wait_us + 1_000_000))
# The least number of messages and the largest.
COUNTS = st.sampled_from([(1, 1), (1, 2**32 - 1), (7, 7)])


def _unique(targets: list[Any]) -> tuple[Any, ...]:
    return tuple({target.partition_id: target for target in targets}.values())


def _targets(target: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(target, min_size=1, max_size=4).map(_unique)


def _build(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build a command; ``times`` and ``counts`` are two fields each."""

    def make(values: dict[str, Any]) -> Any:
        wait_us, timeout_us = values.pop("times")
        values |= {"wait_us": wait_us, "timeout_us": timeout_us}
        if "counts" in values:
            values["messages_min"], values["count"] = values.pop("counts")
        return kind(**values)

    shared = {"consumer": CONSUMERS, "stream": IDENTIFIERS, "topic": IDENTIFIERS, "times": TIMES_US}
    return st.fixed_dictionaries(shared | fields).map(make)


RULED: dict[type[Any], st.SearchStrategy[Any]] = {
    PollDeferred: _build(
        PollDeferred,
        counts=COUNTS,
        strategy=st.builds(PollingStrategy, st.sampled_from(PollingKind), U64),
        bytes_max=st.integers(344, 2**32 - 1),
        partition_id=st.none() | U32,
        auto_commit=st.booleans(),
    ),
    WaitForMessages: _build(WaitForMessages, targets=_targets(st.builds(WaitTarget, U32, STARTS))),
    FetchMessages: _build(
        FetchMessages,
        counts=COUNTS,
        bytes_max=U32,
        auto_commit=st.booleans(),
        targets=_targets(st.builds(FetchTarget, U32, STARTS, U32, U64, U64)),
    ),
}
"""The commands with rules that span several fields."""
