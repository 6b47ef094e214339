"""The commands on the page about Spark: all are understood, and those that end here are run."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module

import pytest

from tests.spark.jobs.test_commands import JOBS
from tests.spark.test_page import ADDRESS, PAGE
from tests.test_readme import blocks_of

COMMANDS = [
    block.body
    for block in blocks_of(PAGE)
    if block.language == "sh" and block.body.startswith("iggy-spark-")
]


def words_of(text: str) -> list[str]:
    """Let a shell take a command line apart."""
    command = text.replace("\\\n", " ").strip()
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True
    )
    return done.stdout.decode().removesuffix("\0").split("\0")


def ends_by_itself(words: list[str]) -> bool:
    """Tell whether a command comes to an end here."""
    return "--packages" not in words and (
        words[0] in ("iggy-spark-from-files", "iggy-spark-metrics")
        or bool({"--once", "--dry-run"} & set(words))
    )


def test_page_when_read_then_has_an_example_of_each_job():
    assert {command.split()[0] for command in COMMANDS} == set(JOBS)
    listed = re.findall(r"^\| `(iggy-spark-[a-z-]+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(JOBS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_when_taken_apart_then_is_understood(command):
    name, *arguments = words_of(command)

    given = import_module(JOBS[name].partition(":")[0]).parser().parse_args(arguments)

    assert given.stream == "shop"


def test_commands_of_the_page_when_run_in_their_order_then_do_what_it_says(
    spark, spark_server, client, stream, monkeypatch, tmp_path
):
    client.create_topic(stream, "orders", 2)
    cups = [b'{"item": "tea", "cups": %d}' % at for at in range(20)]
    client.send_messages(stream, "orders", [*cups, b"nope"], partition_id=0)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("item,country\ntea,DE\ncake,FR\n")
    monkeypatch.chdir(tmp_path)

    codes = {}
    for command in COMMANDS:
        words = words_of(command.replace(ADDRESS, spark_server.url))
        if ends_by_itself(words):
            place = [stream if word == "shop" else word for word in words[1:]]
            job = import_module(JOBS[words[0]].partition(":")[0])
            # Paths are relative, and Java does not follow when Python moves.
            codes[command] = job.main([_absolute(word, tmp_path) for word in place])

    assert set(codes.values()) == {0}
    assert len(codes) == len(COMMANDS) - 1
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 20
    assert client.get_topic(stream, "orders-dead", required=True).messages_count == 1
    assert client.get_topic(stream, "imports", required=True).messages_count == 2
    assert (tmp_path / "metrics" / "metrics.svg").exists()
    assert client.get_topic(stream, "large") is None


def _absolute(word: str, folder: object) -> str:
    return f"{folder}/{word}" if word in ("lake/orders", "incoming", "state/large") else word
