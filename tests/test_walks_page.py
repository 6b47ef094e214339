"""The page of walks is correct: its names exist, and a real send and a real poll go that way."""

from __future__ import annotations

import ast
import re
import socket
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    ConsumerKind,
    CreateStream,
    CreateTopic,
    LoginUser,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    client_id,
)
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard.assembly import open_shard
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.simulated.server import Client, make_specs

if TYPE_CHECKING:
    from types import FrameType

    from iggy_protocol import Command

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
ANCHOR = re.compile(r"`([\w/]+\.py):([\w.]+)`")
FILE = re.compile(r"`([\w/]+\.py)`")
SERVER = "iggy_ref_server/"

STEPS_MIN = 5
# The files of the steps, which a reader opens to follow a send or a poll. All others whose code
# runs are in the tables.
SERVER_FILES_MAX = 9


class Anchor(NamedTuple):
    """A name of the page: a definition in a file."""

    file: str
    name: str


class Walk(NamedTuple):
    """One section of the page."""

    title: str
    text: str

    @property
    def steps(self) -> list[tuple[int, str]]:
        """The numbers and texts of the steps."""
        return [(int(number), text) for number, text in STEP.findall(self.text)]

    @property
    def anchors(self) -> list[Anchor]:
        """The names of the steps, in their order."""
        return [Anchor(*found) for _, text in self.steps for found in ANCHOR.findall(text)]

    @property
    def step_files(self) -> set[str]:
        """The files of the server that the steps name."""
        return {anchor.file for anchor in self.anchors if anchor.file.startswith(SERVER)}

    @property
    def other_files(self) -> list[str]:
        """The files of the table below the steps."""
        rows = [line for line in self.text.splitlines() if line.startswith("| `")]
        return [file for row in rows for file in FILE.findall(row)]


WALKS = [Walk(*found) for found in SECTION.findall(PAGE)]
SERVER_WALKS = WALKS[:2]


@cache
def definitions(file: str) -> frozenset[str]:
    """List what a file defines, as qualified names."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                found.add(name)
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{name}.")

    visit(ast.parse((ROOT / file).read_text(encoding="utf-8")), "")
    return frozenset(found)


def unresolved(text: str) -> list[Anchor]:
    """List the names of a text that no file defines."""
    anchors = [Anchor(*found) for found in ANCHOR.findall(text)]
    return [
        anchor
        for anchor in anchors
        if not (ROOT / anchor.file).is_file() or anchor.name not in definitions(anchor.file)
    ]


def test_page_when_read_then_has_five_walks_with_numbered_steps():
    numbers = {walk.title: [number for number, _ in walk.steps] for walk in WALKS}

    assert len(WALKS) == 5
    assert all(len(steps) >= STEPS_MIN for steps in numbers.values()), numbers
    assert all(steps == list(range(1, len(steps) + 1)) for steps in numbers.values()), numbers


def test_steps_when_read_then_each_names_a_function():
    nameless = [text for walk in WALKS for _, text in walk.steps if not ANCHOR.search(text)]

    assert nameless == []


def test_anchors_when_resolved_then_files_define_them():
    assert len(ANCHOR.findall(PAGE)) > 80
    assert unresolved(PAGE) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "`iggy_ref_server/net/scheduler.py:RequestScheduler.absent`",
        "`iggy_ref_server/net/scheduler.py:serve`",
        "`iggy_ref_server/net/absent.py:RequestScheduler.serve`",
    ],
)
def test_anchor_when_wrong_then_does_not_resolve(wrong):
    assert len(unresolved(wrong)) == 1


def test_code_when_it_names_a_python_file_then_it_is_an_anchor_or_a_file():
    odd = [
        code
        for code in CODE.findall(PAGE)
        if ".py" in code and not (ANCHOR.fullmatch(f"`{code}`") or (ROOT / code).is_file())
    ]

    assert odd == []


@pytest.mark.parametrize("walk", SERVER_WALKS, ids=lambda walk: walk.title)
def test_server_walk_when_its_files_are_counted_then_a_reader_opens_few(walk):
    assert len(walk.step_files) <= SERVER_FILES_MAX, sorted(walk.step_files)
    assert len(walk.other_files) == len(set(walk.other_files))
    assert walk.step_files.isdisjoint(walk.other_files)


# A real request, traced


class Trace:
    """Records which functions of the project the socket server's task calls, first calls only."""

    def __init__(self) -> None:
        self.calls: dict[Anchor, None] = {}
        self._profile_before = sys.getprofile()

    def __enter__(self) -> Trace:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._profile_before)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(f"{ROOT}/") or not in_socket_server():
            return
        self.calls[Anchor(file[len(f"{ROOT}/") :], frame.f_code.co_qualname)] = None

    @property
    def server_files(self) -> set[str]:
        """The files of the server whose code ran."""
        return {call.file for call in self.calls if call.file.startswith(SERVER)}


def in_socket_server() -> bool:
    """Tell whether the running task serves the sockets; timers of other tasks may fire as well."""
    try:
        return trio.lowlevel.current_task().name.endswith("SocketServer.run")
    except RuntimeError:
        return False


# A send that arrives in one piece, and a poll whose reply is large enough for sendfile. It begins
# behind the first message, so that it needs the index.
SEND = SendMessages("shop", "orders", Partitioning.partition(0), [bytes(100)])
LARGE = SendMessages("shop", "orders", Partitioning.partition(0), [bytes(100_000)])
POLL = PollMessages(
    consumer=ConsumerIdentity(ConsumerKind.SINGLE, 1),
    stream="shop",
    topic="orders",
    partition_id=0,
    strategy=PollingStrategy.offset(1),
    count=1,
    auto_commit=False,
)


def trace_request(folder: Path, command: Command[Any]) -> Trace:
    """Have a shard with real sockets and files serve a command, and trace it the second time."""

    async def run() -> Trace:
        [spec] = make_specs(ThreadStorage(folder))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours, (host, port) = listener.accept()
        session = ClientSession(client_id(f"{host}:{port}"), f"{host}:{port}")
        async with open_shard(spec) as shard:
            shard.socket_server.admit(ours, session)
            client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
            for first in (
                LoginUser("iggy", "iggy"),
                CreateStream("shop"),
                CreateTopic(stream="shop", name="orders", partitions_count=1),
                LARGE,
                LARGE,
                command,
            ):
                await client.ask(first)
            with Trace() as trace:
                await client.ask(command)
            await client.aclose()
        return trace

    return trio.run(run)


@pytest.mark.parametrize(
    ("walk", "command"),
    [(SERVER_WALKS[0], SEND), (SERVER_WALKS[1], POLL)],
    ids=["send", "poll"],
)
def test_server_walk_when_a_request_is_traced_then_it_goes_that_way(tmp_path, walk, command):
    trace = trace_request(tmp_path, command)

    order = {call: place for place, call in enumerate(trace.calls)}
    assert [anchor for anchor in walk.anchors if anchor not in order] == []
    swapped = [pair for pair in pairwise(walk.anchors) if order[pair[0]] > order[pair[1]]]
    assert swapped == []
    named = walk.step_files | set(walk.other_files)
    assert trace.server_files - named == set(), "files run and are not named"
    assert named - trace.server_files == set(), "files are named and do not run"
