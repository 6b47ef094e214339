"""Blocking: Commands for streams, the outermost containers.

Made from iggy_sdk.families.streams by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Identifier, Stream, StreamDetails
    from iggy_sdk.durations import Seconds

__all__ = ["StreamsFamily"]


class StreamsFamily(ClientCalls):
    """Commands for streams."""

    def create_stream(
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
        return self._run(self._inner.create_stream(name, exist_ok=exist_ok, timeout=timeout))

    @overload
    def get_stream(
        self, stream: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> StreamDetails: ...

    @overload
    def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None: ...

    def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None:
        """Ask for one stream and its topics.

        Args:
            stream: name or id.
            required: raise ``StreamNotFound`` rather than return None.
            timeout: how long it may take.
        """
        return self._run(self._inner.get_stream(stream, required=required, timeout=timeout))

    def get_streams(self, *, timeout: Seconds | None = None) -> list[Stream]:
        """Ask for all streams, by ascending id."""
        return self._run(self._inner.get_streams(timeout=timeout))

    def update_stream(
        self, stream: Identifier, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Rename a stream."""
        self._run(self._inner.update_stream(stream, name, timeout=timeout))

    def delete_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a stream with everything in it."""
        self._run(self._inner.delete_stream(stream, timeout=timeout))

    def purge_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete all messages and stored offsets of a stream."""
        self._run(self._inner.purge_stream(stream, timeout=timeout))
