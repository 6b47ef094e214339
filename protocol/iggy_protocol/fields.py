"""The building blocks of the layouts, as constructs that compile.

construct has a block for most of what this protocol needs, with two gaps: its adapters are not
compiled (everything below them runs interpreted, ten times slower), and its open-ended lists drop
a truncated last element without an error. The blocks here fill those gaps and turn bytes directly
into frozen dataclasses, without a Container in between.

Every block has two forms that must agree: ``_parse``/``_build`` run interpreted and carry the path
of the field, for error messages; ``_emitparse``/``_emitbuild`` return the Python expression of the
compiled form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from construct import Construct, Subconstruct

from iggy_protocol.errors import (
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    RemoteProtocolError,
    TruncatedField,
    UnknownDiscriminant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    class CompilingConstruct(Construct[Any, Any]):
        """construct's stubs leave out what its compiler offers to authors of blocks."""

        def _compileinstance(self, code: Any) -> None: ...

    class CompilingSubconstruct(Subconstruct[Any, Any, Any, Any]):
        """The same around another construct."""

        subcon: Any

        def _compileinstance(self, code: Any) -> None: ...
else:
    CompilingConstruct, CompilingSubconstruct = Construct, Subconstruct

Field = Any
"""A declaration made of constructs. They have no types; ``Layout`` adds them."""


def field_name(path: str) -> str:
    """Turn construct's ``(parsing) -> topics -> 0 -> name`` into ``topics.0.name``."""
    return ".".join(path.split(" -> ")[1:])


@contextmanager
def add_field_to_errors(path: str) -> Iterator[None]:
    """Add the name of the field to an error that has none."""
    try:
        yield
    except RemoteProtocolError as error:
        error.field = error.field or field_name(path)
        raise
    except LocalProtocolError as error:
        if error.field:
            raise
        raise type(error)(error.message, field=field_name(path)) from None


class RecordStruct(CompilingConstruct):
    """A frozen dataclass, field after field.

    The wire order is the order of the fields given here; each is named as in the dataclass.
    """

    def __init__(self, type_: type[Any], *fields: Field) -> None:
        super().__init__()
        self.type = type_
        self.fields = fields

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = {sub.name: sub._parsereport(stream, context, path) for sub in self.fields}
        return self.type(**values)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        for sub in self.fields:
            sub._build(getattr(obj, str(sub.name)), stream, context, path)
        return obj

    def _emitparse(self, code: Any) -> str:
        self._compileinstance(code)
        arguments = ", ".join(f"{sub.name}={sub._compileparse(code)}" for sub in self.fields)
        return f"linkedinstances[{id(self)}].type({arguments})"

    def _emitbuild(self, code: Any) -> str:
        name = f"build_record_{code.allocateId()}"
        lines = [f"def {name}(record, io, this):"]
        for sub in self.fields:
            lines += [f"    obj = record.{sub.name}", f"    {sub._compilebuild(code)}"]
        code.append("\n".join([*lines, "    return record"]))
        return f"{name}(obj, io, this)"


class CompiledAdapter(CompilingSubconstruct):
    """Converts a value: ``decode`` after parsing, ``encode`` before building.

    Both may raise a protocol error without a location; field and offset are added here.
    """

    def __init__(
        self,
        subcon: Field,
        decode: Callable[[Any], Any],
        encode: Callable[[Any], Any],
        label: str = "",
    ) -> None:
        super().__init__(subcon)
        self.decode = decode
        self.encode = encode
        self.label = label

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        start = stream.tell()
        value = self.subcon._parsereport(stream, context, path)
        with add_field_to_errors(path):
            try:
                return self.decode(value)
            except RemoteProtocolError as error:
                error.offset, error.need = start, stream.tell() - start
                error.have = error.need
                raise

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        with add_field_to_errors(path):
            value = self.encode(obj)
        self.subcon._build(value, stream, context, path)
        return obj

    def _emitparse(self, code: Any) -> str:
        self._compileinstance(code)
        return f"linkedinstances[{id(self)}].decode({self.subcon._compileparse(code)})"

    def _emitbuild(self, code: Any) -> str:
        self._compileinstance(code)
        inner = self.subcon._compilebuild(code)
        return f"reuse(linkedinstances[{id(self)}].encode(obj), lambda obj: {inner})"


