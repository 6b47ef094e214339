"""What a client keeps over its connections, from 0.9 on: its session and the numbers of requests.

    not registered --Register answered--> registered --logout, eviction, loss in 0.9--> ended

From 0.10 on a registered session survives its connections: each further one binds it. In 0.9 it
ends with its connection. A session that has ended begins again, not registered, under a new id.

Numbers differ by dialect. In 0.9 they begin at 1 in each session, writes take the next one, and
reads carry it without taking it, so they are not unique. From 0.10 on every request of a bound
connection takes the next one, and they are never used again.

Random bytes come from the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol.batch import checksum
from iggy_protocol.commands.sessions import (
    CLIENT_BYTES,
    SECRET_BYTES,
    BindSession,
    Register,
    SessionDetails,
)
from iggy_protocol.dialect import V0_11, Dialect, dialect_of
from iggy_protocol.errors import LocalProtocolError, NotInDialect, RemoteProtocolError
from iggy_protocol.vsr.heads import ZERO_ID
from iggy_protocol.vsr.operations import NON_REPLICATED, is_metadata, is_stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iggy_protocol.commands.sessions import Credentials
    from iggy_protocol.layout import Buffer


FIRST_NUMBER: Final = 1


class VsrClientSession:
    """The session of a client.

    Args:
        dialect: what the client announces.
        random_bytes: returns so many random bytes, as ``os.urandom`` does.
        sdk_name: how the SDK calls itself.
        sdk_version: the version of the SDK. With 0.12 or above a server takes 0.12.0 for 0.12.2.

    Attributes:
        client: the client's id of the session, a random UUID; a new one in each session.
        secret: what binds further connections to it; from 0.10 on.
        session: the number that the server gave to it; 0 while it is not registered.
        user_id: the user who has logged in; None while the session is not registered.
        watermark: the highest position of metadata that a reply told. It outlives the session.
    """

    def __init__(
        self,
        dialect: Dialect,
        random_bytes: Callable[[int], bytes],
        *,
        sdk_name: str,
        sdk_version: str,
    ) -> None:
        if dialect_of(dialect.version, sdk_version) is not dialect:
            # The classic dialect has no sessions; and a server tells a release from a preview that
            # announces the same version by the version of the SDK.
            message = f"an SDK {sdk_version} cannot announce {dialect}"
            raise LocalProtocolError(message, field="sdk_version")
        self._dialect = dialect
        self._random_bytes = random_bytes
        self._sdk_name = sdk_name
        self._sdk_version = sdk_version
        self._next_number = FIRST_NUMBER
        self.watermark: int = 0
        self.client: bytes = b""
        self.secret: bytes = b""
        self.session: int = 0
        self.user_id: int | None = None
        self.end()

    @property
    def dialect(self) -> Dialect:
        """What the client announces."""
        return self._dialect

    @property
    def is_registered(self) -> bool:
        """Whether the server has given a number to the session."""
        return self.session > 0

    # Commands of the session

    def register(self, credentials: Credentials) -> Register:
        """Return the login that begins the session.

        Raises:
            LocalProtocolError: the session is registered already.
        """
        if self.session:
            raise LocalProtocolError("the session is registered: log out first")
        return Register(
            self._dialect.version,
            self._sdk_name,
            self._sdk_version,
            credentials,
            self.secret,
        )

    def bind(self) -> BindSession:
        """Return what binds a further connection to the session.

        A session that is not registered may be bound, too: after a Register whose answer was lost,
        this asks which session it made.

        Raises:
            NotInDialect: in 0.9 a session has one connection.
        """
        if self._dialect is V0_11:
            raise NotInDialect("a session of 0.9 has one connection")
        return BindSession(
            self._dialect.version,
            self._sdk_name,
            self._sdk_version,
            self.client,
            self.session,
            self.watermark,
            self.secret,
        )

    # What happens to it

    def registered(self, details: SessionDetails) -> None:
        """Note the answer to a Register or a BindSession.

        Raises:
            RemoteProtocolError: the answer gives no session, another one than the one that was
                bound, or another version.
        """
        if not details.session or (self.session and details.session != self.session):
            message = f"session {details.session} was given, {self.session} is ours"
            raise RemoteProtocolError(message, field="session")
        if details.version[:2] != self._dialect.version[:2]:
            message = f"the server answers {self._dialect.version} with {details.version}"
            raise RemoteProtocolError(message, field="version")
        self.session = details.session
        self.user_id = details.user_id

    def lost(self) -> None:
        """Note that a connection was lost, which ends a session of 0.9."""
        if self._dialect is V0_11:
            self.end()

    def end(self) -> None:
        """Begin anew, under a new id: after a logout, an eviction, or a bind that was refused."""
        random = bytearray(self._random_bytes(CLIENT_BYTES))
        # The bits of a version 4 UUID; an id is never all zeros with them.
        random[6] = random[6] & 0x0F | 0x40
        random[8] = random[8] & 0x3F | 0x80
        self.client = bytes(random)
        self.session = 0
        self.user_id = None
        if self._dialect is V0_11:
            self._next_number = FIRST_NUMBER
        else:
            self.secret = self._random_bytes(SECRET_BYTES)

    def note_commit(self, operation: int, position: int) -> None:
        """Note the position of metadata that a reply tells."""
        if is_metadata(operation) and position > self.watermark:
            self.watermark = position

    # Fields of heads

    def take_number(self, operation: int) -> int:
        """Return the number of a request on a bound connection."""
        number = self._next_number
        if self._dialect is not V0_11 or operation != NON_REPLICATED:
            self._next_number += 1
        return number

    def unbound_number(self) -> int:
        """Return the number of a ping on a connection that is not bound."""
        return self._next_number if self._dialect is V0_11 else 0

    def identifier(self, operation: int, parts: Iterable[Buffer]) -> bytes:
        """Return the identifier of a new request: a checksum of its body in 0.9, later random."""
        if not is_stamped(operation):
            return ZERO_ID
        if self._dialect is V0_11:
            return checksum(b"".join(parts)).to_bytes(len(ZERO_ID), "little")
        identifier = self._random_bytes(len(ZERO_ID))
        # Zeros would mean that there is none.
        return identifier if identifier != ZERO_ID else b"\1" + ZERO_ID[1:]
