"""Commands for the server as a whole: ping, statistics, snapshot, cluster, clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
    Snapshot,
    SnapshotCompression,
    SnapshotType,
    Stats,
    StatusCode,
)
from iggy_sdk.errors import NotFoundError
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.durations import Seconds

__all__ = ["SystemFamily"]


class SystemFamily(Asking):
    """Commands for the server as a whole."""

    async def ping(self, *, timeout: Seconds | None = None) -> None:
        """Ask for a sign of life; works before a login."""
        await self.request(Ping(), timeout=timeout)

    async def get_stats(self, *, timeout: Seconds | None = None) -> Stats:
        """Ask what the server says about itself."""
        return await self.request(GetStats(), timeout=timeout)

    async def get_snapshot(
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
        return await self.request(GetSnapshot(compression, tuple(types)), timeout=timeout)

    async def get_cluster_metadata(self, *, timeout: Seconds | None = None) -> ClusterMetadata:
        """Ask for the nodes of the cluster."""
        return await self.request(GetClusterMetadata(), timeout=timeout)

    async def get_me(self, *, timeout: Seconds | None = None) -> ClientDetails:
        """Ask how the server sees this connection."""
        return await self.request(GetMe(), timeout=timeout)

    @overload
    async def get_client(
        self, client_id: int, *, required: Literal[True], timeout: Seconds | None = None
    ) -> ClientDetails: ...
    @overload
    async def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None: ...
    async def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None:
        """Ask for one client and the groups it has joined.

        Args:
            client_id: as ``get_clients`` shows it.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        try:
            details = await self.request(GetClient(client_id), timeout=timeout)
        except NotFoundError:
            # Servers of this version answer with an error where others answer with nothing.
            details = None
        if details is None and required:
            raise NotFoundError(f"there is no client {client_id}", code=StatusCode.CLIENT_NOT_FOUND)
        return details

    async def get_clients(self, *, timeout: Seconds | None = None) -> list[ClientInfo]:
        """Ask for all clients, in no particular order."""
        return list(await self.request(GetClients(), timeout=timeout))