class Absent(CompilingConstruct):
    """A field of a request that a dialect does not have: no bytes, no value but its default."""

    def __init__(self, default: Any) -> None:
        super().__init__()
        self.default = default

    def refuse(self, obj: Any) -> None:
        """Raise an error for a value that is not the default, because it would be lost."""
        if obj != self.default:
            raise NotInDialect("the protocol of the server cannot express this field")

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self.default

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        with add_field_to_errors(path):
            self.refuse(obj)
        return obj

    def _emitparse(self, code: Any) -> str:
        self._compileinstance(code)
        return f"linkedinstances[{id(self)}].default"

    def _emitbuild(self, code: Any) -> str:
        self._compileinstance(code)
        return f"linkedinstances[{id(self)}].refuse(obj)"


class Untold(Absent):
    """A field of a reply that a dialect does not have: written as nothing, whatever it is."""

    def refuse(self, obj: Any) -> None:
        """Accept the value: a server answers what the dialect of its client can express."""


class LengthPrefixedBytes(CompilingSubconstruct):
    """Bytes behind their own length; the length field is the subconstruct."""

    def __init__(self, length: Field, label: str = "") -> None:
        super().__init__(length)
        self.label = label

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        size = self.subcon._parsereport(stream, context, path)
        with add_field_to_errors(path):
            data: bytes = stream.read(size)
        return data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.subcon._build(len(obj), stream, context, path)
        stream.write(obj)
        return obj

    def _emitparse(self, code: Any) -> str:
        return f"io.read({self.subcon._compileparse(code)})"

    def _emitbuild(self, code: Any) -> str:
        inner = self.subcon._compilebuild(code)
        return f"(reuse(len(obj), lambda obj: {inner}), io.write(obj))"


class Repeated(CompilingSubconstruct, ABC):
    """A block whose own Python decides how often its subconstruct runs.

    Subclasses implement ``parse_elements`` and ``build_elements``. Both forms of the block
    call them, so the interpreted and the compiled form cannot differ.
    """

    @abstractmethod
    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        """Read the whole block; ``parse(index)`` reads one element."""

    @abstractmethod
    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        """Write the whole block; ``build(element, index)`` writes one element."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        def parse(index: int) -> Any:
            return self.subcon._parsereport(stream, context, self._path(path, index))

        with add_field_to_errors(path):
            return self.parse_elements(stream, parse)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        def build(element: Any, index: int) -> None:
            self.subcon._build(element, stream, context, self._path(path, index))

        with add_field_to_errors(path):
            self.build_elements(obj, stream, build)
        return obj

    def _path(self, path: str, index: int) -> str:
        return f"{path} -> {index}"

    def _emitparse(self, code: Any) -> str:
        self._compileinstance(code)
        inner = self.subcon._compileparse(code)
        return f"linkedinstances[{id(self)}].parse_elements(io, lambda index: {inner})"

    def _emitbuild(self, code: Any) -> str:
        self._compileinstance(code)
        inner = self.subcon._compilebuild(code)
        return f"linkedinstances[{id(self)}].build_elements(obj, io, lambda obj, index: {inner})"


class StrictGreedyRange(Repeated):
    """A tuple of elements up to the last byte of the payload; there is no count on the wire."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> tuple[Any, ...]:
        elements: list[Any] = []
        while stream.remaining:
            elements.append(parse(len(elements)))
        return tuple(elements)

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        for index, element in enumerate(obj):
            build(element, index)


