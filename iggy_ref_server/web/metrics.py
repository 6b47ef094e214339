"""The Prometheus metrics of all shards.

The names are those of Apache Iggy, and a few more. Values are counted when they are requested, so
they cannot drift as running counters do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from iggy_ref_server.metadata.views import view_totals

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.context import HandlerContext


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
