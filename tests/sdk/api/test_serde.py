"""Serdes: what each writes, and what each refuses to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from iggy_sdk.serde import JsonSerde, MsgspecSerde, PydanticSerde, RawSerde, StrSerde


class Order(pydantic.BaseModel):
    """A pydantic model."""

    id: int
    total: float


class Item(msgspec.Struct):
    """A msgspec struct."""

    id: int
    name: str


@dataclass
class Point:
    """A dataclass."""

    x: int
    y: int


@pytest.mark.parametrize(
    ("serde", "value", "payload"),
    [
        (RawSerde(), b"abc", b"abc"),
        (StrSerde(), "grüße", "grüße".encode()),
        (JsonSerde(), {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode()),
        (MsgspecSerde(Item), Item(1, "x"), b'{"id":1,"name":"x"}'),
        (MsgspecSerde(Point, form="msgpack"), Point(1, 2), b"\x82\xa1x\x01\xa1y\x02"),
        (PydanticSerde(Order), Order(id=1, total=9.5), b'{"id":1,"total":9.5}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_serde_when_a_value_is_written_then_reads_as_itself(serde, value, payload):
    assert serde.encode(value) == payload
    assert serde.decode(payload) == value


@pytest.mark.parametrize(
    ("serde", "payload"),
    [
        (StrSerde(), b"\xff"),
        (JsonSerde(), b"{"),
        (MsgspecSerde(Item), b'{"id":"one","name":"x"}'),
        (MsgspecSerde(Item, form="msgpack"), b"\xc1"),
        (PydanticSerde(Order), b'{"id":1}'),
    ],
)
def test_serde_when_a_payload_is_wrong_then_refuses(serde, payload):
    with pytest.raises(ValueError):
        serde.decode(payload)


def test_raw_serde_when_value_is_bytes_like_then_does_not_copy():
    for value in (b"a", bytearray(b"a"), memoryview(b"a")):
        assert RawSerde().encode(value) is value


def test_pydantic_serde_when_pydantic_is_missing_then_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)

    with pytest.raises(ModuleNotFoundError, match=r"iggy-python\[pydantic\]"):
        PydanticSerde(Order)


@pytest.mark.parametrize("model", [Item, int, Order(id=1, total=2.0)])
def test_pydantic_serde_when_given_no_model_then_refuses(model):
    with pytest.raises(TypeError, match=r"pydantic\.BaseModel"):
        PydanticSerde(model)
