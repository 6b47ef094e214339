"""Transforms of JSON messages: what each step does, and what it does not touch."""

from __future__ import annotations

import json

import pytest

from spark_jobs.errors import OptionError
from spark_jobs.jobs.transforms import PayloadMismatchError, read_step, run_steps

FACTS = {"stream": "s", "topic": "t", "partition": 2, "offset": 7, "timestamp": "2026-01-31"}


def run(document, *steps):
    """Run steps, each as (kind, text), on a document."""
    payload = json.dumps(document).encode()
    made = run_steps([read_step(*step) for step in steps], payload, FACTS)
    return None if made is None else json.loads(made)


@pytest.mark.parametrize(
    ("document", "step", "expected"),
    [
        ({"a": 1}, ("add", "b=2"), {"a": 1, "b": 2}),
        ({"a": 1}, ("add", "a=2"), {"a": 1}),
        ({"a": 1}, ("add", "b=two words"), {"a": 1, "b": "two words"}),
        ({"a": 1}, ("add", 'b="2"'), {"a": 1, "b": "2"}),
        ({"a": 1}, ("add", "b.c.d=null"), {"a": 1, "b": {"c": {"d": None}}}),
        ({"a": {"x": 1}}, ("add", "b=$.a.x"), {"a": {"x": 1}, "b": 1}),
        ({"a": 1}, ("add", "b=$.gone"), {"a": 1}),
        ({"a": 1}, ("add", "at=$offset"), {"a": 1, "at": 7}),
        ({"a": 1}, ("update", "a=[1, 2]"), {"a": [1, 2]}),
        ({"a": 1}, ("update", "b=2"), {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, ("update", "a.b=5"), {"a": {"b": 5, "c": 2}}),
        ({"a": {"b": 1, "c": 2}, "d": 3}, ("delete", "a.b, d, gone.x"), {"a": {"c": 2}}),
        ({"a": {"b": 1, "c": 2}, "d": 3, "e": 4}, ("keep", "e,a.c"), {"a": {"c": 2}, "e": 4}),
    ],
)
def test_step_when_run_then_changes_what_it_names_and_nothing_else(document, step, expected):
    assert run(document, step) == expected


def test_fields_when_not_named_then_keep_their_order():
    payload = b'{"z":1,"a":2,"m":3}'

    assert run_steps([read_step("delete", "a")], payload, FACTS) == b'{"z":1,"m":3}'


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("n>=10", True),
        ("n > 10", False),
        ("n<=10", True),
        ("n<10", False),
        ('s == "x y"', True),
        ("s==x y", True),
        ("s!=x", True),
        ("gone!=1", True),
        ("gone==1", False),
        ("s ~ ^x", True),
        ("s~^y", False),
        ("inner.flag==true", True),
        ("inner.flag", True),
        ("!inner.flag", False),
        ("!gone", True),
        ("gone", False),
    ],
)
def test_filter_when_a_document_fits_then_it_goes_on(text, passes):
    document = {"n": 10, "s": "x y", "inner": {"flag": True}}

    assert run(document, ("filter", text)) == (document if passes else None)


def test_steps_when_there_are_several_then_run_in_their_order():
    moved = run({"a": 1}, ("add", "b=$.a"), ("delete", "a"), ("filter", "!a"), ("update", "b=2"))

    assert moved == {"b": 2}
    assert run({"a": 1}, ("delete", "a"), ("filter", "a")) is None


def test_values_when_made_then_are_fresh_for_each_message():
    steps = [read_step("add", "id=$uuid"), read_step("add", "seen=$now")]

    first, second = (json.loads(run_steps(steps, b"{}", FACTS) or b"") for _ in range(2))

    assert first["id"] != second["id"]
    assert first["seen"] <= second["seen"]


def test_literal_when_a_later_step_changes_it_then_only_in_that_message():
    steps = [read_step("add", 'a={"b": 1}'), read_step("update", "a.b=$.n")]

    made = [run_steps(steps, payload, FACTS) for payload in (b'{"n":5}', b"{}")]

    assert made == [b'{"n":5,"a":{"b":5}}', b'{"a":{"b":1}}']


@pytest.mark.parametrize(
    ("payload", "step", "reason"),
    [
        (b"nope", ("delete", "a"), "not JSON"),
        (b'{"a":1} and more', ("delete", "a"), "not JSON"),
        (b"\xff", ("delete", "a"), "not JSON"),
        (b"[1]", ("delete", "a"), "no object"),
        (b'{"a":"x"}', ("filter", "a>1"), "str and cannot be compared"),
        (b'{"a":7}', ("filter", "a~7"), "int and cannot be compared"),
        (b'{"a":7}', ("add", "a.b=1"), "a holds no object"),
    ],
)
def test_document_when_it_does_not_fit_a_step_then_the_reason_is_given(payload, step, reason):
    with pytest.raises(PayloadMismatchError, match=reason):
        run_steps([read_step(*step)], payload, FACTS)


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (("add", "a"), "FIELD=VALUE"),
        (("add", "a=$nwo"), r"\$now"),
        (("delete", "a,,b"), "id,user.name"),
        (("keep", ""), "id,user.name"),
        (("filter", "a>=>1"), "FIELD>=10"),
        (("filter", "a b"), "FIELD>=10"),
        (("filter", "a~("), "pattern"),
    ],
)
def test_step_when_it_cannot_be_read_then_the_answer_helps(step, answer):
    with pytest.raises(OptionError, match=answer):
        read_step(*step)


def test_copy_when_its_source_is_changed_later_then_stays_as_it_was():
    made = run({"a": {"x": 1}}, ("add", "b=$.a"), ("update", "a.x=2"), ("add", "a.self=$.a"))

    assert made == {"a": {"x": 2, "self": {"x": 2}}, "b": {"x": 1}}


def test_payload_when_nested_too_deeply_then_is_a_misfit_and_not_the_end_of_the_job():
    payload = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    with pytest.raises(PayloadMismatchError, match="nested"):
        run_steps([read_step("delete", "b")], payload, FACTS)
