"""Passwords, and floods of them."""

from __future__ import annotations

import logging
import os
import re
import threading

import argon2
import pytest
import trio
import trio.testing

from iggy_protocol import StatusCode, status
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.credentials import DEFAULT_COST, HashCost, Passwords
from tests.protocol.recordings import GOLDEN

CHEAP = HashCost(time_cost=1, memory_cost_kib=8, parallelism=1)


def nobody(passwords: Passwords) -> str:
    return passwords.hash_of_nobody("nobody", [])


class Gate(Passwords):
    """Passwords whose threads wait until they are let through, and are counted."""

    def __init__(self, **limits):
        super().__init__(CHEAP, **limits)
        self.open = threading.Event()
        self.running = 0
        self.running_max = 0
        self._lock = threading.Lock()

    def _matches(self, password_hash, password):
        with self._lock:
            self.running += 1
            self.running_max = max(self.running_max, self.running)
        assert self.open.wait(10)
        with self._lock:
            self.running -= 1
        return super()._matches(password_hash, password)


@pytest.mark.trio
@pytest.mark.parametrize("workers", [0, 2])
async def test_password_when_hashed_then_only_itself_is_verified(workers):
    passwords = Passwords(CHEAP, workers=workers)

    stored = await passwords.hash("secret")

    assert await passwords.verify(stored, "secret")
    assert not await passwords.verify(stored, "Secret")
    assert not await passwords.verify(stored, "")


@pytest.mark.trio
async def test_password_when_hashed_twice_then_hashes_differ():
    passwords = Passwords(CHEAP)

    assert await passwords.hash("secret") != await passwords.hash("secret")


@pytest.mark.trio
async def test_hash_when_salt_is_given_then_is_repeatable():
    first = Passwords(CHEAP, random_bytes=bytes)
    second = Passwords(CHEAP, random_bytes=bytes)

    assert await first.hash("sécret") == await second.hash("sécret")


@pytest.mark.trio
async def test_user_when_unknown_then_no_password_fits_after_the_same_work():
    passwords = Passwords(CHEAP)
    unknown = passwords.hash_of_nobody("nobody", [])

    assert not await passwords.verify(unknown, "secret")
    somebody = await passwords.hash("secret")
    assert argon2.extract_parameters(unknown) == argon2.extract_parameters(somebody)


def test_user_when_unknown_then_the_work_is_that_of_some_user_and_of_the_same_each_time():
    """Hashes of Apache Iggy have one lane and take longer."""
    passwords = Passwords()
    hashes = [f"$argon2id$v=19$m=19456,t=2,p={lanes}$c2FsdA$ZGlnZXN0" for lanes in (1, 1, 1, 4)]

    def lanes_of(name):
        return argon2.extract_parameters(passwords.hash_of_nobody(name, hashes)).parallelism

    lanes = [lanes_of(f"user {number}") for number in range(400)]

    assert lanes == [lanes_of(f"user {number}") for number in range(400)]
    assert 200 < lanes.count(1) < 380
    assert lanes.count(1) + lanes.count(4) == 400


@pytest.mark.trio
async def test_hash_when_made_with_defaults_then_costs_as_in_apache_iggy_and_has_four_lanes():
    stored = await Passwords(DEFAULT_COST).hash("iggy")

    assert re.fullmatch(r"\$argon2id\$v=19\$m=19456,t=2,p=4\$[\w+/]{22}\$[\w+/]{43}", stored)


@pytest.mark.trio
async def test_hash_when_written_by_a_real_server_then_its_password_works():
    state = (GOLDEN / "disk" / "segments" / "state" / "log").read_bytes()
    found = re.search(rb"\$argon2id\$v=19\$m=19456,t=2,p=1\$[\w+/]{22}\$[\w+/]{43}", state)
    assert found is not None
    passwords = Passwords(CHEAP)

    assert await passwords.verify(found[0].decode(), "iggy")
    assert not await passwords.verify(found[0].decode(), "ygg")


@pytest.mark.trio
@pytest.mark.parametrize("damaged", ["", "secret", "$argon2id$v=19$m=8,t=1,p=1$AAAA", "$argon2x$"])
async def test_hash_when_damaged_then_no_password_fits_and_it_is_logged(damaged, caplog):
    with caplog.at_level(logging.ERROR):
        assert not await Passwords(CHEAP).verify(damaged, "secret")

    assert len(caplog.records) == 1


