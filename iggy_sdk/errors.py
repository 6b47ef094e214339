"""Every error of the SDK; each has ``code``, ``name``, ``message``, ``advice``, ``retriable``.

    IggyError(RuntimeError)                   catch this to catch them all
    ├─ ConnectionFailedError(ConnectionError) the server cannot be reached (.sent)
    │  └─ DisconnectedError                   it could be, and went away
    │     └─ EvictedError                     it has ended the session (.eviction)
    ├─ ClientClosedError                      the client was closed by its owner
    ├─ ProtocolError                          the peer does not speak Iggy
    │  └─ IncompatibleServerError             it speaks another generation than the client may
    ├─ RequestTimeoutError(TimeoutError)      no answer in time (.sent)
    ├─ AuthenticationError                    no login, a wrong or an expired one
    ├─ PermissionDeniedError(PermissionError) known, but not allowed
    ├─ NotFoundError(LookupError)
    │  ├─ StreamNotFoundError, TopicNotFoundError, PartitionNotFoundError
    │  └─ ConsumerGroupNotFoundError, PartitionRestartedError (offsets start over)
    ├─ AlreadyExistsError
    │  ├─ StreamExistsError, ConsumerGroupExistsError
    │  └─ TopicExistsError, TopicDiffersError (not as it was asked for, .differences)
    ├─ LimitReachedError                      a limit is reached
    ├─ InvalidRequestError(ValueError)        it will fail again
    │  └─ InvalidOffsetError, MessageTooLargeError, UnsupportedByServerError
    ├─ ConfigurationError(ValueError)         a connection string or an option
    ├─ ConsumerGroupError
    │  └─ NotAMemberError, PartitionNotOwnedError
    ├─ ProducerError
    │  └─ SendFailedError (.cause .messages), BufferFullError, ProducerClosedError
    ├─ ServerError                            files, damage and other trouble of the server
    ├─ SerdeError                             a payload cannot be read or written as a value
    └─ EncryptionError
       └─ DecryptionError                     carried by the message, raised on access

Codes and names are those of Apache Iggy. An unknown code is an ``IggyError`` with that number. A
``SendFailedError`` is of the class of its cause as well: one that the server has refused for lack
of permission is caught as a ``PermissionDeniedError``, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import iggy_protocol
from iggy_protocol import STATUSES, Command, StatusCode, StatusGroup, status
from iggy_sdk.command_text import describe_command as describe_command
from iggy_sdk.command_text import is_login
from iggy_sdk.error_advice import UNKNOWN_LOGIN_ADVICE, UNSENT_ADVICE
from iggy_sdk.iggy_error import IggyError as IggyError
from iggy_sdk.iggy_error import layout_of, merged_class, restore_error, sent_clause
from iggy_sdk.old_names import OLD_ERRORS, warn_of_old_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self


_E = TypeVar("_E", bound=IggyError)


class ConnectionFailedError(IggyError, ConnectionError):
    """The server cannot be reached."""

    default_code = StatusCode.CANNOT_ESTABLISH_CONNECTION
    sent: bool  # type: ignore[mutable-override]

    def __init__(self, message: str = "", *, sent: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.sent = sent


class DisconnectedError(ConnectionFailedError):
    """The connection ended before the answer came.

    ``sent`` tells whether the whole request left; if not, it may be repeated without harm.
    """

    default_code = StatusCode.DISCONNECTED

    def __init__(self, message: str = "", *, sent: bool = True, **details: Any) -> None:
        super().__init__(message, sent=sent, **details)


class EvictedError(DisconnectedError):
    """The server has ended the session; servers from 0.9 on say why.

    Attributes:
        eviction: what the server said; None in an error that was not made by one.
    """

    def __init__(
        self,
        message: str = "",
        *,
        eviction: iggy_protocol.EvictionReceived | None = None,
        **details: Any,
    ) -> None:
        code = None if eviction is None else eviction.status
        super().__init__(message, code=code, **details)
        self.eviction = eviction


class ClientClosedError(IggyError):
    """The client was closed by its owner."""

    default_code = StatusCode.CLIENT_SHUTDOWN


class ProtocolError(IggyError):
    """The peer's bytes are no answer of an Iggy server."""

    default_code = StatusCode.INVALID_BYTES_RESPONSE


