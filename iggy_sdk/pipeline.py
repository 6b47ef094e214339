"""The codec between values and messages.

    send      value ─ serde ─ compression ─ encryption ─> NewMessage, or the very bytes
    receive   value <─ serde ─ decompression ─ decryption ─ MessageRecord

The header ``content-encoding`` says how a payload was compressed, ``iggy-key`` carries its key, and
both are encrypted together with all other headers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload
from uuid import UUID

import iggy_protocol
from iggy_protocol import (
    Buffer,
    HeaderKey,
    HeaderValue,
    Identifier,
    MessageRecord,
    MessageView,
    NewMessage,
    PolledMessages,
    StatusCode,
    decode_user_headers,
    encode_user_headers,
)
from iggy_sdk.compression import CONTENT_ENCODING, Compression, decompress
from iggy_sdk.errors import DecryptionError, IggyError, SerdeError, error_from_protocol
from iggy_sdk.hooks import Hooks
from iggy_sdk.message import (
    KEY_HEADER,
    Committer,
    DecodedParts,
    Message,
    MessageSource,
    ReceivedBatch,
    ReceivedMessage,
    message_id_from_uuid,
)
from iggy_sdk.serde import RawSerde, Serde

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iggy_sdk.encryption import Encryptor


T = TypeVar("T")

_ENCODING: Final = HeaderKey.string(CONTENT_ENCODING)
_KEY_HEADER_KEY: Final = HeaderKey.string(KEY_HEADER)
_NO_HEADERS: Final[Mapping[HeaderKey, HeaderValue]] = {}


class Pipeline(Generic[T]):
    """Turns values into what is sent, and what is received into values."""

    __slots__ = (
        "_adds_headers",
        "_compression",
        "_encryptor",
        "_hooks",
        "_is_plain",
        "_is_raw",
        "_key_header",
        "_serde",
        "opens_plain",
    )

    @overload
    def __init__(
        self: Pipeline[bytes],
        serde: None = None,
        *,
        compression: Compression | None = None,
        encryptor: Encryptor | None = None,
        key_header: bool = True,
        hooks: Hooks | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        serde: Serde[T] | None,
        *,
        compression: Compression | None = None,
        encryptor: Encryptor | None = None,
        key_header: bool = True,
        hooks: Hooks | None = None,
    ) -> None: ...
    def __init__(
        self,
        serde: Serde[T] | None = None,
        *,
        compression: Compression | None = None,
        encryptor: Encryptor | None = None,
        key_header: bool = True,
        hooks: Hooks | None = None,
    ) -> None:
        """Take the parts of the codec.

        Args:
            serde: how values are written; None takes bytes and text as they are.
            compression: how payloads are compressed; None leaves them as they are.
            encryptor: seals and opens payloads and headers; None does neither.
            key_header: whether a message's key travels in the header ``iggy-key``.
            hooks: may add headers.
        """
        self._serde: Serde[Any] = RawSerde() if serde is None else serde
        self._compression = compression
        self._encryptor = encryptor
        self._key_header = key_header
        self._hooks = Hooks() if hooks is None else hooks
        self._adds_headers = self._hooks.adds_headers
        self._is_raw = isinstance(self._serde, RawSerde)
        self._is_plain = (
            self._is_raw and compression is None and encryptor is None and not self._adds_headers
        )
        self.opens_plain: bool = encryptor is None

    def encode_message(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        stream: Identifier = "",
        topic: Identifier = "",
    ) -> Buffer | NewMessage:
        """Make what is sent; plain bytes with nothing to do are passed on as they are.

        Args:
            value: a value of the serde, a ``Message`` of one, or a ``NewMessage`` whose payload
                is written already.
            key: the key, unless the message has one of its own.
            stream: where it goes, for the hooks.
            topic: where it goes, for the hooks.

        Raises:
            SerdeError: the serde cannot write the value.
            InvalidRequestError: headers, key or id do not fit the wire.
        """
        if self._is_plain and key is None and type(value) is bytes:
            return value
        if isinstance(value, NewMessage):
            return value if self._encryptor is None else self._encrypt_message(value)
        message = value if isinstance(value, Message) else Message(value)
        payload = self._encode_value(message.value)
        try:
            return self._finish_message(message, payload, key, stream, topic)
        except iggy_protocol.LocalProtocolError as error:
            raise error_from_protocol(error) from error

    def encode_batch(
        self,
        values: Sequence[Any],
        *,
        key: str | bytes | None = None,
        stream: Identifier = "",
        topic: Identifier = "",
    ) -> Sequence[Buffer | NewMessage]:
        """Make what is sent of a whole batch; a list of plain bytes is passed on itself.

        Raises:
            SerdeError: the serde cannot write a value.
            InvalidRequestError: headers, key or id do not fit the wire.
        """
        if self._is_plain and key is None and _PLAIN_TYPES.issuperset(map(type, values)):
            return values
        return [self.encode_message(value, key=key, stream=stream, topic=topic) for value in values]

    def decode_message(
        self,
        view: MessageView,
        *,
        partition_id: int,
        stream: Identifier = "",
        topic: Identifier = "",
        committer: Committer | None = None,
    ) -> ReceivedMessage[T]:
        """Make one received message."""
        source = MessageSource(
            self, stream=stream, topic=topic, partition_id=partition_id, committer=committer
        )
        return ReceivedMessage(view, source)

    def batch(
        self,
        polled: PolledMessages,
        *,
        stream: Identifier = "",
        topic: Identifier = "",
        committer: Committer | None = None,
    ) -> ReceivedBatch[T]:
        """Make a received batch of what a poll brought."""
        source = MessageSource(
            self, stream=stream, topic=topic, partition_id=polled.partition_id, committer=committer
        )
        return ReceivedBatch(polled, source)

    def open(self, message: MessageRecord, /) -> DecodedParts:
        """Undo encryption and compression, as far as that goes."""
        payload, block = message.raw_payload, message.raw_user_headers
        error: IggyError | None = None
        headers_error: IggyError | None = None
        headers = _NO_HEADERS
        if self._encryptor is not None:
            payload, error = _decrypt(self._encryptor, payload)
            if block:
                block, headers_error = _decrypt(self._encryptor, block)
        if headers_error is None:
            headers, headers_error = _read_headers(block)
        # Without its headers it is unknown whether the payload is compressed.
        if error is None and isinstance(headers_error, DecryptionError):
            error = headers_error
        if error is None and _ENCODING in headers:
            payload, error = _decompress(payload, headers[_ENCODING])
        return DecodedParts(payload, headers, error, headers_error)

    def decode(self, payload: bytes, /) -> T:
        """Read the value of a payload.

        Raises:
            SerdeError: the serde cannot read it.
        """
        try:
            value: T = self._serde.decode(payload)
        except IggyError:
            raise
        except Exception as error:
            name = type(self._serde).__name__
            raise SerdeError(f"{name} cannot read the payload: {error}") from error
        return value

    def _encode_value(self, value: Any) -> Buffer:
        try:
            return self._serde.encode(value)
        except Exception as error:
            raise SerdeError(
                f"{_name_of(self._serde)} cannot write {_shortened(value)}: {error}",
                code=StatusCode.CANNOT_SERIALIZE_RESOURCE,
                advice="Correct the value, or choose a serde that can write it; nothing was sent.",
            ) from error

    def _finish_message(
        self,
        message: Message[Any],
        payload: Buffer,
        key: str | bytes | None,
        stream: Identifier,
        topic: Identifier,
    ) -> Buffer | NewMessage:
        headers: dict[Any, Any] = dict(message.headers) if message.headers else {}
        key = key if message.key is None else message.key
        if (
            key is not None
            and self._key_header
            and not _has_header(headers, KEY_HEADER, _KEY_HEADER_KEY)
        ):
            headers[KEY_HEADER] = key
        if self._adds_headers:
            added = self._hooks.outgoing_headers(stream=stream, topic=topic)
            headers = {**added, **headers}
        if self._compression is not None and not _has_header(headers, CONTENT_ENCODING, _ENCODING):
            packed = self._compression.compress(payload)
            if packed is not None:
                payload = packed
                headers[CONTENT_ENCODING] = self._compression.name
        id_ = message_id_from_uuid(message.id) if isinstance(message.id, UUID) else message.id
        if not headers and not id_ and message.origin_timestamp_us is None:
            return payload if self._encryptor is None else self._encryptor.seal(payload)
        new = NewMessage(payload, id_, _header_block(headers), message.origin_timestamp_us)
        return new if self._encryptor is None else self._encrypt_message(new)

    def _encrypt_message(self, message: NewMessage) -> NewMessage:
        assert self._encryptor is not None
        block = message.user_headers
        return message._replace(
            payload=self._encryptor.seal(message.payload),
            user_headers=self._encryptor.seal(block) if block else b"",
        )


_PLAIN_TYPES: Final = frozenset({bytes})

_KEY_BLOCKS_MAX: Final = 4_096
"""Keys whose encoded header is cached; encoding it is the largest cost of a keyed send."""


def _header_block(headers: Mapping[Any, Any]) -> bytes:
    if not headers:
        return b""
    if len(headers) == 1 and isinstance(key := headers.get(KEY_HEADER), str | bytes):
        return _key_block(key)
    return encode_user_headers(headers)


@lru_cache(maxsize=_KEY_BLOCKS_MAX)
def _key_block(key: str | bytes) -> bytes:
    return encode_user_headers({KEY_HEADER: key})


def _has_header(headers: Mapping[Any, Any], name: str, key: HeaderKey) -> bool:
    return name in headers or key in headers


def _decrypt(encryptor: Encryptor, sealed: bytes) -> tuple[bytes, IggyError | None]:
    """Open what was sealed, or give it back with the reason why not."""
    try:
        return encryptor.open(sealed), None
    except IggyError as error:
        return sealed, error


def _read_headers(
    block: bytes,
) -> tuple[Mapping[HeaderKey, HeaderValue], IggyError | None]:
    try:
        return decode_user_headers(block), None
    except iggy_protocol.RemoteProtocolError as error:
        reason = SerdeError(
            f"the user headers cannot be read: {error}",
            code=StatusCode.CANNOT_READ_HEADERS_PAYLOAD,
            advice="Check the producer, and whether its messages are encrypted.",
        )
        reason.__cause__ = error
        return _NO_HEADERS, reason


def _decompress(payload: bytes, encoding: HeaderValue) -> tuple[bytes, IggyError | None]:
    try:
        return decompress(payload, encoding=str(encoding.value)), None
    except (SerdeError, iggy_protocol.ProtocolError) as error:
        if isinstance(error, SerdeError):
            return payload, error
        return payload, SerdeError(f"the content-encoding cannot be read: {error}")


def _name_of(serde: Serde[Any]) -> str:
    """Name a serde, with its type if it says so itself."""
    plain = type(serde).__repr__ is object.__repr__
    return type(serde).__name__ if plain else repr(serde)


def _shortened(value: object) -> str:
    """Name a value in an error without printing all of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
