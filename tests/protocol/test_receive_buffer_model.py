"""The receive buffer against a model: any order of inputs, takes and held views."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.receive_buffer import ReceiveBuffer
from tests.protocol.frame_oracle import pattern


class BufferMachine(RuleBasedStateMachine):
    """Any order of inputs, takes, skips and held views, beside a plain byte string."""

    views = Bundle("views")

    @initialize(
        chunk_bytes=st.integers(1, 600),
        retained_bytes_max=st.integers(1, 1_000),
        keeps_spare=st.booleans(),
    )
    def begin(self, chunk_bytes: int, retained_bytes_max: int, keeps_spare: bool) -> None:
        self.buffer = ReceiveBuffer(
            unread_bytes_max=700,
            retained_bytes_max=retained_bytes_max,
            chunk_bytes=chunk_bytes,
            keeps_spare=keeps_spare,
        )
        self.unread = b""
        self.received = 0
        self.is_waiting = False
        self.alive: list[tuple[memoryview, bytes]] = []

    def data(self, size: int) -> bytes:
        data = pattern(size, seed=self.received)
        self.received += size
        return data

    def is_refused(self, size: int) -> bool:
        return bool(self.unread) and not self.is_waiting and len(self.unread) + size > 700

    def grow(self, data: bytes) -> None:
        self.unread += data
        if len(self.unread) >= self.wanted:
            self.is_waiting = False

    wanted = 0

    @rule(size=st.integers(1, 500), is_mutable=st.booleans())
    def receive_data(self, size: int, is_mutable: bool) -> None:
        data = self.data(size)
        given_data = bytearray(data) if is_mutable else data
        if self.is_refused(size):
            with pytest.raises(LocalProtocolError):
                self.buffer.receive_data(given_data)
            return
        self.buffer.receive_data(given_data)
        if isinstance(given_data, bytearray):
            given_data[:] = bytes(size)
        self.grow(data)

    @rule(size=st.integers(1, 2_000), hint=st.integers(-1, 2_000), is_held=st.booleans())
    def read_in_place(self, size: int, hint: int, is_held: bool) -> None:
        if self.is_refused(1):
            with pytest.raises(LocalProtocolError):
                self.buffer.get_buffer(hint)
            return
        space = self.buffer.get_buffer(hint)
        assert len(space) > 0
        data = self.data(min(size, len(space)))
        space[: len(data)] = data
        self.buffer.buffer_updated(len(data))
        self.grow(data)
        if is_held:
            self.alive.append((space[: len(data)], data))

    @rule(target=views, size=st.integers(1, 1_500), head=st.integers(0, 8))
    def take(self, size: int, head: int) -> list[tuple[memoryview, bytes]]:
        if not self.buffer.ensure(size):
            assert len(self.unread) < size
            self.is_waiting, self.wanted = True, size
            return []
        assert len(self.unread) >= size
        held = self.buffer.take(min(head, size), size), self.unread[min(head, size) : size]
        self.unread = self.unread[size:]
        self.alive.append(held)
        return [held]

    @rule(size=st.integers(0, 1_500))
    def skip(self, size: int) -> None:
        assert self.buffer.skip(size) == min(size, len(self.unread))
        self.unread = self.unread[size:]
        self.is_waiting = False

    @rule(held=consumes(views))
    def release(self, held: list[tuple[memoryview, bytes]]) -> None:
        for one in held:
            self.alive = [other for other in self.alive if other is not one]
            one[0].release()

    @precondition(lambda self: len(self.alive) > 3)
    @rule()
    def release_all(self) -> None:
        self.alive.clear()

    @invariant()
    def nothing_changes_under_a_view(self) -> None:
        assert all(view == data for view, data in self.alive)

    @invariant()
    def all_bytes_are_counted(self) -> None:
        assert len(self.buffer) == len(self.unread)


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(stateful_step_count=40)


@given(st.data())
def test_frames_when_cut_anywhere_then_come_out_the_same(data):
    sizes = data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=12))
    stream = pattern(sum(sizes))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    buffer = ReceiveBuffer(unread_bytes_max=1, chunk_bytes=128, retained_bytes_max=256)
    views, expected = [], []
    waiting = list(sizes)

    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if start != stop:
            buffer.receive_data(stream[start:stop])
        while waiting and buffer.ensure(waiting[0]):
            views.append(buffer.take(0, waiting.pop(0)))

    position = 0
    for size in sizes:
        expected.append(stream[position : position + size])
        position += size
    assert views == expected
    assert buffer.copied_bytes <= len(stream) + 8 * len(sizes)
