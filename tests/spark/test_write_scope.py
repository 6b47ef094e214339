"""What sets the ids of a task apart: from the properties that Spark gives to tasks."""

from __future__ import annotations

import pytest
from pyspark import TaskContext

from spark_jobs.options import write_options
from spark_jobs.write_task import scope_of

GIVEN = {"server": "iggy://127.0.0.1:1", "stream": "s", "topic": "t"}
IN_BATCH = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7"}
FIRST_WRITE = {**IN_BATCH, "spark.sql.execution.id": "12", "spark.sql.execution.root.id": "10"}
ONE_OF_TWO = {**FIRST_WRITE, "spark.rdd.scope": '{"id":"spark_plan_1"}'}


def scope(properties, *, name="name", task=3, is_only_write=False, **options):
    context = object.__new__(TaskContext)
    context._partitionId = task
    context._localProperties = properties
    given = write_options({**GIVEN, **options})
    return scope_of(context, given, name, is_only_write=is_only_write)


@pytest.mark.parametrize(
    ("properties", "more"),
    [
        (FIRST_WRITE, {}),
        ({**FIRST_WRITE, "spark.sql.execution.id": "92", "spark.sql.execution.root.id": "90"}, {}),
        (FIRST_WRITE, {"name": "other"}),
    ],
)
def test_scope_when_a_micro_batch_is_repeated_then_is_the_same(properties, more):
    assert scope(properties, **more) == scope(FIRST_WRITE)


def test_scope_when_anything_about_the_write_differs_then_is_another():
    second = {**FIRST_WRITE, "spark.sql.execution.id": "13"}
    scopes = [
        scope(FIRST_WRITE),
        scope(second),
        scope(FIRST_WRITE, task=4),
        scope(FIRST_WRITE, stream="other"),
        scope(FIRST_WRITE, writerId="mine"),
        scope({**FIRST_WRITE, "sql.streaming.queryId": "other"}),
        scope({**FIRST_WRITE, "streaming.sql.batchId": "8"}),
        scope(IN_BATCH, is_only_write=True),
    ]

    assert len(set(scopes)) == len(scopes)


def test_scope_when_a_query_has_a_sink_of_its_own_then_what_else_runs_does_not_matter():
    assert scope(FIRST_WRITE, is_only_write=True) == scope(IN_BATCH, is_only_write=True)


@pytest.mark.parametrize("properties", [IN_BATCH, ONE_OF_TWO, {}])
def test_scope_when_spark_does_not_say_which_write_it_is_then_each_has_its_own(properties):
    assert scope(properties, name="one") != scope(properties, name="two")
    assert scope(properties, name="one") == scope(properties, name="one")


def test_scope_when_a_batch_write_is_named_then_is_the_same_in_every_run():
    assert scope({}, name="one", writerId="w") == scope({}, name="two", writerId="w")
    assert scope({}, writerId="w") != scope({}, writerId="v")
    assert scope(FIRST_WRITE, idempotent="false") is None
