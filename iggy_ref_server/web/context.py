"""The context of the REST API: what its operations work with."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from iggy_protocol import Command, CommandCode, GetConsumerGroup, StatusCode, validate
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.config.schema import HttpListenerConfig
from iggy_ref_server.dispatch.dispatcher import check_access, run_handler
from iggy_ref_server.dispatch.table import COMMAND_TABLE, Login
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.jwks import KeySets
from iggy_ref_server.identity.jwt import AccessTokens
from iggy_ref_server.identity.revocations import Revocations
from iggy_ref_server.metadata.views import view_totals
from iggy_ref_server.web.connection import BODY_COPIES
from iggy_ref_server.web.requests import BodyLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.session import ClientSession
    from iggy_ref_server.storage.interface import Storage


MICROSECONDS: Final = 1_000_000
# In JSON a message takes at least a third more, and a response is in memory as a whole.
POLL_BYTES_MAX: Final = 1 << 24
# Responses above this size wait for each other, so that slow readers cannot fill memory with them.
LARGE_RESPONSE_BYTES: Final = 1 << 20
LARGE_RESPONSES_MAX: Final = 16
# The copies of a poll's messages in memory: as read, joined, and as JSON.
COPIES_OF_POLL: Final = 3
UNBOUNDED_BYTES: Final = 1 << 63


@dataclass(slots=True, kw_only=True)
class WebContext:
    """What operations of the REST API work with.

    Attributes:
        config: the section ``[http]``.
        dispatcher: executes commands.
        tokens: issues and reads access tokens.
        metrics: the Prometheus metrics.
        bodies: the limits of request bodies.
        large_responses: limits the large responses in progress.
        budget: the memory budget of the shard.
    """

    config: HttpListenerConfig
    dispatcher: WebDispatcher
    tokens: AccessTokens
    metrics: Metrics
    bodies: BodyLimits
    large_responses: trio.Semaphore
    budget: BufferBudget
    _under_way: set[trio.CancelScope] = field(default_factory=set)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Shield a command from the cancellation when its client disconnects."""
        with trio.CancelScope(shield=True) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)

    def cancel_commands(self) -> None:
        """Remove the shields of running commands, because the server stops."""
        for scope in self._under_way:
            scope.shield = False