class IncompatibleServerError(ProtocolError):
    """The server speaks no generation of the protocol that this client may speak."""

    default_code = StatusCode.INCOMPATIBLE_PROTOCOL_VERSION


class RequestTimeoutError(IggyError, TimeoutError):
    """No answer came in time; ``sent`` tells whether the request may have been carried out."""

    default_code = StatusCode.TASK_TIMEOUT
    sent: bool  # type: ignore[mutable-override]

    def __init__(self, message: str = "", *, sent: bool | None = None, **details: Any) -> None:
        """Take what happened, and whether the request was sent, which the text then says."""
        if sent is not None:
            message = f"{message}; {sent_clause(sent)}"
        if sent is False:
            details.setdefault("advice", UNSENT_ADVICE)
        super().__init__(message, **details)
        self.sent = sent is not False


class AuthenticationError(IggyError):
    """There is no login, or a wrong or expired one."""

    default_code = StatusCode.UNAUTHENTICATED


class PermissionDeniedError(IggyError, PermissionError):
    """The user is known but may not do this."""

    default_code = StatusCode.UNAUTHORIZED


class NotFoundError(IggyError, LookupError):
    """The named thing is absent."""

    default_code = StatusCode.RESOURCE_NOT_FOUND


class StreamNotFoundError(NotFoundError):
    """There is no such stream."""

    default_code = StatusCode.STREAM_ID_NOT_FOUND


class TopicNotFoundError(NotFoundError):
    """There is no such topic, or it has no partition to choose from."""

    default_code = StatusCode.TOPIC_ID_NOT_FOUND


class PartitionNotFoundError(NotFoundError):
    """The topic has no such partition."""

    default_code = StatusCode.PARTITION_NOT_FOUND


class PartitionRestartedError(NotFoundError):
    """The partition was purged or made anew since the request was prepared."""

    default_code = StatusCode.PARTITION_HISTORY_UNAVAILABLE


class ConsumerGroupNotFoundError(NotFoundError):
    """The topic has no such consumer group."""

    default_code = StatusCode.CONSUMER_GROUP_ID_NOT_FOUND


class AlreadyExistsError(IggyError):
    """The name is taken."""

    default_code = StatusCode.USER_ALREADY_EXISTS


class StreamExistsError(AlreadyExistsError):
    """A stream has this name."""

    default_code = StatusCode.STREAM_NAME_ALREADY_EXISTS


class TopicExistsError(AlreadyExistsError):
    """A topic of the stream has this name."""

    default_code = StatusCode.TOPIC_NAME_ALREADY_EXISTS


