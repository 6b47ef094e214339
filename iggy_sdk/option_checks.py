"""Checks of option values, made from the annotations of the options.

    check_settings("consumer", {"batch_length": "10"}, ConsumerSettings)
    ConfigurationError: batch_length is '10' ... Give batch_length as a whole number or None.

What a type checker refuses is refused at run time as well: with the name of the option, what was
given and what is possible. Annotations are read once for each class. Bounds, such as "1 or more",
are left to the classes themselves.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from functools import cache
from reprlib import Repr
from typing import Any, Final, Literal, NamedTuple, TypeVar

from iggy_sdk.errors import ConfigurationError

SHOWN_CHARACTERS_MAX: Final = 80
"""How much of a value an error shows; the middle of longer ones is left out."""

_SECRET: Final = frozenset({"password", "token", "credentials"})

# What to write, by the name of the class that is wanted. The classes are above this module.
_EXAMPLES: Final[Mapping[str, str]] = {
    "AutoCommit": "AutoCommit.after_each()",
    "BackgroundMode": "BackgroundMode(linger_time=0.005)",
    "Backpressure": "Backpressure.fail()",
    "Compression": "Compression('gzip')",
    "DirectMode": "DirectMode(batch_length=500)",
    "Encryptor": "Encryptor.from_base64(key)",
    "Endpoint": "Endpoint('localhost', 8090)",
    "NewTopic": "NewTopic(partitions_count=3)",
    "Partitioning": "Partitioning.partition(2)",
    "PasswordLogin": "PasswordLogin(username, password)",
    "PollingStrategy": "PollingStrategy.first()",
    "Reconnect": "Reconnect(retries=5)",
    "Retry": "Retry(attempts=5)",
    "Serde": "JsonSerde()",
    "TlsOptions": "TlsOptions(ca_file='ca.pem')",
    "TokenLogin": "TokenLogin(token)",
}
_NUMBERS: Final = (int, float)


class Kind(NamedTuple):
    """What an option may be.

    Attributes:
        accepts: whether a value is of this kind.
        words: what may be given, in the words of an error.
    """

    accepts: Callable[[Any], bool]
    words: tuple[str, ...]


def check_fields(options: Any) -> None:
    """Refuse an object with a field of the wrong type; for ``__post_init__``.

    Raises:
        ConfigurationError: the field, what it is, and what it may be.
    """
    kinds = _kinds_of(options.__class__)
    for field in fields(options):
        check_value(field.name, getattr(options, field.name), kinds[field.name])


def check_settings(
    what: str, given: Mapping[str, object], *tables: type, takes_none: bool = False
) -> None:
    """Refuse keywords that do not exist, or have values of the wrong type.

    Args:
        what: whose options these are, such as ``consumer``.
        given: the keywords.
        tables: classes whose annotations say what is possible; the last one that has a name counts.
        takes_none: whether None is possible everywhere, because it means the default.

    Raises:
        ConfigurationError: a value is of the wrong type.
        TypeError: there is no such option.
    """
    kinds: dict[str, Kind] = {}
    for table in tables:
        kinds |= _kinds_of(table)
    for name, value in given.items():
        if name not in kinds:
            raise unknown_option(what, name, kinds)
        if value is not None or not takes_none:
            check_value(name, value, kinds[name])


def check_value(name: str, value: object, kind: Kind) -> None:
    """Refuse a value of the wrong type.

    Raises:
        ConfigurationError: what was given, and what is possible.
    """
    if not kind.accepts(value):
        raise invalid_option(name, value, f"Give {name} as {_either(kind.words)}.")


def check_identifiers(**identifiers: object) -> None:
    """Refuse what is neither the name nor the id of a stream, topic, consumer or group.

    Raises:
        ConfigurationError: which one, and what was given.
    """
    for name, value in identifiers.items():
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise invalid_option(name, value, f"Give {name} as a name or the number of its id.")


def invalid_option(name: str, value: object, advice: str) -> ConfigurationError:
    """Make the error for a value that cannot be used; secrets are not shown."""
    shown = f"of type {type(value).__name__}" if name in _SECRET else _shown(value)
    return ConfigurationError(f"{name} is {shown}", advice=advice)


def unknown_option(what: str, name: str, known: Mapping[str, object]) -> TypeError:
    """Make the error for an option that does not exist, with the nearest name."""
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"options are {', '.join(sorted(known))}"
    return TypeError(f"a {what} has no option {name!r}; {hint}")


def _shown(value: object) -> str:
    """Write a value in a few words."""
    writer = Repr()
    writer.maxstring = writer.maxother = writer.maxlong = SHOWN_CHARACTERS_MAX
    return writer.repr(value)


def _either(words: Sequence[str]) -> str:
    """Join alternatives."""
    once = list(dict.fromkeys(words))
    return " or ".join(filter(None, [", ".join(once[:-1]), once[-1]]))


# From annotations to kinds


@cache
def _kinds_of(table: Any) -> Mapping[str, Kind]:
    """Read the annotations of a class."""
    return {name: kind_of(hint) for name, hint in typing.get_type_hints(table).items()}


@cache
def kind_of(hint: Any) -> Kind:
    """Turn an annotation into what checks it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return Kind(lambda value: True, ("anything",))
    if hint is None or hint is types.NoneType:
        return Kind(lambda value: value is None, ("None",))
    if origin is Literal:
        return Kind(lambda value: _is_among(value, arguments), tuple(map(repr, arguments)))
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments)
    if origin in (tuple, Sequence, list):
        return _sequence(kind_of(arguments[0]))
    if origin is Mapping:
        return _mapping(kind_of(arguments[0]), kind_of(arguments[1]))
    if origin is Callable or hint is Callable:
        return Kind(callable, ("a function",))
    return _instance(origin or hint)


