"""The command itself: help, what needs no Spark, exit codes, and the table of statuses."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from spark_jobs.pipeline import command
from spark_jobs.pipeline.status import PipelineStatus, StatusFile, format_statuses, held_locks
from tests.spark.jobs.test_commands import ENVIRONMENT
from tests.spark.pipeline.test_files import WHOLE


def test_help_when_asked_for_then_its_examples_are_understood(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Exit codes:" in shown
    for line in command.EXAMPLE.strip().splitlines():
        name, *words = shlex.split(line)
        assert name == "iggy-spark"
        assert command.parser().parse_args(words).command == words[0]


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (["check", "--offline", "FILE"], 0, "orders: no mistakes"),
        (
            ["check", "FILE"],
            2,
            "orders.toml:7: the environment variable SHOP_SERVER is not set; export",
        ),
        (["run", "gone.toml"], 2, "gone.toml: cannot be read: No such file"),
        (["status", "gone"], 2, "there is no folder gone; name the one that iggy-spark run has"),
        (["run"], 2, "the following arguments are required: FILE"),
        (["rum", "FILE"], 2, "invalid choice: 'rum'"),
    ],
)
def test_command_when_spark_is_not_needed_then_is_not_loaded(tmp_path, words, code, answer):
    (tmp_path / "orders.toml").write_text(WHOLE)
    given = ["orders.toml" if word == "FILE" else word for word in words]
    script = (
        "import sys\nfrom spark_jobs.pipeline.command import main\n"
        f"try: code = main({given!r})\nexcept SystemExit as ended: code = ended.code\n"
        "print(code, 'pyspark' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout == f"{code} False\n", done.stderr
    assert answer in done.stderr


def test_status_when_drivers_run_or_are_gone_then_is_told_apart(tmp_path, capsys):
    with held_locks(tmp_path, ["a"]):
        StatusFile(tmp_path, "a").put(error=None, state="running", rows_count=5, lag=2)
        StatusFile(tmp_path, "b").put(error="it failed", state="running", restarts_count=1)
        assert command.main(["status", str(tmp_path), "--output", "json"]) == 0
        assert command.main(["status", str(tmp_path)]) == 0

    shown = capsys.readouterr().out
    first, second = json.loads(shown[: shown.index("]\n") + 1])
    assert (first["state"], first["rows_count"], first["lag"]) == ("running", 5, 2)
    assert (second["state"], second["last_error"]) == ("lost", "it failed")
    table = shown[shown.index("]\n") + 2 :].splitlines()
    assert table[0].split() == [
        *("pipeline", "state", "batch", "rows", "rows/s", "behind", "bad", "restarts", "error")
    ]
    assert table[1].split() == ["a", "running", "-", "5", "-", "2", "0", "0", "-"]


def test_status_when_a_file_is_none_then_says_so(tmp_path, capsys):
    (tmp_path / "x.json").write_text("[]")

    assert command.main(["status", str(tmp_path)]) == 2
    assert "x.json is no status of a pipeline" in capsys.readouterr().err
    assert format_statuses([PipelineStatus("a", "done", 1, "", "")]).count("\n") == 1