async def open_context(
    config: HttpListenerConfig,
    *,
    handler_context: HandlerContext,
    storage: Storage,
    budget: BufferBudget | None = None,
) -> WebContext:
    """Make the context.

    Args:
        config: the section ``[http]``.
        handler_context: what handlers work with, on shard 0.
        storage: the data directory.
        budget: the memory budget of the shard; None is no limit.

    Raises:
        ConfigError: the JWT configuration is unusable.
        StorageError: the list of revoked tokens cannot be read.
    """
    now_s = handler_context.clock.now_us() // MICROSECONDS
    tokens = AccessTokens(
        config.jwt,
        clock=handler_context.clock,
        random_bytes=handler_context.random_bytes,
        revocations=await Revocations.open(storage, now_s),
        key_sets=KeySets(),
    )
    handler_context = _limit_polls(handler_context)
    budget = budget or BufferBudget(UNBOUNDED_BYTES)
    return WebContext(
        config=config,
        dispatcher=WebDispatcher(handler_context),
        tokens=tokens,
        metrics=Metrics(handler_context),
        bodies=BodyLimits.of(
            # What could never fit is refused, not made to wait.
            min(config.max_request_size_bytes, budget.limit_bytes // 2 // BODY_COPIES),
            stall_timeout_s=handler_context.config.limits.stall_timeout_us / MICROSECONDS,
        ),
        large_responses=trio.Semaphore(LARGE_RESPONSES_MAX),
        budget=budget,
    )


def _limit_polls(handler_context: HandlerContext) -> HandlerContext:
    """Lower the poll limit for HTTP, where a reply is in memory in several copies."""
    limits = handler_context.config.limits
    smaller = msgspec.structs.replace(
        limits, max_poll_bytes=min(limits.max_poll_bytes, POLL_BYTES_MAX)
    )
    config = msgspec.structs.replace(handler_context.config, limits=smaller)
    bytes_max = handler_context.poll_bytes_max
    return replace(
        handler_context,
        config=config,
        poll_bytes_max=lambda most: bytes_max(most * COPIES_OF_POLL) // COPIES_OF_POLL,
    )


# Dispatches the commands of HTTP requests to the same handlers as those of other transports.
#
# The checks have the order of Apache Iggy's REST API: field rules come before permissions. Some
# lists are stricter than over the binary transports: their stream or topic must exist.


# Apache Iggy does not validate the fields of these commands and of logins over HTTP; the handlers
# do.
UNCHECKED: Final = frozenset({CommandCode.GET_CLIENT})
# These commands reply "not found" if their stream or topic does not exist.
UNDER_A_STREAM: Final = frozenset({CommandCode.GET_TOPICS})
UNDER_A_TOPIC: Final = frozenset(
    {
        CommandCode.GET_CONSUMER_GROUPS,
        CommandCode.GET_CONSUMER_GROUP,
        CommandCode.GET_CONSUMER_OFFSET,
    }
)


class WebDispatcher:
    """Dispatches commands on shard 0.

    Args:
        handler_context: what handlers work with.
    """

    def __init__(self, handler_context: HandlerContext) -> None:
        assert handler_context.shard_id == 0, "all commands are served without asking another shard"
        self.handler_context = handler_context

    async def perform(self, session: ClientSession, command: Command[Any]) -> Any:
        """Execute a command.

        Raises:
            ServerFault: it is refused.
            RuleViolation: a field breaks a rule.
            ProtocolError: a batch is malformed.
            StorageError: a file operation failed.
        """
        self.check(session, command)
        row, handler_context = COMMAND_TABLE[command.CODE], self.handler_context
        reply = await run_handler(handler_context, row, session, command)
        if reply is None and isinstance(command, GetConsumerGroup):
            status = StatusCode.CONSUMER_GROUP_ID_NOT_FOUND
            raise ServerFault(status, f"there is no consumer group {command.group!r}")
        return reply

    def check(self, session: ClientSession, command: Command[Any]) -> None:
        """Check what does not depend on the handler of a command; as ``perform`` does."""
        row = COMMAND_TABLE[command.CODE]
        if row.login is not Login.LOGS_IN and row.code not in UNCHECKED:
            validate(command, session.dialect)
        check_access(self.handler_context, row, session)
        self._require_parents(command)

    def _require_parents(self, command: Any) -> None:
        metadata = self.handler_context.metadata()
        if command.CODE in UNDER_A_STREAM:
            metadata.require_stream(command.stream)
        elif command.CODE in UNDER_A_TOPIC:
            metadata.require_topic(command.stream, command.topic)


# The Prometheus metrics of all shards.
#
# The names are those of Apache Iggy, and a few more. Values are counted when they are requested, so
# they cannot drift as running counters do.

# The page needs no login, so all shards are queried at most once in this time.
FRESH_S: Final = 1.0


class Metrics:
    """Counts HTTP requests, and gathers the other metrics.

    Attributes:
        requests_count: the HTTP requests so far.
    """

    def __init__(self, handler_context: HandlerContext) -> None:
        self._handler_context = handler_context
        self.requests_count = 0
        self._gauges: dict[str, int] = {}
        self._gathered_at = float("-inf")
        self._gathering = trio.Lock()

    async def text(self) -> str:
        """Write the page in the OpenMetrics format.

        Raises:
            ServerFault: another shard does not reply.
        """
        async with self._gathering:
            if trio.current_time() >= self._gathered_at + FRESH_S:
                self._gauges = await self._gather()
                self._gathered_at = trio.current_time()
        lines = [*_metric("http_requests", "counter", "http_requests_total", self.requests_count)]
        for name, value in self._gauges.items():
            lines += _metric(name, "gauge", name, value)
        return "\n".join([*lines, "# EOF", ""])

    async def _gather(self) -> dict[str, int]:
        handler_context = self._handler_context
        statistics = await handler_context.cluster_view.statistics()
        sessions = await handler_context.cluster_view.sessions()
        metadata = handler_context.metadata()
        totals = view_totals(metadata, statistics.of)
        return {
            "streams": totals.streams_count,
            "topics": totals.topics_count,
            "partitions": totals.partitions_count,
            "segments": totals.segments_count,
            "messages": totals.messages_count,
            "users": len(metadata.users),
            "clients": len(sessions),
            "consumer_groups": totals.consumer_groups_count,
            "messages_size_bytes": totals.messages_size_bytes,
        }


def _metric(name: str, kind: str, sample: str, value: int) -> tuple[str, str, str]:
    return f"# HELP {name} total count of {name}.", f"# TYPE {name} {kind}", f"{sample} {value}"
