"""Serdes: what each writes, and what each refuses to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from iggy_sdk.errors import SerdeError
from iggy_sdk.pipeline import Pipeline
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


# Checked on the way out

WRONG: Any = "one"


class Shipment(msgspec.Struct):
    """A struct with a constraint and a part."""

    item: Item
    weight: Annotated[float, msgspec.Meta(gt=0)]


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Shipment(Item(WRONG, "x"), 1.0), r"Expected `int`, got `str` - at `\$\.item\.id`"),
        (Shipment(Item(1, "x"), -1.0), r"at `\$\.weight`"),
        (Point(1, 2), r"missing required field `item`"),
    ],
)
def test_msgspec_serde_when_its_type_would_refuse_a_value_then_does_not_write_it(
    value, reason, form
):
    serde = MsgspecSerde(Shipment, form=form)

    with pytest.raises(ValueError, match=f"a consumer would refuse it: .*{reason}"):
        serde.encode(value)
    with pytest.raises(ValueError):
        serde.decode(MsgspecSerde(Shipment, form=form, check=False).encode(value))


@pytest.mark.parametrize(
    "value", [Order.model_construct(id="one", total=2.0), Order.model_construct(total=1.0)]
)
def test_pydantic_serde_when_its_model_would_refuse_a_value_then_does_not_write_it(value):
    with pytest.raises(ValueError, match="a consumer would refuse it: id: "):
        PydanticSerde(Order).encode(value)


def test_pydantic_serde_when_not_checked_then_writes_what_it_is_given():
    value = Order.model_construct(id=1)

    assert PydanticSerde(Order, check=False).encode(value) == b'{"id":1}'


def test_pydantic_serde_when_given_something_else_then_names_both_kinds():
    with pytest.raises(TypeError, match="it is a dict, not a Order"):
        PydanticSerde(Order).encode({"id": 1})  # type: ignore[arg-type]


def test_pipeline_when_a_serde_refuses_a_value_then_the_error_names_type_and_field():
    pipeline = Pipeline(MsgspecSerde(Item))

    with pytest.raises(
        SerdeError, match=r"MsgspecSerde\(Item\) cannot write.*at `\$\.id`"
    ) as caught:
        pipeline.encode_message(Item(WRONG, "x"))

    assert "nothing was sent" in caught.value.advice
