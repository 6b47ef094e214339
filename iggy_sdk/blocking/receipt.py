"""A receipt whose ``delivered()`` blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_sdk.blocking.bridge import Bridge
    from iggy_sdk.errors import SendFailedError
    from iggy_sdk.producer import Receipt as AsyncReceipt

__all__ = ["Receipt"]


class Receipt:
    """The delivery of what one call accepted; of a direct producer's it is always done."""

    __slots__ = ("_bridge", "_inner")

    def __init__(self, bridge: Bridge, inner: AsyncReceipt) -> None:
        self._bridge = bridge
        self._inner = inner

    @property
    def is_done(self) -> bool:
        """Whether the messages were delivered or have failed."""
        return self._inner.is_done

    @property
    def error(self) -> SendFailedError | None:
        """Why the messages were not sent; None otherwise."""
        return self._inner.error

    def delivered(self) -> None:
        """Wait until the server has acknowledged the messages.

        Raises:
            SendFailedError: they were not sent; ``messages`` are those of this receipt.
        """
        self._bridge.run(self._inner.delivered())

    def __repr__(self) -> str:
        return repr(self._inner)
