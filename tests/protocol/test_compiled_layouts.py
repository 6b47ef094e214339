"""Valid records go through construct's compiled form alone.

The interpreted form gives the same results at a tenth of the speed, so no other test would notice
that a compiled layout fails and the interpreted one takes its place.
"""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iggy_protocol import CLASSIC, COMMANDS, CommandCode, Dialect, compile_commands
from iggy_protocol.layout import Layout
from iggy_protocol.registry import RecordCodec
from tests.protocol.strategies import values_of

some_examples = settings(max_examples=settings().max_examples // 4)

LAYOUTS = {
    id(codec.layout): codec.layout
    for spec in COMMANDS.values()
    for dialect in Dialect
    for codec in (spec.request[dialect], spec.reply[dialect])
    if isinstance(codec, RecordCodec)
}


def refuse(layout: Layout[object], given: object) -> NoReturn:
    raise AssertionError(f"{layout.name} was not handled by its compiled form: {given!r}")


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)
@some_examples
@given(data=st.data())
def test_layout_when_a_value_is_valid_then_the_compiled_form_does_all_the_work(layout, data):
    value = data.draw(values_of(layout.construct))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Layout, "_decode_explaining", refuse)
        patch.setattr(Layout, "_encode_explaining", refuse)

        assert layout.decode(layout.encode(value)) == value


def test_commands_when_compiled_before_then_also_their_replies_and_what_has_no_layout_is_left_out(
    monkeypatch,
):
    compiled = set()
    monkeypatch.setattr(Layout, "compile", lambda layout: compiled.add(layout.name))

    compile_commands([CommandCode.PING, CommandCode.LOGIN_USER, CommandCode.REGISTER], CLASSIC)

    assert compiled == {"Ping", "LoginUser", "Identity", "SessionDetails"}
