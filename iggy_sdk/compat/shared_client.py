"""The client of this SDK underneath the official one: two faces of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.client import IggyClient as OwnClient

if TYPE_CHECKING:
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.reconnecting import ReconnectingSession
    from iggy_sdk.transport import Dial


class SharedClient(OwnClient):
    """A client that can be used in both spellings.

    Methods that the official client does not have are inherited. Where both have one of the same
    name, it is the official one, and that of this SDK is at ``own``.
    """

    def _initialise(
        self, options: ClientOptions, dial: Dial, *, sibling: ReconnectingSession | None = None
    ) -> None:
        super()._initialise(options, dial, sibling=sibling)
        self._own = OwnClient.from_options(options, dial=dial)
        # One session for both: they are connected, logged in and closed together.
        self._own._session = self._session

    @property
    def own(self) -> OwnClient:
        """The client of this SDK over the same connection; never closed by itself."""
        return self._own