@pytest.mark.trio
async def test_flood_when_the_line_is_full_then_the_next_is_refused_and_the_loop_goes_on():
    passwords = Gate(workers=2, waiting_max=3)
    verdicts = []

    async def log_in():
        verdicts.append(await passwords.verify(nobody(passwords), "secret"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(log_in)
        await trio.testing.wait_all_tasks_blocked()
        for attempt in (passwords.verify(nobody(passwords), "secret"), passwords.hash("secret")):
            with pytest.raises(ServerFault) as caught:
                await attempt
            assert caught.value.status == StatusCode.TASK_TIMEOUT
            assert status(caught.value.status).retriable
        assert verdicts == []
        passwords.open.set()

    assert verdicts == [False] * 5
    assert passwords.running_max <= 2
    assert not await passwords.verify(nobody(passwords), "secret")


@pytest.mark.trio
async def test_request_when_cancelled_in_the_line_then_its_place_is_free_again():
    passwords = Gate(workers=1, waiting_max=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(passwords.verify, nobody(passwords), "first")
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as waiting:
                waiting.start_soon(passwords.verify, nobody(passwords), "second")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        nursery.start_soon(passwords.verify, nobody(passwords), "third")
        await trio.testing.wait_all_tasks_blocked()
        passwords.open.set()


@pytest.mark.trio
async def test_passwords_when_computed_in_place_then_need_no_thread_and_no_line():
    passwords = Passwords(CHEAP, workers=0, waiting_max=0)
    threads = []

    class Observed(Passwords):
        def _matches(self, password_hash, password):
            threads.append(threading.get_ident())
            return super()._matches(password_hash, password)

    observed = Observed(CHEAP, workers=0, waiting_max=0)
    assert await observed.verify(await passwords.hash("secret"), "secret")
    assert threads == [threading.get_ident()]


class WatchedPasswords(Passwords):
    """Passwords that note on which cores each check may run."""

    def __init__(self, cores):
        super().__init__(CHEAP, workers=1, cores=cores)
        self.seen: list[set[int]] = []

    def _matches(self, password_hash, password):
        self.seen.append(os.sched_getaffinity(0))
        return super()._matches(password_hash, password)


@pytest.mark.trio
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
async def test_check_when_cores_are_given_then_runs_there_and_the_thread_is_as_before():
    """A shard is pinned to one core; file operations use the same threads."""
    all_cores = os.sched_getaffinity(0)
    chosen = frozenset({max(all_cores)})
    passwords = WatchedPasswords(chosen)

    assert not await passwords.verify(nobody(passwords), "secret")
    left = await trio.to_thread.run_sync(lambda: os.sched_getaffinity(0))

    assert passwords.seen == [chosen]
    assert left == all_cores


class CountedPasswords(Passwords):
    """Passwords that count how many hashes they compute to verify."""

    def __init__(self, **limits):
        super().__init__(CHEAP, **limits)
        self.checks = 0

    def _matches(self, password_hash, password):
        self.checks += 1
        return super()._matches(password_hash, password)


@pytest.mark.trio
@pytest.mark.parametrize("workers", [0, 2])
async def test_password_when_it_was_right_then_is_not_hashed_again(workers):
    passwords = CountedPasswords(workers=workers)
    stored = await passwords.hash("secret")

    for _ in range(3):
        assert await passwords.verify(stored, "secret", remember=True)

    assert passwords.checks == 1


@pytest.mark.trio
async def test_password_when_wrong_then_each_guess_costs_a_hash():
    passwords = CountedPasswords()
    stored = await passwords.hash("secret")
    assert await passwords.verify(stored, "secret", remember=True)

    for guess in ("Secret", "Secret", "", "secret\0", stored):
        assert not await passwords.verify(stored, guess, remember=True)

    assert passwords.checks == 6


@pytest.mark.trio
async def test_password_when_hashed_anew_then_what_was_right_does_not_count():
    passwords = CountedPasswords()
    before, after = await passwords.hash("secret"), await passwords.hash("changed")
    assert await passwords.verify(before, "secret", remember=True)

    assert not await passwords.verify(after, "secret", remember=True)
    assert await passwords.verify(after, "changed", remember=True)
    assert passwords.checks == 3


@pytest.mark.trio
async def test_password_when_not_to_be_remembered_then_takes_a_hash_each_time():
    """Of a deactivated user the time must not tell whether the password was right."""
    passwords = CountedPasswords()
    stored = await passwords.hash("secret")
    assert await passwords.verify(stored, "secret", remember=True)

    assert await passwords.verify(stored, "secret")
    assert await passwords.verify(stored, "secret")
    assert passwords.checks == 3


@pytest.mark.trio
@pytest.mark.parametrize("remembered_max", [0, 1, 2])
async def test_passwords_when_many_were_right_then_the_oldest_are_forgotten(remembered_max):
    passwords = CountedPasswords(remembered_max=remembered_max)
    stored = [await passwords.hash(f"secret {number}") for number in range(3)]
    for number, one in enumerate(stored):
        assert await passwords.verify(one, f"secret {number}", remember=True)

    for number, one in reversed(list(enumerate(stored))):
        assert await passwords.verify(one, f"secret {number}", remember=True)

    assert passwords.checks == 6 - remembered_max


@pytest.mark.trio
async def test_logins_when_all_come_back_at_once_then_cost_a_hash_for_each_worker():
    passwords = CountedPasswords(workers=2, waiting_max=30)
    stored = await passwords.hash("secret")
    verdicts = []

    async def log_in():
        verdicts.append(await passwords.verify(stored, "secret", remember=True))

    async with trio.open_nursery() as nursery:
        for _ in range(32):
            nursery.start_soon(log_in)

    assert verdicts == [True] * 32
    assert passwords.checks <= 2


@pytest.mark.trio
async def test_password_when_right_then_is_in_no_object_of_the_process():
    passwords = CountedPasswords()
    stored = await passwords.hash("a rare secret")
    assert await passwords.verify(stored, "a rare secret", remember=True)

    assert "rare" not in repr(vars(passwords._right))
