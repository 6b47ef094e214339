"""Revoked access tokens that have not expired yet.

A logout and a refresh revoke a token. Revocations are written to ``state/tokens`` before the reply,
in the format of Apache Iggy (a MessagePack map from token id to expiry in seconds), so that they
survive a restart.

The reply does not wait for a sync: the file survives the end of the process and is synced
periodically. A power loss may undo the revocations of the last minutes; if it damages the file, all
tokens issued before are revoked instead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio

if TYPE_CHECKING:
    from iggy_ref_server.storage.interface import Storage


LOGGER = logging.getLogger(__name__)

REVOCATIONS_PATH: Final = "state/tokens"
DAMAGED_PATH: Final = "state/tokens.damaged"
# Each takes about 100 bytes of memory and 50 in the file, which is written as a whole.
FILE_BYTES_MAX: Final = 1 << 26

_DECODER: Final = msgspec.msgpack.Decoder(dict[str, int])


class Revocations:
    """The revoked tokens that have not expired.

    Args:
        storage: the data directory.
        expiries: token ids and when they expire, in seconds.
        trusted_since_s: all tokens that were issued earlier are revoked, because the list was lost.
    """

    def __init__(
        self, storage: Storage, expiries: dict[str, int], *, trusted_since_s: int = 0
    ) -> None:
        self._storage = storage
        self._expiries = expiries
        self.trusted_since_s = trusted_since_s
        self._writing = trio.Lock()
        self._version = self._saved_version = self._synced_version = 0

    @classmethod
    async def open(cls, storage: Storage, now_s: int) -> Revocations:
        """Read the revocations from before the last stop.

        Raises:
            StorageError: the file system failed.
        """
        content = await storage.read_file(REVOCATIONS_PATH, size_max=FILE_BYTES_MAX)
        if content is None:
            return cls(storage, {})
        try:
            return cls(storage, _DECODER.decode(content))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            LOGGER.error(
                "%s is damaged (%s) and was renamed to %s; all HTTP sessions have to log in again",
                REVOCATIONS_PATH,
                error,
                DAMAGED_PATH,
            )
            await storage.rename(REVOCATIONS_PATH, DAMAGED_PATH)
            return cls(storage, {}, trusted_since_s=now_s)

    def __len__(self) -> int:
        return len(self._expiries)

    def __contains__(self, token_id: str) -> bool:
        return token_id in self._expiries

    async def add(self, token_id: str, expires_at_s: int) -> bool:
        """Revoke a token; False when it was revoked already.

        Of several tasks that revoke the same token at once, one gets True.

        Raises:
            StorageError: it is revoked, but will not be after a restart.
        """
        if token_id in self._expiries:
            await trio.lowlevel.checkpoint()
            return False
        self._expiries[token_id] = expires_at_s
        await self._save()
        return True

    async def sweep(self, now_s: int) -> int:
        """Forget those that have expired by themselves, and sync the others; returns how many.

        Raises:
            StorageError: the file still has them, or may be lost with the power.
        """
        expired = [token_id for token_id, expiry in self._expiries.items() if expiry < now_s]
        for token_id in expired:
            del self._expiries[token_id]
        if expired or self._synced_version < self._version:
            await self._save(sync=True)
        return len(expired)

    async def _save(self, *, sync: bool = False) -> None:
        """Write the list; those who come while it is written share the next write."""
        self._version += 1
        wanted = self._version
        async with self._writing:
            if self._saved_version >= wanted and not sync:
                return
            written = self._version
            content = msgspec.msgpack.encode(self._expiries)
            await self._storage.replace(REVOCATIONS_PATH, content, sync=sync)
            self._saved_version = written
            if sync:
                self._synced_version = written
