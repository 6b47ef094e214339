"""The page about Spark is correct: its Python runs, and its tables are complete."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from spark_jobs.options import _QUERY_KINDS_OF, QueryKind
from tests.test_readme import blocks_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
ADDRESS = "iggy://iggy:iggy@127.0.0.1:8090"

WORDS = {
    QueryKind.ALL: "all",
    QueryKind.READ: "reads",
    QueryKind.BATCH: "batches",
    QueryKind.STREAM: "streams",
    QueryKind.WRITE: "writes",
}


def test_page_when_its_python_runs_then_it_prints_what_the_page_says(spark, spark_server, client):
    client.create_stream("shop")
    client.create_topic("shop", "orders", 2)
    for number in range(2):
        cups = [b'{"item": "tea", "cups": %d}' % (at + 1) for at in range(50)]
        client.send_messages("shop", "orders", cups, partition_id=number)
    names: dict[str, object] = {}
    printed, different = "", []
    for block in blocks_of(PAGE):
        if block.language == "text" and printed.strip() != block.body.strip():
            different.append((block.line, printed, block.body))
        if block.language == "python":
            output = io.StringIO()
            text = "\n" * (block.line - 1) + block.body.replace(ADDRESS, spark_server.url)
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(PAGE), "exec"), names)
            printed = output.getvalue()

    assert not different
    assert client.get_topic("shop", "copies", required=True).messages_count == 100


def test_table_of_options_when_read_then_has_each_option_with_its_use():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    # Spark's own options are not ours to explain.
    theirs = {"checkpointLocation", "queryName"}
    known = {name: WORDS[use] for name, use in _QUERY_KINDS_OF.items() if name not in theirs}
    assert {name: use for name, use in rows if name in known} == known
