"""The demo: its parts in the gate, the whole of it with the slow tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pyarrow.parquet  # type: ignore[import-untyped]  # it comes without types
import pytest

from examples.demo import run, shop
from examples.demo.arrivals import Sample
from examples.demo.clients import Counts

ROOT = Path(__file__).resolve().parent.parent
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def test_events_when_made_then_are_skewed_and_the_same_for_a_seed():
    first = list(islice(shop.events(NOON), 2000))

    assert first == list(islice(shop.events(NOON), 2000))
    assert first != list(islice(shop.events(NOON, seed=1), 2000))
    customers = Counter(event["customer"] for event in first).most_common()
    assert customers[0][0] == "customer-000"
    assert customers[0][1] > 10 * customers[len(customers) // 2][1]
    assert {event["kind"] for event in first} == set(shop.KINDS)
    assert first[1500]["at"] == "2026-11-17T12:00:01.000500+00:00"


def write_arrivals(folder, offsets):
    """Write Parquet files as the job does, with these offsets in partition 0."""
    target = folder / "orders" / "date=2026-11-17" / "hour=12"
    target.mkdir(parents=True)
    rows = [
        {
            "kind": "placed",
            "customer": "customer-000",
            "amount": 2.5,
            "iggy_partition": 0,
            "iggy_offset": offset,
            "iggy_timestamp": NOON,
        }
        for offset in offsets
    ]
    pa.parquet.write_table(pa.Table.from_pylist(rows), target / "a.parquet")


@pytest.mark.parametrize(
    ("offsets", "consumed", "code", "last_line"),
    [
        ([0, 1, 2], 3, 0, "3 messages produced, 3 consumed, 3 ingested"),
        ([0, 1], 3, 1, "3 messages produced, 3 consumed, 2 ingested"),
        ([0, 1, 2], 2, 1, "3 messages produced, 2 consumed, 3 ingested"),
        ([0, 1, 2, 2], 3, 1, "3 messages produced, 3 consumed, 3 ingested"),
    ],
)
def test_result_when_shown_then_the_numbers_decide(
    tmp_path, capsys, offsets, consumed, code, last_line
):
    write_arrivals(tmp_path, offsets)
    counts = Counts(produced=3, ingested=3, read_by=Counter(anna=consumed))
    demo = run.Demo(
        "iggy://nowhere", tmp_path, counts, [Sample(0.0, 0, 0, 0), Sample(1.0, 3, 3, 3)]
    )

    assert run.show(demo) == code

    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last_line
    assert f"plot:          {tmp_path / 'arrivals.svg'}" in lines
    assert "</svg>" in (tmp_path / "arrivals.svg").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_when_run_then_everything_that_was_produced_arrives(tmp_path):
    search = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo.run", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    numbers = re.fullmatch(
        r"([\d,]+) messages produced, \1 consumed, \1 ingested", done.stdout.splitlines()[-1]
    )
    assert numbers is not None
    assert int(numbers[1].replace(",", "")) > 1000
    assert "spark  batch 0" in done.stdout
    assert (tmp_path / "arrivals.svg").exists()
