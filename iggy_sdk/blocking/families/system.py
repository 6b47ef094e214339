"""Blocking: Commands for the server as a whole: ping, statistics, snapshot, cluster, clients.

Made from iggy_sdk.families.system by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import SnapshotCompression, SnapshotType
from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import ClientDetails, ClientInfo, ClusterMetadata, Snapshot, Stats
    from iggy_sdk.durations import Seconds

__all__ = ["SystemFamily"]


class SystemFamily(ClientCalls):
    """Commands for the server as a whole."""

    def ping(self, *, timeout: Seconds | None = None) -> None:
        """Ask for a sign of life; works before a login."""
        self._run(self._inner.ping(timeout=timeout))

    def get_stats(self, *, timeout: Seconds | None = None) -> Stats:
        """Ask what the server says about itself."""
        return self._run(self._inner.get_stats(timeout=timeout))

    def get_snapshot(
        self,
        *,
        compression: SnapshotCompression = SnapshotCompression.DEFLATED,
        types: Sequence[SnapshotType] = (SnapshotType.ALL,),
        timeout: Seconds | None = None,
    ) -> Snapshot:
        """Fetch an archive that helps with finding faults.

        Args:
            compression: how the files inside are packed.
            types: what it holds; ``ALL`` stands alone.
            timeout: how long it may take.
        """
        return self._run(
            self._inner.get_snapshot(compression=compression, types=types, timeout=timeout)
        )

    def get_cluster_metadata(self, *, timeout: Seconds | None = None) -> ClusterMetadata:
        """Ask for the nodes of the cluster."""
        return self._run(self._inner.get_cluster_metadata(timeout=timeout))

    def get_me(self, *, timeout: Seconds | None = None) -> ClientDetails:
        """Ask how the server sees this connection."""
        return self._run(self._inner.get_me(timeout=timeout))

    @overload
    def get_client(
        self, client_id: int, *, required: Literal[True], timeout: Seconds | None = None
    ) -> ClientDetails: ...

    @overload
    def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None: ...

    def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None:
        """Ask for one client and the groups it has joined.

        Args:
            client_id: as ``get_clients`` shows it.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        return self._run(self._inner.get_client(client_id, required=required, timeout=timeout))

    def get_clients(self, *, timeout: Seconds | None = None) -> list[ClientInfo]:
        """Ask for all clients, in no particular order."""
        return self._run(self._inner.get_clients(timeout=timeout))
