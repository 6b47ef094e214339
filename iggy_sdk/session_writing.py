"""How the rest of a frame is written that did not leave at once.

A frame that is torn leaves no way to send another one. So a sender who is cancelled stays for the
rest when there is little of it; a large one costs less when the connection is given up.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_sdk.transport import Transport

__all__ = ["SHIELDED_BYTES_MAX", "SHIELDED_SECONDS_MAX", "write_rest"]

SHIELDED_BYTES_MAX = 65_536
"""The rest of a frame that is written even if its sender was cancelled."""

SHIELDED_SECONDS_MAX = 2.0
"""How long a cancelled sender stays to write such a rest."""


async def write_rest(transport: Transport, left: list[Buffer]) -> None:
    """Write buffers; what stays in the list could not be written.

    Raises:
        OSError: the connection is gone.
    """
    try:
        await transport.send(left)
    except OSError:
        raise
    except BaseException:
        if sum(map(len, left)) <= SHIELDED_BYTES_MAX:
            with anyio.move_on_after(SHIELDED_SECONDS_MAX, shield=True), suppress(OSError):
                await transport.send(left)
        raise
