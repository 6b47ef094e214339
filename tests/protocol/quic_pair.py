"""Both ends of a QUIC connection in memory, on a clock that a test moves."""

from __future__ import annotations

import hashlib
import ssl
from typing import TYPE_CHECKING, Any

from aioquic._buffer import Buffer
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import pull_quic_header

from iggy_protocol.quic import RESET_TOKEN_BYTES, QuicClientCore, QuicCore, QuicServerCore

if TYPE_CHECKING:
    from tests.certificates import Certificate

CLIENT, SERVER = ("127.0.0.1", 50_000), ("127.0.0.1", 8080)
CONNECTION_ID_BYTES = 8


def reset_token(connection_id: bytes) -> bytes:
    """Derive the token of a connection id."""
    return hashlib.sha256(connection_id).digest()[:RESET_TOKEN_BYTES]


def client_configuration(**settings: Any) -> QuicConfiguration:
    """Make a configuration that accepts any certificate."""
    return QuicConfiguration(
        is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE, **settings
    )


def server_configuration(certificate: Certificate, **settings: Any) -> QuicConfiguration:
    """Make the configuration of a server."""
    configuration = QuicConfiguration(is_client=False, **settings)
    configuration.load_cert_chain(certificate.cert_file, certificate.key_file)
    return configuration


def destination_id(datagram: bytes) -> bytes:
    """Return to which connection a datagram belongs."""
    header = pull_quic_header(Buffer(data=datagram), host_cid_length=CONNECTION_ID_BYTES)
    connection_id: bytes = header.destination_cid
    return connection_id


class QuicPair:
    """A client and a server whose datagrams arrive at once.

    Attributes:
        now: the time.
        client: the client's end, whose first datagram is under way.
        server: the server's end, which has received nothing.
        first: the client's first datagrams.
        events: what each end has reported.
    """

    def __init__(
        self,
        server: QuicConfiguration,
        client: QuicConfiguration | None = None,
        *,
        client_class: type[QuicClientCore] = QuicClientCore,
        streams_max: int = 16,
    ) -> None:
        self.now = 0.0
        self.client = client_class(client or client_configuration())
        self.client.connect(SERVER, self.now)
        self.first = self.written(self.client)
        self.server = QuicServerCore(
            server,
            streams_max=streams_max,
            original_cid=destination_id(self.first[0]),
            reset_token=reset_token,
        )
        self.events: dict[QuicCore, list[events.QuicEvent]] = {self.client: [], self.server: []}

    @classmethod
    def connected(cls, *given: Any, **settings: Any) -> QuicPair:
        """Make a pair after its handshake."""
        pair = cls(*given, **settings)
        pair.deliver(pair.server, pair.first)
        pair.settle()
        return pair

    def written(self, core: QuicCore) -> list[bytes]:
        """Have an end write what it has to send now."""
        return [data for data, _ in core.datagrams_to_send(self.now)]

    def deliver(self, core: QuicCore, datagrams: list[bytes]) -> None:
        """Have datagrams arrive at an end."""
        for data in datagrams:
            core.receive_datagram(data, SERVER if core is self.client else CLIENT, self.now)
        while (event := core.next_event()) is not None:
            self.events[core].append(event)

    def exchange(self, *, slides: bool = True) -> None:
        """Deliver datagrams in both directions until none is left; timers do not run."""
        while True:
            if slides:
                self.server.slide_window()
            requests, replies = self.written(self.client), self.written(self.server)
            if not requests and not replies:
                return
            self.deliver(self.server, requests)
            self.deliver(self.client, replies)

    def run_timers(self, until: float) -> None:
        """Move the clock, and run the timers that are due."""
        self.now = until
        for core in (self.client, self.server):
            due_at = core.get_timer()
            if due_at is not None and due_at <= self.now:
                core.handle_timer(self.now)
            self.deliver(core, [])

    def settle(self, *, slides: bool = True) -> None:
        """Exchange everything, with acknowledgements that are due a little later."""
        for _ in range(10):
            self.exchange(slides=slides)
            self.run_timers(self.now + 0.011)

    def received(self, core: QuicCore, stream_id: int = 0) -> bytes:
        """Return what an end has received on a stream."""
        return b"".join(
            event.data
            for event in self.events[core]
            if isinstance(event, events.StreamDataReceived) and event.stream_id == stream_id
        )

    def count(self, core: QuicCore, kind: type[events.QuicEvent]) -> int:
        """Return how many events of a kind an end has reported."""
        return sum(isinstance(event, kind) for event in self.events[core])
