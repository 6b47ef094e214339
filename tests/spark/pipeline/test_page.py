"""The page about pipelines: its keys are those of the classes, and its example runs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from spark_jobs.credentials import CONNECTION_STRING_VARIABLE
from spark_jobs.pipeline.command import parser
from tests.spark.jobs.test_jobs import messages_of
from tests.test_readme import blocks_of
from tools.pipeline_keys import PAGE, fill

BLOCKS = blocks_of(PAGE)
COMMANDS = [
    words
    for block in BLOCKS
    if block.language == "sh"
    for line in block.body.splitlines()
    if (words := line.partition("#")[0].split()) and words[0] == "iggy-spark"
]


def block_with(text: str, language: str) -> str:
    (found,) = [one.body for one in BLOCKS if one.language == language and text in one.body]
    return found


def test_page_when_compared_with_the_classes_then_has_their_keys():
    page = PAGE.read_text(encoding="utf-8")

    assert fill(page) == page, "run python -m tools.pipeline_keys"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command_of_the_page_when_taken_apart_then_is_understood(words):
    assert parser().parse_args(words[1:]).command == words[1]


@pytest.mark.spark
def test_pipeline_of_the_page_when_run_then_does_what_it_says(
    spark, client, stream, spark_server, pipeline, iggy_spark, tmp_path, monkeypatch, capsys
):
    client.create_topic(stream, "orders", 1)
    payloads = [b'{"item": "tea", "cups": 2}', b'{"item": "tea", "cups": 0}', b"nope"]
    client.send_messages(stream, "orders", payloads, partition_id=0)
    monkeypatch.setenv(CONNECTION_STRING_VARIABLE, spark_server.url)
    text = block_with("[pipeline]", "toml").replace('every = "10s"', "once = true")
    for name in ("state/orders", "lake/orders"):
        text = text.replace(f'"{name}"', f'"FOLDER/{name}"')
    path = pipeline(text.replace('"shop"', '"STREAM"'))

    assert iggy_spark("check", path) == 0
    assert iggy_spark("run", path, "--dry-run") == 0
    assert iggy_spark("explain", path) == 0
    assert iggy_spark("run", path) == 0

    (row,) = spark.read.parquet(str(tmp_path / "lake" / "orders")).collect()
    assert (row["item"], row["cups"]) == ("tea", 2)
    ((letter,),) = messages_of(client, stream, "orders-dead")
    assert letter.payload == b"nope"
    assert "tea" in capsys.readouterr().out


@pytest.mark.spark
def test_sink_of_the_page_when_called_then_counts_rows(spark, tmp_path):
    module: Any = ModuleType("my_package")
    exec(block_with("class CountSink", "python"), vars(module))

    module.CountSink(str(tmp_path)).write(spark.range(3), 7)

    assert (tmp_path / "7").read_text() == "3"
