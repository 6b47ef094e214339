"""Everything that the REST face works with.

Owns the list of these things.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from iggy_ref_server.config.schema_doors import Http
from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.identity.jwks import KeySets
from iggy_ref_server.identity.jwt import AccessTokens
from iggy_ref_server.identity.revocations import Revocations
from iggy_ref_server.web.buffers import BODY_COPIES
from iggy_ref_server.web.desk import WebDesk
from iggy_ref_server.web.metrics import Metrics
from iggy_ref_server.web.requests import BodyLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.data_plane.plane import Appends
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.storage.interface import Storage

__all__ = ["WebRoom", "open_room"]

MICROSECONDS: Final = 1_000_000
# As JSON a message takes at least a third more, and an answer is in memory as a whole.
POLL_BYTES_MAX: Final = 1 << 24
# Answers above this size wait for each other, so that slow readers cannot fill memory with them.
LARGE_ANSWER_BYTES: Final = 1 << 20
LARGE_ANSWERS_MAX: Final = 16
# What an answer to a poll costs for each byte of its messages: as they were read, as one piece, and
# as JSON on its way.
COPIES: Final = 3
UNBOUNDED_BYTES: Final = 1 << 63


@dataclass(slots=True, kw_only=True)
class WebRoom:
    """What requests are served with.

    Attributes:
        config: the section ``[http]``.
        desk: serves commands.
        tokens: makes and reads access tokens.
        metrics: the page for Prometheus.
        bodies: the bounds of request bodies.
        large_answers: lets a few large answers out at a time.
        budget: what all connections of the shard may hold together.
    """

    config: Http
    desk: WebDesk
    tokens: AccessTokens
    metrics: Metrics
    bodies: BodyLimits
    large_answers: trio.Semaphore
    budget: BufferBudget
    _under_way: set[trio.CancelScope] = field(default_factory=set)

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Carry out a command to its end, although its client may leave meanwhile."""
        with trio.CancelScope(shield=True) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)

    def give_up(self) -> None:
        """Have commands under way end with their connections, because the server stops."""
        for scope in self._under_way:
            scope.shield = False


async def open_room(
    config: Http,
    *,
    office: Office,
    appends: Appends,
    storage: Storage,
    budget: BufferBudget | None = None,
) -> WebRoom:
    """Furnish the room.

    Args:
        config: the section ``[http]``.
        office: what handlers work with; that of shard 0.
        appends: where batches go.
        storage: the data directory.
        budget: what all connections of the shard may hold together; None is no bound.

    Raises:
        ConfigError: the configuration asks for what cannot be.
        StorageError: the list of revoked tokens cannot be read.
    """
    now_s = office.clock.now_us() // MICROSECONDS
    tokens = AccessTokens(
        config.jwt,
        clock=office.clock,
        random_bytes=office.random_bytes,
        revocations=await Revocations.open(storage, now_s),
        key_sets=KeySets(),
    )
    office = _with_smaller_polls(office)
    budget = budget or BufferBudget(UNBOUNDED_BYTES)
    return WebRoom(
        config=config,
        desk=WebDesk(office, appends),
        tokens=tokens,
        metrics=Metrics(office),
        bodies=BodyLimits.of(
            # What could never fit is refused, not made to wait.
            min(config.max_request_size_bytes, budget.limit_bytes // 2 // BODY_COPIES),
            stalled_s=office.config.limits.stall_timeout_us / MICROSECONDS,
        ),
        large_answers=trio.Semaphore(LARGE_ANSWERS_MAX),
        budget=budget,
    )


def _with_smaller_polls(office: Office) -> Office:
    """Bound what one poll brings, which counts as any other bound of the configuration."""
    limits = office.config.limits
    smaller = msgspec.structs.replace(
        limits, max_poll_bytes=min(limits.max_poll_bytes, POLL_BYTES_MAX)
    )
    config = msgspec.structs.replace(office.config, limits=smaller)
    bytes_max = office.poll_bytes_max
    return replace(
        office, config=config, poll_bytes_max=lambda most: bytes_max(most * COPIES) // COPIES
    )
