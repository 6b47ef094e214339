"""A driver that is killed between two steps of a micro-batch: each row is in each table once."""

from __future__ import annotations

import signal
import subprocess
import sys

from iggy_sdk.blocking import IggyClient
from tests.lake.conftest import formats
from tests.lake.killed_query import STEPS

MESSAGES = 2 * (len(STEPS) + 1)


def test_tables_when_the_driver_is_killed_at_every_step_then_each_row_is_there_once(
    spark_server, postgres, tmp_path
):
    with IggyClient(spark_server.url) as client:
        client.create_stream("killed")
        client.create_topic("killed", "orders", 1)
        payloads = [b"%d" % number for number in range(MESSAGES)]
        client.send_messages("killed", "orders", payloads, partition_id=0)
    steps = [step for step in STEPS if step not in ("delta", "iceberg") or step in formats()]
    steps = [step for step in steps if formats() or step != "merged"]

    ends = []
    for batch, step in enumerate(steps):
        ends.append(run(spark_server.url, postgres, tmp_path, str(batch), step).returncode)
    last = run(spark_server.url, postgres, tmp_path)

    assert set(ends) == {-signal.SIGKILL}, last.stderr
    results = [line for line in last.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(results) == 2 * len(formats()) + 2, last.stderr
    assert {line.split(maxsplit=2)[2] for line in results} == {str(list(range(MESSAGES)))}


def run(url, database, folder, *when):
    """Run the query until it is killed or has read the topic."""
    command = [
        sys.executable,
        "-m",
        "tests.lake.killed_query",
        url,
        "killed",
        str(folder),
        database,
    ]
    return subprocess.run(
        [*command, *when], capture_output=True, text=True, timeout=300, check=False
    )
