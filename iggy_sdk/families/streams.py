"""Commands for streams, the outermost containers."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    CreateStream,
    DeleteStream,
    GetStream,
    GetStreams,
    Identifier,
    PurgeStream,
    Stream,
    StreamDetails,
    UpdateStream,
)
from iggy_sdk.errors import StreamExists, StreamNotFound
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["StreamsFamily"]


class StreamsFamily(Asking):
    """Commands for streams."""

    async def create_stream(
        self, name: str, *, exist_ok: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails:
        """Create a stream.

        Args:
            name: 1 to 255 bytes.
            exist_ok: return the stream as it is when the name is taken.
            timeout: how long it may take.

        Raises:
            StreamExists: the name is taken.
        """
        try:
            new = await self.request(CreateStream(name), timeout=timeout)
        except StreamExists:
            found = await self.get_stream(name, timeout=timeout) if exist_ok else None
            if found is None:
                raise
            return found
        return StreamDetails(**{field.name: getattr(new, field.name) for field in fields(Stream)})

    @overload
    async def get_stream(
        self, stream: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> StreamDetails: ...
    @overload
    async def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None: ...
    async def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None:
        """Ask for one stream and its topics.

        Args:
            stream: name or id.
            required: raise ``StreamNotFound`` rather than return None.
            timeout: how long it may take.
        """
        details = await self.request(GetStream(stream), timeout=timeout)
        if details is None and required:
            raise StreamNotFound(f"there is no stream {stream!r}")
        return details

    async def get_streams(self, *, timeout: Seconds | None = None) -> list[Stream]:
        """Ask for all streams, by ascending id."""
        return list(await self.request(GetStreams(), timeout=timeout))

    async def update_stream(
        self, stream: Identifier, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Rename a stream."""
        await self.request(UpdateStream(stream, name), timeout=timeout)

    async def delete_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a stream with everything in it."""
        await self.request(DeleteStream(stream), timeout=timeout)

    async def purge_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete all messages and stored offsets of a stream."""
        await self.request(PurgeStream(stream), timeout=timeout)
