"""The errors of the wire, and the status a server answers for each.

ProtocolError                   abstract, never raised itself
├─ LocalProtocolError           we asked for something the wire cannot say
│  └─ NotInDialect              the dialect of the peer has no such command or option
├─ RemoteProtocolError          the peer's bytes are wrong (.field .offset .need .have .status)
│  ├─ TruncatedField            the bytes end before the field does
│  ├─ TrailingBytes             bytes are left over where the layout allows none
│  ├─ UnknownCommand            no command has this code
│  ├─ UnknownDiscriminant       an undefined kind, role or algorithm byte
│  ├─ InvalidField              all bytes are there, but they break a rule of the field
│  ├─ InvalidBatch              a SendMessages body that must not be stored (.message_index)
│  ├─ MalformedFrame            a frame length that no frame can have
│  └─ FrameTooLarge             a frame above the limit of this connection
├─ RuleViolation                well-formed, yet against a rule with a status of its own
└─ DecryptionFailed             the payload was not encrypted with this key
"""

from __future__ import annotations

INVALID_COMMAND = 3
INVALID_FORMAT = 4
INVALID_IDENTIFIER = 6


class ProtocolError(Exception):
    """Anything that went wrong between bytes and meaning; catch this to catch them all."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise one of its children")
        super().__init__(message)
        self.message = message


class LocalProtocolError(ProtocolError):
    """The caller asked for something that the wire or the connection's state cannot express.

    Attributes:
        field: dotted path of the field that cannot be written; empty when no field is to blame.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.message = message
        self.field = field


class NotInDialect(LocalProtocolError):
    """The generation of the wire that the peer speaks has no such command, field or option."""


class RemoteProtocolError(ProtocolError):
    """The peer's bytes are wrong.

    Attributes:
        field: dotted path of the field, as in ``topics.0.name``; empty when no field is to blame.
        offset: position of the field, counted from the first byte of the payload.
        need: how many bytes the field wanted there.
        have: how many bytes were left.
        status: what a server answers to a client that sent these bytes.
    """

    default_status = INVALID_COMMAND

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        offset: int = 0,
        need: int = 0,
        have: int = 0,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.offset = offset
        self.need = need
        self.have = have
        self.status: int = self.default_status if status is None else status


class TruncatedField(RemoteProtocolError):
    """The payload ends inside a field."""


class TrailingBytes(RemoteProtocolError):
    """The payload goes on after its last field."""


class UnknownCommand(RemoteProtocolError):
    """No command has this code."""


class UnknownDiscriminant(RemoteProtocolError):
    """A byte that selects among variants selects none of them."""


class InvalidField(RemoteProtocolError):
    """The field is complete but breaks a rule of its own, such as a name of no characters."""

    default_status = INVALID_FORMAT


class InvalidBatch(RemoteProtocolError):
    """A SendMessages body that must not be stored.

    Attributes:
        message_index: which message is to blame, counted from 0.
    """

    def __init__(
        self, message: str, *, status: int, message_index: int = 0, offset: int = 0
    ) -> None:
        super().__init__(message, field="messages", offset=offset, status=status)
        self.message_index = message_index


class MalformedFrame(RemoteProtocolError):
    """A frame whose length field cannot be right; the connection goes on after its header."""


class FrameTooLarge(RemoteProtocolError):
    """A frame above the connection's limit."""


class RuleViolation(ProtocolError):
    """A well-formed command that breaks a rule which has a status of its own.

    Attributes:
        field: the offending field of the command.
        status: what a server answers.
    """

    def __init__(self, message: str, *, field: str, status: int) -> None:
        super().__init__(message)
        self.field = field
        self.status = status


class DecryptionFailed(ProtocolError):
    """The bytes were not sealed with this key, or were changed since."""
