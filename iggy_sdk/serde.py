"""Serdes: from values to payloads and back.

    RawSerde      bytes as they are; text is written as UTF-8
    StrSerde      text as UTF-8
    JsonSerde     whatever JSON can say
    MsgspecSerde  one type, checked, as JSON or MessagePack
    PydanticSerde one pydantic model, as JSON (extra ``pydantic``)

A serde with a type reads back what it has written before anything is sent, so that a value which
its consumers would refuse is refused at ``send``. That costs what reading costs; ``check=False``
leaves it out.

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

    __slots__ = ("_check", "_decoder", "_encoder", "_name")

    def __init__(
        self, kind: type[T], *, form: Literal["json", "msgpack"] = "json", check: bool = True
    ) -> None:
        """Take the type.

        Args:
            kind: what payloads hold; they are checked against it when they are read.
            form: how payloads are written.
            check: whether a payload is read back before it is sent, so that a value is refused
                that its consumers would refuse.
        """
        self._check = check
        self._name = getattr(kind, "__name__", repr(kind))
        if form == "json":
            self._encoder: _Encoder = msgspec.json.Encoder()
            self._decoder: _Decoder[T] = msgspec.json.Decoder(kind)
        else:
            self._encoder = msgspec.msgpack.Encoder()
            self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T, /) -> bytes:
        """Write a value.

        Raises:
            ValueError: its type would refuse it on reading.
        """
        payload = self._encoder.encode(value)
        if self._check:
            try:
                self._decoder.decode(payload)
            except msgspec.DecodeError as error:
                raise ValueError(f"a consumer would refuse it: {error}") from error
        return payload

    def decode(self, payload: bytes, /) -> T:
        """Read and check a value."""
        return self._decoder.decode(payload)

    def __repr__(self) -> str:
        return f"MsgspecSerde({self._name})"


class PydanticSerde(Generic[M]):
    """One pydantic model, as JSON."""

    __slots__ = ("_check", "_model")

    def __init__(self, model: type[M], *, check: bool = True) -> None:
        """Take the model.

        Args:
            model: what payloads hold; they are validated when they are read.
            check: whether a payload is read back before it is sent, so that a value is refused
                that its consumers would refuse.

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
        self._check = check

    def encode(self, value: M, /) -> bytes:
        """Write a model.

        Raises:
            TypeError: it is no model at all.
            ValueError: its model would refuse it on reading.
        """
        write = getattr(value, "model_dump_json", None)
        if write is None:
            raise TypeError(f"it is a {type(value).__name__}, not a {self._model.__name__}")
        # What pydantic warns of is what the check refuses.
        payload: bytes = write(warnings=not self._check).encode()
        if self._check:
            try:
                self._model.model_validate_json(payload)
            except ValueError as error:
                raise ValueError(f"a consumer would refuse it: {_first_reason(error)}") from error
        return payload

    def decode(self, payload: bytes, /) -> M:
        """Read and validate a model."""
        return self._model.model_validate_json(payload)

    def __repr__(self) -> str:
        return f"PydanticSerde({self._model.__name__})"


def _first_reason(error: ValueError) -> str:
    """Say in a line which fields pydantic refuses and why, without the values."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    found = details(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in found[:3]
    )


_PYDANTIC_MISSING: Final = (
    "PydanticSerde needs pydantic: install it with pip install 'iggy-python[pydantic]'"
)
