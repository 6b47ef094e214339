"""The context of the REST API: what its operations work with."""

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
# In JSON a message takes at least a third more, and a response is in memory as a whole.
POLL_BYTES_MAX: Final = 1 << 24
# Responses above this size wait for each other, so that slow readers cannot fill memory with them.
LARGE_ANSWER_BYTES: Final = 1 << 20
LARGE_ANSWERS_MAX: Final = 16
# The copies of a poll's messages in memory: as read, joined, and as JSON.
COPIES: Final = 3
UNBOUNDED_BYTES: Final = 1 << 63


@dataclass(slots=True, kw_only=True)
class WebRoom:
    """What operations of the REST API work with.

    Attributes:
        config: the section ``[http]``.
        desk: executes commands.
        tokens: issues and reads access tokens.
        metrics: the Prometheus metrics.
        bodies: the limits of request bodies.
        large_answers: limits the large responses in progress.
        budget: the memory budget of the shard.
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
        """Shield a command from the cancellation when its client disconnects."""
        with trio.CancelScope(shield=True) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)

    def give_up(self) -> None:
        """Remove the shields of running commands, because the server stops."""
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
    """Make the context.

    Args:
        config: the section ``[http]``.
        office: what handlers work with, on shard 0.
        appends: takes batches.
        storage: the data directory.
        budget: the memory budget of the shard; None is no limit.

    Raises:
        ConfigError: the JWT configuration is unusable.
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
    """Lower the poll limit for HTTP, where a reply is in memory in several copies."""
    limits = office.config.limits
    smaller = msgspec.structs.replace(
        limits, max_poll_bytes=min(limits.max_poll_bytes, POLL_BYTES_MAX)
    )
    config = msgspec.structs.replace(office.config, limits=smaller)
    bytes_max = office.poll_bytes_max
    return replace(
        office, config=config, poll_bytes_max=lambda most: bytes_max(most * COPIES) // COPIES
    )
