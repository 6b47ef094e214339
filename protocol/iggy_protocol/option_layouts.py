"""Layouts of commands and replies whose fields are options on the wire.

A classic request has a field for the expiry of a topic; from 0.9 on the expiry is an option, and
from 0.10 on so are the names in an update. The command is the same object in every dialect, so a
``Setting`` moves a value between a field of the record and its option. An option stays in
``options`` if its field cannot hold it, where ``validation`` finds it, or has its value anyway.
Knows no command.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    NotInDialect,
    RuleViolation,
    UnknownDiscriminant,
)
from iggy_protocol.fields import CompiledAdapter, CountPrefixedArray, Field, RecordStruct
from iggy_protocol.options import Options, OptionScope, OptionSpec, OptionValue
from iggy_protocol.primitives import NAME, OPTIONS_TO_END, PREFIXED_OPTIONS, U8
from iggy_protocol.records import record
from iggy_protocol.user_headers import HeaderScalar

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_RESET: Final = object()
"""Of a setting that an update cannot reset by its field."""


def _same(value: Any) -> Any:
    return value


@record
class Setting:
    """A field of a record that is an option on the wire.

    Attributes:
        field: its name in the record.
        absent: its value where the option is missing.
        reset: its value where an update resets the option; by default updates cannot.
        read: turns the value of the option into that of the field.
        write: the other way round.
    """

    field: str
    spec: OptionSpec
    absent: Any = None
    reset: Any = NO_RESET
    read: Callable[[Any], Any] = _same
    write: Callable[[Any], HeaderScalar] = _same

    def value_in(self, options: Mapping[str, OptionValue]) -> Any:
        """Return the value of the field; raise RuleViolation for an option that it cannot hold."""
        value = options.get(self.spec.key)
        if value is None:
            return self.absent
        return self.read(self.spec.canonical(value).value)

    def option_of(self, value: Any) -> OptionValue:
        """Return the option with the value of the field."""
        return self.spec.value_of(self.write(value))


class OptionRecord(CompiledAdapter):
    """A record that differs from the fields on the wire, because some are options there."""

    def __init__(
        self,
        type_: type[Any],
        fields: tuple[Field, ...],
        decode: Callable[[SimpleNamespace], Any],
        encode: Callable[[Any], SimpleNamespace],
    ) -> None:
        super().__init__(RecordStruct(SimpleNamespace, *fields), decode, encode)
        self.type = type_


def _take(options: Options, settings: tuple[Setting, ...]) -> dict[str, Any]:
    """Return the fields that options stand for, with what is left of the options."""
    left = dict(options)
    taken: dict[str, Any] = {}
    for setting in settings:
        try:
            value = setting.value_in(options)
        except RuleViolation:
            value = setting.absent
        # In an update this value stands for a reset; given as an option it changes nothing.
        if value == setting.reset:
            value = setting.absent
        if value != setting.absent:
            del left[setting.spec.key]
        taken[setting.field] = value
    return {**taken, "options": Options(left)}


def _merge(command: Any, settings: tuple[Setting, ...]) -> Options:
    """Return the options of a command and those of its fields, by key as official clients do."""
    merged: dict[str, OptionValue] = dict(command.options)
    for setting in settings:
        value = getattr(command, setting.field)
        if value == setting.absent or value == setting.reset:
            continue
        if setting.spec.key in merged:
            raise LocalProtocolError(
                f"given as an option and as the field {setting.field}", field="options"
            )
        merged[setting.spec.key] = setting.option_of(value)
    return Options(dict(sorted(merged.items())))


def _refuse_unsaid(command: Any, unsaid: Mapping[str, tuple[Any, ...]]) -> None:
    for field, allowed in unsaid.items():
        if getattr(command, field) not in allowed:
            raise NotInDialect("the protocol of the server cannot express this field", field=field)


def with_options(
    *fields: Field,
    settings: tuple[Setting, ...] = (),
    unsaid: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
) -> Callable[[type[Any]], OptionRecord]:
    """Declare a request whose options follow its fields, to the end.

    Args:
        fields: what comes before the options.
        settings: the fields of the command that are options.
        unsaid: the fields that the dialect does not have, with the values that may be left out;
            the first of them is what a reader gets.
    """
    absent = {field: allowed[0] for field, allowed in unsaid.items()}

    def declare(type_: type[Any]) -> OptionRecord:
        def decode(raw: SimpleNamespace) -> Any:
            return type_(**absent, **{**vars(raw), **_take(raw.options, settings)})

        def encode(command: Any) -> SimpleNamespace:
            _refuse_unsaid(command, unsaid)
            values = {str(one.name): getattr(command, str(one.name)) for one in fields}
            return SimpleNamespace(**values, options=_merge(command, settings))

        return OptionRecord(type_, (*fields, "options" / OPTIONS_TO_END), decode, encode)

    return declare


def _scope_byte(scope: OptionScope) -> CompiledAdapter:
    def check(code: int) -> int:
        if code != scope:
            raise UnknownDiscriminant(f"{code} is not the scope {scope.name}")
        return code

    return CompiledAdapter(U8, check, _same, label=f"u8: {scope.value} {scope.name.lower()}")


def _patch_fault(options: Mapping[str, Any], reset: tuple[str, ...]) -> str | None:
    if not options and not reset:
        return "an update sets or resets something"
    if len(set(reset)) != len(reset):
        return "an option is reset twice"
    if not set(reset).isdisjoint(options):
        return "an option is set and reset"
    return None


def _take_reset(reset: tuple[str, ...], settings: tuple[Setting, ...]) -> dict[str, Any]:
    """Return the fields that keys stand for which an update resets, with the keys that are left."""
    taken = {
        setting.field: setting.reset
        for setting in settings
        if setting.reset is not NO_RESET and setting.spec.key in reset
    }
    left = set(reset) - {one.spec.key for one in settings if one.field in taken}
    return {**taken, "reset": frozenset(left)}


def _merge_reset(command: Any, settings: tuple[Setting, ...]) -> tuple[str, ...]:
    """Return the keys that a command resets, by its fields or by name."""
    by_field = {
        setting.spec.key for setting in settings if getattr(command, setting.field) == setting.reset
    }
    return tuple(sorted(by_field | command.reset))


def option_patch(
    scope: OptionScope,
    *target: Field,
    settings: tuple[Setting, ...],
    unsaid: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
) -> Callable[[type[Any]], OptionRecord]:
    """Declare an update from 0.10 on: what it is for, the options it resets and those it sets.

    Args:
        scope: the kind of resource; its number is the first byte.
        target: what names the resource.
        settings: the fields of the command that are options.
        unsaid: as for ``with_options``.
    """
    absent = {field: allowed[0] for field, allowed in unsaid.items()}

    def declare(type_: type[Any]) -> OptionRecord:
        def decode(raw: SimpleNamespace) -> Any:
            values = {str(one.name): getattr(raw, str(one.name)) for one in target}
            fault = _patch_fault(raw.options, raw.reset)
            if fault is not None:
                raise InvalidField(fault, status=INVALID_COMMAND)
            taken = {**_take(raw.options, settings), **_take_reset(raw.reset, settings)}
            return type_(**absent, **values, **taken)

        def encode(command: Any) -> SimpleNamespace:
            _refuse_unsaid(command, unsaid)
            options, reset = _merge(command, settings), _merge_reset(command, settings)
            fault = _patch_fault(options, reset)
            if fault is not None:
                raise LocalProtocolError(fault)
            values = {str(one.name): getattr(command, str(one.name)) for one in target}
            return SimpleNamespace(scope=scope, **values, reset=reset, options=options)

        return OptionRecord(type_, fields, decode, encode)

    fields = (
        "scope" / _scope_byte(scope),
        *target,
        "reset" / CountPrefixedArray(NAME, count_size=1),
        "options" / OPTIONS_TO_END,
    )
    return declare


REPORTED_OPTIONS: Final = (
    "options" / PREFIXED_OPTIONS,
    "derived_options" / PREFIXED_OPTIONS,
)


def reported_with_options(
    type_: type[Any],
    *fields: Field,
    settings: tuple[Setting, ...],
    untold: Mapping[str, Any] = MappingProxyType({}),
) -> OptionRecord:
    """Declare a reply whose settings are in its explicit and derived options.

    Args:
        type_: the record.
        fields: what is on the wire, ``REPORTED_OPTIONS`` among it.
        settings: the fields of the record that are options.
        untold: the fields that the dialect does not report, with the value to take for each.
    """

    def decode(raw: SimpleNamespace) -> Any:
        values = vars(raw)
        union = {**values["derived_options"], **values["options"]}
        try:
            taken = {setting.field: setting.value_in(union) for setting in settings}
        except RuleViolation as error:
            raise InvalidField(str(error), status=error.status) from None
        return type_(**values, **taken, **untold)

    def encode(value: Any) -> SimpleNamespace:
        explicit, derived = dict(value.options), dict(value.derived_options)
        for setting in settings:
            _report(setting, getattr(value, setting.field), explicit, derived)
        values = {str(one.name): getattr(value, str(one.name)) for one in fields}
        values |= {"options": Options(explicit), "derived_options": Options(derived)}
        return SimpleNamespace(**values)

    return OptionRecord(type_, fields, decode, encode)


def _report(
    setting: Setting,
    value: Any,
    explicit: dict[str, OptionValue],
    derived: dict[str, OptionValue],
) -> None:
    """Let the options say what the field says; one that is in neither block becomes derived."""
    key = setting.spec.key
    block = explicit if key in explicit else derived
    try:
        told = setting.value_in(block)
    except RuleViolation:
        told = NO_RESET
    if told != value:
        block[key] = setting.option_of(value)
