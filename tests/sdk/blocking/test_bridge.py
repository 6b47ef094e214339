"""Calls from blocking code into the loop: results, errors, interrupts, forks and the end."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import asynccontextmanager

import anyio
import pytest

from iggy_sdk.blocking.loop_thread import EventLoopThread
from iggy_sdk.errors import ClientClosedError


class Owner:
    """Something that owns a bridge and is collected."""

    def __init__(self) -> None:
        self.loop_thread = EventLoopThread()
        self.loop_thread.open(self)


@pytest.fixture
def loop_thread():
    owner = Owner()
    yield owner.loop_thread
    owner.loop_thread.close()


async def add(left, *, right):
    await anyio.lowlevel.checkpoint()
    return left + right


async def fail():
    raise LookupError("gone")


def test_call_when_the_function_returns_then_gives_its_result(loop_thread):
    assert loop_thread.run(add(1, right=2)) == 3


def test_call_when_the_function_raises_then_raises_it_here(loop_thread):
    with pytest.raises(LookupError, match="gone"):
        loop_thread.run(fail())


def test_call_when_several_threads_call_then_each_gets_its_own(loop_thread):
    results: list[int] = []

    def work(number):
        results.extend(loop_thread.run(add(number * 100, right=step)) for step in range(20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == sorted(n * 100 + step for n in range(5) for step in range(20))


def test_call_when_closed_then_says_how_to_open():
    owner = Owner()
    owner.loop_thread.close()

    with pytest.raises(ClientClosedError, match="with IggyClient"):
        owner.loop_thread.run(add(1, right=1))


def test_call_when_interrupted_then_is_cancelled_in_the_loop(loop_thread):
    cancelled = threading.Event()

    async def wait_forever():
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(wait_forever())

    assert cancelled.wait(5)
    assert loop_thread.run(add(1, right=1)) == 2


def test_call_when_made_from_the_loop_itself_then_says_what_to_do(loop_thread):
    async def call_again():
        loop_thread.run(add(1, right=1))

    with pytest.raises(RuntimeError, match="one of its own callbacks"):
        loop_thread.run(call_again())


def test_hosted_when_left_then_is_left_in_the_task_that_entered_it(loop_thread):
    tasks = []

    @asynccontextmanager
    async def block():
        tasks.append(anyio.get_current_task().id)
        async with anyio.create_task_group() as group:
            yield group
            group.cancel_scope.cancel()
        tasks.append(anyio.get_current_task().id)

    hosted, _ = loop_thread.host(block())
    hosted.leave()

    assert tasks[0] == tasks[1]


def test_hosted_when_the_block_failed_then_hears_of_the_error(loop_thread):
    heard = []

    @asynccontextmanager
    async def block():
        try:
            yield 1
        except ValueError as error:
            heard.append(str(error))

    hosted, value = loop_thread.host(block())
    error = ValueError("mine")

    assert value == 1
    assert hosted.leave(ValueError, error, None) is True
    assert heard == ["mine"]


def test_hosted_when_entering_fails_then_raises_it(loop_thread):
    @asynccontextmanager
    async def block(word):
        if word:
            raise LookupError(word)
        yield

    with pytest.raises(LookupError, match="no entry"):
        loop_thread.host(block("no entry"))


def test_close_when_things_are_hosted_then_leaves_the_last_first():
    owner, order = Owner(), []

    @asynccontextmanager
    async def block(name):
        yield
        order.append(name)

    owner.loop_thread.host(block("first"))
    owner.loop_thread.host(block("last"))
    owner.loop_thread.close()

    assert order == ["last", "first"]


def test_close_when_called_twice_then_is_content():
    owner = Owner()
    owner.loop_thread.close()
    owner.loop_thread.close()

    assert not owner.loop_thread.is_open


def test_owner_when_forgotten_then_is_closed_with_a_warning():
    owner, left = Owner(), threading.Event()

    @asynccontextmanager
    async def block():
        yield
        left.set()

    owner.loop_thread.host(block())
    owners = [owner]
    del owner

    with pytest.warns(ResourceWarning, match="was not closed"):
        owners.clear()

    assert left.wait(5)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_call_when_forked_then_the_child_is_told_and_can_close(loop_thread):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            loop_thread.run(add(1, right=1))
        except ClientClosedError as error:
            said = str(error).encode()
        loop_thread.close()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)

    assert "Create a client in each process" in text
    assert loop_thread.run(add(1, right=1)) == 2
