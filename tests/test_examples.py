"""Every example runs, and prints what it says it prints."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Programs of several parts, with tests of their own.
OF_PARTS = {"demo", "fastapi_app"}
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*.py") if path.parent.name not in OF_PARTS
)

# Lines that must appear in the output, in this order.
EXPECTED = {
    "protocol/read_the_wire.py": [
        "client > 8 bytes GetMe()",
        "< server 8 bytes refused: 40 No login on this session",
        "client > 26 bytes LoginUser(username='iggy')",
        "client > 10 bytes CreateStream(name='s')",
        "· offset 0, id 1, 'm000', not stamped yet",
        "· offset 0, id 1, 'm000', checksum holds",
        "· offset 1, id 4, 'm003', checksum holds",
        "7 requests, 7 answers, every byte accounted for",
    ],
    "protocol/talk_in_memory.py": [
        "refused: 42 Unknown user name or wrong password",
        "logged in as user 0",
        "created stream 'orders' and topic 'paid'",
        "sent 3 messages",
        "read offset 0: tea",
        "read offset 1: coffee",
        "read offset 2: cake",
    ],
    "getting_started/producer.py": [
        "topic 'messages' has 1 partition",
        "sent message-0 to message-9",
        "sent message-20 to message-29",
    ],
    "getting_started/consumer.py": [
        "offset 0: message-0",
        "offset 29: message-29",
        "read 30 messages",
    ],
    "basic/producer.py": ["sent 300 orders of 3 customers"],
    "basic/consumer.py": [
        "ada: 100 orders, in order",
        "alan: 100 orders, in order",
        "grace: 100 orders, in order",
    ],
    "message_headers/producer.py": ["sent order_created", "sent order_rejected"],
    "message_headers/consumer.py": [
        "order 1: tea",
        "order 1 costs 4.2",
        "order 2 is refused: no cake",
    ],
    "message_envelope/envelope.py": [
        '{"source":"shop","event":{"type":"OrderCreated","order_id":1,"item":"tea"}}',
    ],
    "message_envelope/producer.py": ["sent 2 envelopes"],
    "message_envelope/consumer.py": [
        "shop says: order 1 is tea",
        "till says: order 1 costs 4.2",
        "set aside: b'no envelope at all'",
    ],
    "multi_tenant/tenants.py": [
        "north: read 20 messages, may not send to south",
        "south: read 20 messages, may not send to west",
        "west: read 20 messages, may not send to north",
    ],
    "request_reply/prices.py": [
        "2 x tea: 500 cents",
        "gold: KeyError",
        "200 quotes for cake, 8159000 cents in all",
        "the responders have answered 202 requests",
    ],
    "arrow/orders.py": [
        "Arrow: 900 orders, 8 columns",
        "DuckDB: 750 cups of cocoa",
        "DuckDB: 750 cups of coffee",
        "DuckDB: 750 cups of tea",
        "Polars: 39 cups in the last 5 orders of each partition",
    ],
    "stream_builder/builders.py": ["read [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"],
    "server/start_a_server.py": [
        "$ iggy-server",
        "ready for clients: True",
        "asked to stop, it ended with exit code 0",
    ],
    "server/blocking_client.py": [
        "created stream 'shop' with topic 'orders' and 3 partitions",
        "partition 1, offset 0: coffee",
        "partition 2, offset 0: tea",
        "partition 2, offset 1: cake",
    ],
    "server/survive_a_kill.py": [
        "4 producers and a consumer are at work ...",
        "partition shard acknowledged there consumed",
        "nothing is lost, nothing is out of place",
    ],
}


def example_name(path: Path) -> str:
    """Name an example in the report."""
    return path.relative_to(ROOT / "examples").as_posix()


def needs_a_server(example: Path) -> bool:
    """Tell whether an example talks to a server that its command line names."""
    return "URL = " in example.read_text(encoding="utf-8")


def run(example: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example as a reader would."""
    search = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
    return subprocess.run(
        [sys.executable, "-W", "error", str(example), *arguments],
        env={**os.environ, "PYTHONPATH": search, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )


# Those of the server start processes, which wait for whatever else the machine does.
@pytest.mark.timeout(90)
@pytest.mark.parametrize("example", EXAMPLES, ids=example_name)
def test_example_when_run_then_prints_what_is_expected(example, request):
    arguments = []
    if needs_a_server(example):
        arguments.append(request.getfixturevalue("iggy_server").url)
    producer = example.with_name("producer.py")
    if example.stem == "consumer" and producer.exists():
        assert run(producer, *arguments).returncode == 0
    result = run(example, *arguments)

    assert (result.returncode, result.stderr) == (0, "")
    lines = iter([" ".join(line.split()) for line in result.stdout.splitlines()])
    missing = [wanted for wanted in EXPECTED[example_name(example)] if wanted not in lines]
    assert not missing, result.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=example_name)
def test_example_when_read_then_explains_itself_and_has_a_main(example):
    tree = ast.parse(example.read_text(encoding="utf-8"))

    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

    assert ast.get_docstring(tree)
    assert "main" in functions


def test_examples_page_when_read_then_lists_every_example():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")

    unlisted = [name for name in map(example_name, EXAMPLES) if f"({name})" not in page]

    assert not unlisted
    assert set(EXPECTED) == set(map(example_name, EXAMPLES))
