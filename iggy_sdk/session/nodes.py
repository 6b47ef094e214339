"""Connections to further nodes of a cluster, bound to the session of the client.

From 0.10 on a client registers once, at the leader. Where a partition has its primary on another
node, the client binds the same session there, and sends what concerns the partition on that
connection. It is opened when the first such request needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from iggy_sdk.errors import ClientClosedError, DisconnectedError
from iggy_sdk.session.vsr_session import VsrSession

if TYPE_CHECKING:
    from iggy_protocol import VsrClientSession
    from iggy_sdk.connection_string import Endpoint
    from iggy_sdk.session.opening import SessionOpener


class _BoundSession(NamedTuple):
    """A connection, and the id of the client's session that it is bound to."""

    session: VsrSession
    client: bytes


class NodeSessions:
    """The connections of one client to nodes other than the one that it has registered at."""

    def __init__(self, opener: SessionOpener) -> None:
        self._opener = opener
        self._bound: dict[Endpoint, _BoundSession] = {}
        self._opening = anyio.Lock()
        self._ends_count = 0

    async def session_at(self, endpoint: Endpoint, identity: VsrClientSession) -> VsrSession:
        """Return an open connection to a node; bind another one if there is none.

        Raises:
            ClientClosedError: the login ended meanwhile.
            IggyError: the node cannot be reached, or does not know the session.
        """
        found = self._find(endpoint, identity)
        if found is not None:
            return found
        ends_count = self._ends_count
        async with self._opening:
            found = self._find(endpoint, identity)
            if found is not None:
                return found
            session = await self._opener.bind(endpoint, identity)
            if ends_count != self._ends_count:
                session.abort(DisconnectedError("the login ended meanwhile"))
                raise ClientClosedError("the login ended meanwhile")
            self._bound[endpoint] = _BoundSession(session, identity.client)
            return session

    def _find(self, endpoint: Endpoint, identity: VsrClientSession) -> VsrSession | None:
        bound = self._bound.get(endpoint)
        if bound is None:
            return None
        if not bound.session.is_closed and bound.client == identity.client:
            return bound.session
        del self._bound[endpoint]
        bound.session.abort(DisconnectedError("the session of the client is another one"))
        return None

    def abort(self) -> None:
        """Close all connections at once, because the session ends."""
        self._ends_count += 1
        bound, self._bound = self._bound, {}
        for one in bound.values():
            one.session.abort(DisconnectedError("the session of the client has ended"))