class SizePrefixedRange(Repeated):
    """A tuple of elements behind their size in four bytes, which they must fill exactly."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> tuple[Any, ...]:
        size = int.from_bytes(stream.read(4), "little")
        start = stream.tell()
        if size > stream.remaining:
            raise TruncatedField(
                f"{size} bytes needed, {stream.remaining} left",
                offset=start,
                need=size,
                have=stream.remaining,
            )
        elements: list[Any] = []
        while stream.tell() < start + size:
            elements.append(parse(len(elements)))
        have = stream.tell() - start
        if have != size:
            raise InvalidField(
                f"the size says {size} bytes, the elements have {have}",
                offset=start,
                need=size,
                have=have,
            )
        return tuple(elements)

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        start = stream.tell()
        stream.write(bytes(4))
        for index, element in enumerate(obj):
            build(element, index)
        _write_size(stream, start)


class CountPrefixedArray(Repeated):
    """A tuple of elements behind a count of one byte or four."""

    def __init__(self, subcon: Field, *, count_size: int) -> None:
        super().__init__(subcon)
        self.count_size = count_size

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> tuple[Any, ...]:
        count = int.from_bytes(stream.read(self.count_size), "little")
        return tuple([parse(index) for index in range(count)])

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        if len(obj) >= 1 << 8 * self.count_size:
            raise LocalProtocolError(f"{len(obj)} elements do not fit the count of this list")
        stream.write(len(obj).to_bytes(self.count_size, "little"))
        for index, element in enumerate(obj):
            build(element, index)


class ContinuationFlagArray(Repeated):
    """A tuple of elements, each announced by a byte: one if another follows, zero at the end."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> tuple[Any, ...]:
        elements: list[Any] = []
        while stream.read(1) != b"\0":
            elements.append(parse(len(elements)))
        return tuple(elements)

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        for index, element in enumerate(obj):
            stream.write(b"\1")
            build(element, index)
        stream.write(b"\0")


class PresenceFlagged(Repeated):
    """A value behind a byte that is exactly one; behind any other byte there is none."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        return parse(0) if stream.read(1) == b"\1" else None

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        stream.write(b"\0" if obj is None else b"\1")
        if obj is not None:
            build(obj, 0)

    def _path(self, path: str, index: int) -> str:
        return path


class StrictPresenceFlagged(PresenceFlagged):
    """A value behind a byte that is one; no value behind a byte that is zero."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        start = stream.tell()
        flag = stream.read(1)
        if flag not in (b"\0", b"\1"):
            raise UnknownDiscriminant(f"{flag[0]} is no flag", offset=start, need=1, have=1)
        return parse(0) if flag == b"\1" else None


class OptionalTail(Repeated):
    """A last value that older peers omit: ``None`` when the payload ends before it."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        return parse(0) if stream.remaining else None

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        if obj is not None:
            build(obj, 0)

    def _path(self, path: str, index: int) -> str:
        return path


class SizeChecked(Repeated):
    """A value behind its size in four bytes, which must be the size it really has.

    As in Apache Iggy 0.8, the value is read first and its size compared afterwards: a wrong size is
    an ``InvalidField``, a truncated value a ``TruncatedField``.
    """

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Any:
        announced = int.from_bytes(stream.read(4), "little")
        start = stream.tell()
        value = parse(0)
        size = stream.tell() - start
        if size != announced:
            raise InvalidField(
                f"the size says {announced} bytes, the value has {size}",
                offset=start - 4,
                need=announced,
                have=size,
            )
        return value

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        start = stream.tell()
        stream.write(bytes(4))
        build(obj, 0)
        _write_size(stream, start)

    def _path(self, path: str, index: int) -> str:
        return path


def _write_size(stream: Any, start: int) -> None:
    """Write at ``start`` how many bytes follow the four of the size."""
    size = stream.tell() - start - 4
    stream.seek(start)
    stream.write(size.to_bytes(4, "little"))
    stream.seek(0, 2)