def _is_among(value: object, choices: tuple[Any, ...]) -> bool:
    """Compare by type too: True is no 1."""
    return any(type(value) is type(choice) and value == choice for choice in choices)


def _one_of(hints: tuple[Any, ...]) -> Kind:
    kinds = [kind_of(hint) for hint in hints]
    words = [word for kind in kinds for word in kind.words]
    if timedelta in hints:
        words = ["seconds", *(word for word in words if word not in ("a number", "a whole number"))]
    if "None" in words:
        words = [*(word for word in words if word != "None"), "None"]
    return Kind(lambda value: any(kind.accepts(value) for kind in kinds), tuple(words))


def _sequence(item: Kind) -> Kind:
    def accepts(value: object) -> bool:
        # A text is a sequence of texts to Python, and hardly ever meant to be one.
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return False
        return all(map(item.accepts, value))

    return Kind(accepts, (f"a list (each {_either(item.words)})",))


def _mapping(key: Kind, item: Kind) -> Kind:
    def accepts(value: object) -> bool:
        return isinstance(value, Mapping) and all(
            key.accepts(one) and item.accepts(other) for one, other in value.items()
        )

    return Kind(accepts, (f"a mapping from {_either(key.words)} to {_either(item.words)}",))


def _instance(wanted: Any) -> Kind:
    if wanted is bool:
        return Kind(lambda value: isinstance(value, bool), ("True", "False"))
    if wanted in _NUMBERS:
        accepted = int if wanted is int else _NUMBERS
        word = "a whole number" if wanted is int else "a number"
        return Kind(
            lambda value: isinstance(value, accepted) and not isinstance(value, bool), (word,)
        )
    if wanted is str:
        return Kind(lambda value: isinstance(value, str), ("text",))
    if typing.is_typeddict(wanted):
        return Kind(lambda value: isinstance(value, Mapping), ("a mapping of its fields",))
    if getattr(wanted, "_is_protocol", False):
        return _with_methods(wanted)
    if issubclass(wanted, Enum):
        names = tuple(f"{wanted.__name__}.{member.name}" for member in wanted)
        return Kind(lambda value: isinstance(value, wanted), names)
    return Kind(lambda value: isinstance(value, wanted), (_named(wanted),))


def _with_methods(protocol: Any) -> Kind:
    """Accept objects with the methods of a protocol, and not their classes."""
    methods = [name for name in vars(protocol) if not name.startswith("_")]

    def accepts(value: object) -> bool:
        return not isinstance(value, type) and all(
            callable(getattr(value, name, None)) for name in methods
        )

    calls = " and ".join(f"{name}()" for name in methods)
    return Kind(accepts, (f"an object with {calls}{_example(protocol)}",))


def _named(wanted: type) -> str:
    name = wanted.__name__
    article = "an" if name[0] in "AEIOU" else "a"
    return f"{article} {name}{_example(wanted)}"


def _example(wanted: type) -> str:
    example = _EXAMPLES.get(wanted.__name__)
    return f" such as {example}" if example else ""
