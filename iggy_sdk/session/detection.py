"""Finding out what a server speaks, and remembering it by its address.

The framing from 0.9 on begins with a word that no frame of 0.8 begins with, so one ping in that
framing, which needs no login, tells the two apart. A server of 0.8 refuses it at once, and reads
what follows at the wrong place, so the client connects again. Which of the newer dialects a server
speaks, it tells when it refuses the version of a login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

import iggy_protocol
from iggy_protocol import (
    CLASSIC,
    CLASSIC_FRAMING,
    NEED_DATA,
    VSR_HEAD_BYTES,
    ClientConnection,
    Dialect,
    EvictionReceived,
    Ping,
    ProbeVerdict,
    ResponseReceived,
    judge_probe,
    vsr_probe,
)
from iggy_sdk.errors import EvictedError, IncompatibleServerError

if TYPE_CHECKING:
    from collections.abc import Collection

    from iggy_sdk.connection_string import Endpoint, ServerProtocol
    from iggy_sdk.transport import StreamTransport


PROBE_SECONDS_MAX: Final = 2.0
"""How long the answer to a probe may take; servers that understand it take milliseconds. One of 0.7
closes the connection, and what is silent may still speak the framing of 0.8."""


class ServerDialects:
    """What servers speak, as far as a client knows; shared by a client and its siblings.

    Args:
        protocol: what the client may speak.
    """

    def __init__(self, protocol: ServerProtocol) -> None:
        self.allowed: Final = protocol.dialects
        self._known: dict[Endpoint, Dialect] = {}
        self._classic: dict[Endpoint, bool] = {}

    def known(self, endpoint: Endpoint) -> Dialect | None:
        """Return what a server speaks; None if nobody has found out, and there is a choice."""
        if self.allowed == (CLASSIC,):
            return CLASSIC
        return self._known.get(endpoint)

    def remember(self, endpoint: Endpoint, dialect: Dialect) -> None:
        """Note what a server speaks, once it has answered a login."""
        self._known[endpoint] = dialect

    def forget(self, endpoint: Endpoint) -> None:
        """Find out again at the next connection, because the server behaves differently."""
        self._known.pop(endpoint, None)
        self._classic.pop(endpoint, None)

    def known_classic(self, endpoint: Endpoint) -> bool | None:
        """Tell whether a server of a newer dialect speaks 0.8 as well; None if nobody has asked."""
        return self._classic.get(endpoint)

    def remember_classic(self, endpoint: Endpoint, *, speaks: bool) -> None:
        """Note whether a server of a newer dialect speaks 0.8 as well."""
        self._classic[endpoint] = speaks

    def forget_classic(self, endpoint: Endpoint) -> None:
        """Ask a server of a newer dialect again whether it speaks 0.8."""
        self._classic.pop(endpoint, None)

    def newest(self, endpoint: Endpoint, *, is_vsr: bool) -> Dialect:
        """Return the first dialect to try with a server whose framing is known.

        Raises:
            IncompatibleServerError: this client may not speak it.
        """
        for dialect in self.allowed:
            if dialect.is_vsr is is_vsr:
                return dialect
        spoken = "0.9 or later" if is_vsr else CLASSIC.generation
        raise incompatible_server_error(endpoint, spoken, self.allowed)

    def next_in_window(
        self, endpoint: Endpoint, eviction: EvictionReceived, tried: Collection[Dialect]
    ) -> Dialect:
        """Return what to try after a server has refused the version of a login.

        Raises:
            IncompatibleServerError: nothing is left.
        """
        lowest, highest = eviction.lowest, eviction.highest
        assert lowest is not None, "an eviction for the version names those that are accepted"
        assert highest is not None, "an eviction for the version names those that are accepted"
        for dialect in self.allowed:
            if lowest <= dialect.version <= highest and dialect not in tried:
                return dialect
        spoken = f"with versions {lowest} to {highest}"
        raise incompatible_server_error(endpoint, spoken, self.allowed)


def version_refusal(error: EvictedError) -> EvictionReceived | None:
    """Return the eviction of an error if it names the versions that the server accepts."""
    eviction = error.eviction
    return None if eviction is None or eviction.lowest is None else eviction


async def ask_framing(transport: StreamTransport) -> ProbeVerdict | None:
    """Ask a server with a first request which framing it speaks; the caller limits the time.

    After any verdict but VSR the connection is of no further use.

    Returns:
        None if the server closed the connection, or was silent for ``PROBE_SECONDS_MAX``.
    """
    answer, received = bytearray(VSR_HEAD_BYTES), 0
    with anyio.move_on_after(PROBE_SECONDS_MAX):
        try:
            # Servers expect what official clients send: a random UUID.
            await transport.send([vsr_probe(uuid4().bytes)])
            while (verdict := judge_probe(answer[:received])) is None:
                count = await transport.receive_into(memoryview(answer)[received:])
                if not count:
                    return None
                received += count
        except OSError:
            return None
        return verdict
    return None


async def ask_classic(transport: StreamTransport) -> bool | None:
    """Ask a server with a first request whether it speaks the framing of 0.8.

    The pings are as long as a head from 0.9 on together, so that a server which does not understand
    them has one complete head to refuse, and does not wait for the rest of it.

    Returns:
        None if the server was silent for ``PROBE_SECONDS_MAX``.
    """
    pings = ClientConnection()
    count = VSR_HEAD_BYTES // CLASSIC_FRAMING.request_head_bytes
    frames = [part for _ in range(count) for part in pings.send(Ping())]
    answered = 0
    with anyio.move_on_after(PROBE_SECONDS_MAX):
        try:
            await transport.send(frames)
            while answered < count:
                received = await transport.receive_into(pings.get_buffer())
                if not received:
                    return False
                pings.buffer_updated(received)
                while (event := pings.next_event()) is not NEED_DATA:
                    if not isinstance(event, ResponseReceived):
                        return False
                    answered += 1
        except (OSError, iggy_protocol.ProtocolError):
            return False
        return True
    return None


def incompatible_server_error(
    endpoint: Endpoint, spoken: str, allowed: Collection[Dialect]
) -> IncompatibleServerError:
    """Make the error for a server that speaks nothing that this client may speak."""
    generations = " and ".join(dict.fromkeys(one.generation for one in allowed))
    return IncompatibleServerError(
        f"the server at {endpoint} speaks the protocol of Apache Iggy {spoken}, and this client"
        f" is to speak that of {generations}",
        advice="Set protocol=auto, or name a generation that the server speaks.",
        retriable=False,
    )
