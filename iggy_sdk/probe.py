"""Whether a server that does not answer speaks another protocol.

Servers from 0.9 on frame requests in another way: they wait for more bytes than a login has, so one
who speaks to them as to 0.8 hears nothing at all. When a login stays unanswered, they are asked
once in their own way, over a connection of its own; what they say is not a word of 0.8.

Owns the question. It must not know logins, nor what is done about the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

from iggy_protocol import VSR_HEAD_BYTES, is_vsr_answer, vsr_probe
from iggy_sdk.errors import IggyError, IncompatibleServerError

if TYPE_CHECKING:
    from iggy_sdk.address import Endpoint
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.transport import Dial

__all__ = ["PROBED_TRANSPORTS", "SILENCE_SECONDS", "incompatible", "speaks_other_protocol"]

SILENCE_SECONDS: Final = 2.0
"""How long a login may stay unanswered before it is asked why; sound servers take milliseconds."""

PROBE_SECONDS_MAX: Final = 2.0
PROBED_TRANSPORTS: Final = ("tcp", "ws")


async def speaks_other_protocol(endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> bool:
    """Ask a server in the way of 0.9; False when it does not answer so, for whatever reason."""
    answer = bytearray(VSR_HEAD_BYTES)
    received = 0
    try:
        with anyio.move_on_after(PROBE_SECONDS_MAX):
            transport = await dial(endpoint, options)
            try:
                # Such a server wants to know who asks, by a number like those of its own clients.
                await transport.send([vsr_probe(uuid4().bytes)])
                while received < VSR_HEAD_BYTES:
                    size = await transport.receive_into(memoryview(answer)[received:])
                    if not size:
                        break
                    received += size
            finally:
                transport.abort()
    except (OSError, IggyError):
        return False
    return is_vsr_answer(answer[:received])


def incompatible(endpoint: Endpoint) -> IncompatibleServerError:
    """Make the error for a server of another protocol."""
    return IncompatibleServerError(
        f"the server at {endpoint} speaks the protocol of Apache Iggy 0.9 and later, this client"
        " that of 0.8",
        advice="Connect to a server of version 0.8, or to iggy-server of this project.",
        retriable=False,
    )
