"""Writing the rest of a frame that the socket did not take at once.

After a torn frame no other can be sent on the connection. So a cancelled sender still writes a
small rest; a large rest costs more than a new connection.
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
"""The largest rest of a frame that a cancelled sender still writes."""

SHIELDED_SECONDS_MAX = 2.0
"""How long a cancelled sender may take to write that rest."""


async def write_rest(transport: Transport, left: list[Buffer]) -> None:
    """Write buffers; what stays in the list was not written.

    Raises:
        OSError: the connection broke.
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
