"""Detecting a server that speaks the protocol of Apache Iggy 0.9 or later.

Servers from 0.9 on frame requests in another way: they wait for more bytes than a login of 0.8
has, so the client gets no reply at all. When a login stays unanswered, one request in the framing
of 0.9 is sent over a separate connection; its reply cannot be a reply of 0.8.
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
"""How long a login may stay unanswered before the probe; healthy servers take milliseconds."""

PROBE_SECONDS_MAX: Final = 2.0
PROBED_TRANSPORTS: Final = ("tcp", "ws")


async def speaks_other_protocol(endpoint: Endpoint, options: ClientOptions, *, dial: Dial) -> bool:
    """Send a request in the framing of 0.9; False when the reply is not one of 0.9."""
    answer = bytearray(VSR_HEAD_BYTES)
    received = 0
    try:
        with anyio.move_on_after(PROBE_SECONDS_MAX):
            transport = await dial(endpoint, options)
            try:
                # The frame has to carry a client id of 128 bits.
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
    """Make the error for a server that speaks the protocol of 0.9."""
    return IncompatibleServerError(
        f"the server at {endpoint} speaks the protocol of Apache Iggy 0.9 and later, this client"
        " that of 0.8",
        advice="Connect to a server of version 0.8, or to iggy-server of this project.",
        retriable=False,
    )
