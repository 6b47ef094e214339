"""The commands as processes: help without Spark, usage errors, and a clean end by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
JOBS = {name: target for name, target in SCRIPTS.items() if name.startswith("iggy-spark-")}
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protocol")]),
    "SPARK_LOCAL_IP": "127.0.0.1",
}
QUICK = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.mark.parametrize("command", JOBS)
def test_help_when_asked_for_then_has_an_example_that_the_command_understands(command, capsys):
    module, _, function = JOBS[command].partition(":")
    job = import_module(module)

    with pytest.raises(SystemExit) as ended:
        getattr(job, function)(["--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"usage: {command} ")
    assert "--dry-run" in shown
    assert "Exit codes:" in shown
    example = job.EXAMPLE.replace("\\\n", " ").split(maxsplit=1)
    assert example[0] == command
    with pytest.MonkeyPatch.context() as shell:
        # The shell is the one who knows how words are quoted.
        shell.setenv("COLUMNS", "200")
        words = subprocess.run(
            ["bash", "-c", f'printf "%s\\0" {example[1]}'], capture_output=True, check=True
        ).stdout
    job.parser().parse_args([word.decode() for word in words.split(b"\0") if word.strip()])


def test_command_when_used_wrongly_then_exits_with_2_and_never_loads_spark():
    script = (
        "import sys\n"
        "from spark_jobs.jobs import to_parquet\n"
        "try: to_parquet.main(['--stream', 's', '--topic', 't', '--path', 'p', '--evry', '1s'])\n"
        "finally: print('pyspark' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, "False\n")
    assert "unrecognized arguments: --evry" in done.stderr


def test_command_when_terminated_then_exits_with_0(spark_server, stream, orders, tmp_path):
    command = [sys.executable, "-m", "spark_jobs.jobs.to_parquet", "--stream", stream]
    command += ["--topic", "orders", "--path", str(tmp_path / "out"), "--every", "1s"]
    with subprocess.Popen(
        [*command, "--workers", "1", "--conf", QUICK],
        env={**ENVIRONMENT, "IGGY_CONNECTION_STRING": spark_server.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line == "rows: started\n":
                process.send_signal(signal.SIGTERM)

    assert process.returncode == 0, "".join(said)
    assert said[-2:] == [
        "SIGTERM: stopping after this micro-batch; again to stop at once\n",
        f"0 messages read, Parquet files in {tmp_path / 'out'}\n",
    ]
