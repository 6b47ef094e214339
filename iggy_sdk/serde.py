"""Serdes: from values to payloads and back.

    RawSerde      bytes as they are; text is written as UTF-8
    StrSerde      text as UTF-8
    JsonSerde     whatever JSON can say
    MsgspecSerde  one type, checked, as JSON or MessagePack
    PydanticSerde one pydantic model, as JSON (extra ``pydantic``)

Anything with ``encode`` and ``decode`` will do. Whatever a serde raises reaches users as a
``SerdeError``, at ``send`` or where ``message.value`` is read. Serdes know no messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from pydantic import BaseModel

    from iggy_protocol import Buffer

    M = TypeVar("M", bound=BaseModel)
else:
    M = TypeVar("M")


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Serde(Protocol[T]):
    """From values to payloads and back."""

    def encode(self, value: T, /) -> Buffer:
        """Write a value."""

    def decode(self, payload: bytes, /) -> T:
        """Read a value."""


class RawSerde:
    """Bytes as they are; text is taken too and written as UTF-8."""

    __slots__ = ()

    def encode(self, value: Buffer | str, /) -> Buffer:
        """Take bytes as they are.

        Raises:
            TypeError: the value is neither bytes nor text.
        """
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return value
        raise TypeError(f"a payload is bytes or text, not {type(value).__name__}")

    def decode(self, payload: bytes, /) -> bytes:
        """Give bytes as they are."""
        return payload


class StrSerde:
    """Text as UTF-8."""

    __slots__ = ()

    def encode(self, value: str, /) -> bytes:
        """Write text."""
        return value.encode()

    def decode(self, payload: bytes, /) -> str:
        """Read text."""
        return payload.decode()


class JsonSerde:
    """Dictionaries, lists, texts, numbers, truth values and None, as JSON."""

    __slots__ = ()

    def encode(self, value: Any, /) -> bytes:
        """Write JSON."""
        return msgspec.json.encode(value)

    def decode(self, payload: bytes, /) -> Any:
        """Read JSON."""
        return msgspec.json.decode(payload)


class _Encoder(Protocol):
    def encode(self, value: Any, /) -> bytes: ...


class _Decoder(Protocol[T_co]):
    def decode(self, payload: bytes, /) -> T_co: ...


class MsgspecSerde(Generic[T]):
    """Values of one type that msgspec understands, such as a Struct or a dataclass."""

    __slots__ = ("_decoder", "_encoder")

    def __init__(self, kind: type[T], *, form: Literal["json", "msgpack"] = "json") -> None:
        """Take the type.

        Args:
            kind: what payloads hold; they are checked against it when they are read.
            form: how payloads are written.
        """
        if form == "json":
            self._encoder: _Encoder = msgspec.json.Encoder()
            self._decoder: _Decoder[T] = msgspec.json.Decoder(kind)
        else:
            self._encoder = msgspec.msgpack.Encoder()
            self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T, /) -> bytes:
        """Write a value."""
        return self._encoder.encode(value)

    def decode(self, payload: bytes, /) -> T:
        """Read and check a value."""
        return self._decoder.decode(payload)


class PydanticSerde(Generic[M]):
    """One pydantic model, as JSON."""

    __slots__ = ("_model",)

    def __init__(self, model: type[M]) -> None:
        """Take the model.

        Args:
            model: what payloads hold; they are validated when they are read.

        Raises:
            ModuleNotFoundError: pydantic is not installed.
            TypeError: this is no pydantic model.
        """
        try:
            import pydantic
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(_PYDANTIC_MISSING, name="pydantic") from error
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
            raise TypeError(f"PydanticSerde takes a subclass of pydantic.BaseModel, not {model!r}")
        self._model = model

    def encode(self, value: M, /) -> bytes:
        """Write a model."""
        return value.model_dump_json().encode()

    def decode(self, payload: bytes, /) -> M:
        """Read and validate a model."""
        return self._model.model_validate_json(payload)


_PYDANTIC_MISSING: Final = (
    "PydanticSerde needs pydantic: install it with pip install 'iggy-python[pydantic]'"
)