class TopicDiffersError(TopicExistsError):
    """A topic of the stream has this name, and is not as it was asked for.

    Attributes:
        differences: what was asked for and what was found, by the field of the topic.
    """

    def __init__(
        self,
        message: str = "",
        *,
        differences: Mapping[str, tuple[object, object]] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.differences: dict[str, tuple[object, object]] = dict(differences or {})


class TopicDiffersWarning(UserWarning):
    """A topic exists and is not as it was asked for; it is used as it is."""


class ConsumerGroupExistsError(AlreadyExistsError):
    """A consumer group of the topic has this name."""

    default_code = StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS


class LimitReachedError(IggyError):
    """There is a limit is reached."""

    default_code = StatusCode.TOPIC_FULL


class InvalidRequestError(IggyError, ValueError):
    """The request breaks a rule and will break it again."""

    default_code = StatusCode.INVALID_FORMAT


class InvalidOffsetError(InvalidRequestError):
    """The partition has no such offset."""

    default_code = StatusCode.INVALID_OFFSET


class MessageTooLargeError(InvalidRequestError):
    """A payload or its headers are above the limit."""

    default_code = StatusCode.TOO_BIG_MESSAGE_PAYLOAD


class UnsupportedByServerError(InvalidRequestError):
    """The generation of the server lacks a command, an option or a field; nothing was sent."""

    default_code = StatusCode.FEATURE_UNAVAILABLE


class ConfigurationError(IggyError, ValueError):
    """A connection string or an option is unusable."""

    default_code = StatusCode.INVALID_CONFIGURATION


class ConsumerGroupError(IggyError):
    """Membership or assignment does not allow it."""

    default_code = StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND


class NotAMemberError(ConsumerGroupError):
    """This connection has not joined the group."""


class PartitionNotOwnedError(ConsumerGroupError):
    """The group gave this partition to another member, or to none."""

    default_code = StatusCode.NOT_RESOLVED_CONSUMER


class ProducerError(IggyError):
    """Sending in the background failed."""

    default_code = StatusCode.BACKGROUND_SEND_ERROR


class SendFailedError(ProducerError):
    """Messages were not sent, or the answer to them was lost; it is of the cause's class, too.

    Attributes:
        cause: why.
        messages: what was not sent, in order, as it was given to the producer.
    """

    default_code = StatusCode.PRODUCER_SEND_FAILED

    def __new__(cls, cause: BaseException, messages: Sequence[Any] = ()) -> Self:
        """Make an error that ``except`` finds by the class of the cause as well."""
        kind = merged_class(cls, type(cause)) if isinstance(cause, IggyError) else cls
        error: Self = layout_of(kind).__new__(kind)
        return error

    def __init__(self, cause: BaseException, messages: Sequence[Any] = ()) -> None:
        """Take the cause, whose code, advice and further facts become those of this error."""
        count = len(messages)
        what = "1 message was" if count == 1 else f"{count} messages were"
        if isinstance(cause, IggyError):
            vars(self).update(vars(cause))
            unknown = " or not acknowledged" if cause.sent else ""
            text = f"{what} not sent{unknown}: {cause.message}"
            # The constructor of the cause's class takes other arguments.
            IggyError.__init__(
                self, text, code=cause.code, advice=cause.advice, retriable=cause.retriable
            )
        else:
            text = f"{what} not sent: {str(cause) or repr(cause)}"
            IggyError.__init__(self, text, retriable=False)
        self.cause = cause
        self.messages: tuple[Any, ...] = tuple(messages)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class may be one that no module holds.
        kinds = (SendFailedError, type(self.cause))
        return _restore_send_failed, (*kinds, self.args, self.__dict__)


def _restore_send_failed(
    kind: type[SendFailedError], cause: type[BaseException], args: tuple[Any, ...], state: Any
) -> SendFailedError:
    return restore_error(
        merged_class(kind, cause) if issubclass(cause, IggyError) else kind, args, state
    )


class BufferFullError(ProducerError):
    """The buffer of a background producer has no space."""

    default_code = StatusCode.BACKGROUND_SEND_BUFFER_OVERFLOW


class ProducerClosedError(ProducerError):
    """The producer was closed by its owner."""

    default_code = StatusCode.PRODUCER_CLOSED


class ServerError(IggyError):
    """The server failed: a file, damaged data, or something of its own."""


class SerdeError(IggyError):
    """A payload cannot be read as a value, or a value not be written as a payload."""

    default_code = StatusCode.CANNOT_DESERIALIZE_RESOURCE

    def __init__(self, message: str = "", **details: Any) -> None:
        details.setdefault(
            "advice",
            "Check that producer and consumer agree on the serde; message.payload has the bytes.",
        )
        super().__init__(message, **details)


class EncryptionError(IggyError):
    """A payload cannot be sealed."""

    default_code = StatusCode.CANNOT_ENCRYPT_DATA


class DecryptionError(EncryptionError):
    """A payload was sealed with another key, changed since, or never sealed."""

    default_code = StatusCode.CANNOT_DECRYPT_DATA


_GROUP_CLASSES: Final[Mapping[StatusGroup, type[IggyError]]] = {
    StatusGroup.CONNECTION: ConnectionFailedError,
    StatusGroup.CLIENT_CLOSED: ClientClosedError,
    StatusGroup.TIMEOUT: RequestTimeoutError,
    StatusGroup.PROTOCOL: ProtocolError,
    StatusGroup.AUTHENTICATION: AuthenticationError,
    StatusGroup.PERMISSION: PermissionDeniedError,
    StatusGroup.NOT_FOUND: NotFoundError,
    StatusGroup.ALREADY_EXISTS: AlreadyExistsError,
    StatusGroup.LIMIT: LimitReachedError,
    StatusGroup.INVALID_REQUEST: InvalidRequestError,
    StatusGroup.CONSUMER_GROUP: ConsumerGroupError,
    StatusGroup.PRODUCER: ProducerError,
    StatusGroup.ENCRYPTION: EncryptionError,
    StatusGroup.CONFIGURATION: ConfigurationError,
    StatusGroup.CORRUPTION: ServerError,
    StatusGroup.STORAGE: ServerError,
    StatusGroup.SERVER: ServerError,
}

# The codes that say more than their group does.
_CODE_CLASSES: Final[tuple[tuple[int, type[IggyError]], ...]] = (
    (1, IggyError),
    (8, DisconnectedError),
    (30, DisconnectedError),
    (61, DisconnectedError),
    (70, ConfigurationError),
    (72, DecryptionError),
    (87, PartitionRestartedError),
    (206, DisconnectedError),
    (1009, StreamNotFoundError),
    (1010, StreamNotFoundError),
    (1012, StreamExistsError),
    (2010, TopicNotFoundError),
    (2011, TopicNotFoundError),
    (2013, TopicExistsError),
    (3007, PartitionNotFoundError),
    (3008, PartitionNotFoundError),
    (3022, PartitionNotOwnedError),
    (4017, MessageTooLargeError),
    (4022, MessageTooLargeError),
    (4052, BufferFullError),
    (4053, BufferFullError),
    (4055, BufferFullError),
    (4057, ProducerClosedError),
    (4100, InvalidOffsetError),
    (5000, ConsumerGroupNotFoundError),
    (5003, ConsumerGroupNotFoundError),
    (5004, ConsumerGroupExistsError),
    (5006, NotAMemberError),
    (5009, PartitionNotOwnedError),
)


def index_classes(rows: Iterable[tuple[int, type[_E]]]) -> dict[int, type[_E]]:
    """Make the table from code to class; a code must occur once."""
    table: dict[int, type[_E]] = {}
    for code, kind in rows:
        assert code in STATUSES, f"{code} is no status"
        assert code not in table, f"{code} is {table[code].__name__} already"
        table[code] = kind
    return table


_CLASSES: Final = index_classes(_CODE_CLASSES)


def class_for_status(code: int) -> type[IggyError]:
    """Return the class of a status; ``IggyError`` itself for an unknown one."""
    if code in _CLASSES:
        return _CLASSES[code]
    row = STATUSES.get(code)
    return IggyError if row is None else _GROUP_CLASSES[row.group]


OTHER_GENERATION_ADVICE: Final = (
    "Do without it, or choose another generation with protocol= if the server offers several."
)


def error_for_status(code: int, *, command: Command[Any] | None = None) -> IggyError:
    """Make the error for a status that a server answered.

    Args:
        code: the status; never 0.
        command: what was asked, for the text.
    """
    meaning = status(code).meaning
    if command is None:
        return class_for_status(code)(meaning, code=code)
    text = f"{describe_command(command)}: {meaning}"
    kind = class_for_status(code)
    if is_login(command) and issubclass(kind, NotFoundError):
        # Servers have no such token or user: whoever wants to log in is not known.
        return AuthenticationError(text, code=code, advice=UNKNOWN_LOGIN_ADVICE)
    return kind(text, code=code)


def error_from_protocol(
    error: iggy_protocol.ProtocolError, *, command: Command[Any] | None = None
) -> IggyError:
    """Turn an error of the wire into one of the SDK; chain it with ``raise … from error``.

    What the caller asked for is an ``InvalidRequestError``, what the peer sent a
    ``ProtocolError``, and a broken rule is what its status says.
    """
    text = str(error) if command is None else f"{describe_command(command)}: {error}"
    if isinstance(error, iggy_protocol.DecryptionFailed):
        return DecryptionError(text)
    if isinstance(error, iggy_protocol.RuleViolation):
        return class_for_status(error.status)(text, code=error.status)
    if isinstance(error, iggy_protocol.RemoteProtocolError):
        return ProtocolError(text)
    if isinstance(error, iggy_protocol.NotInDialect):
        return UnsupportedByServerError(text, advice=OTHER_GENERATION_ADVICE)
    return InvalidRequestError(text)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in OLD_ERRORS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warn_of_old_name(f"{__name__}.{name}", OLD_ERRORS[name])
        return globals()[OLD_ERRORS[name]]
