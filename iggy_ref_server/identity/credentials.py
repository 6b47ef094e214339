"""Passwords and personal access tokens: hashing and verification.

Passwords are hashed with Argon2id. One hash takes about 20 MB and some hundredths of a second, so
at most ``workers`` of them run at once in threads, at most ``waiting_max`` requests wait, and the
next one is refused. A flood of logins thus uses a fixed amount of memory and does not stall data.
A login that was right before is not hashed again: a thousand clients that come back after a lost
network cost one hash.
The threads are not pinned to the core of their shard: a hash that shares it with the event loop
would delay every client, and take several times as long itself where the core is busy.

Hashes are in PHC format, as in Apache Iggy; a hash with other parameters is verified with its own.
A new one has four lanes, as RFC 9106 recommends, where Apache Iggy has one. Guessing costs the same
memory and time; a login takes as many threads, and so a fraction of the time.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import secrets
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import argon2
import trio
from argon2.exceptions import Argon2Error, InvalidHashError, VerifyMismatchError
from blake3 import blake3

from iggy_protocol import StatusCode, record
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


LOGGER = logging.getLogger(__name__)


SALT_BYTES = 16
HASH_BYTES = 32

Result = TypeVar("Result")


@record
class HashCost:
    """The cost parameters of one hash."""

    time_cost: int
    memory_cost_kib: int
    parallelism: int


DEFAULT_COST = HashCost(time_cost=2, memory_cost_kib=19_456, parallelism=4)


# How many passwords are remembered after they were verified.
REMEMBERED_MAX = 1024


class _RightPasswords:
    """The passwords that were right, as keyed digests.

    The key is of this process and never stored. A digest covers the stored hash as well, so a
    changed password, even to the same one, is verified anew. Wrong passwords are not remembered:
    each guess costs a hash.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._key = secrets.token_bytes(blake3.key_size)
        # In the order of their verification. Threads only ask whether one is in it.
        self._digests: dict[bytes, None] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        while self._digests and len(self._digests) >= self._size_max:
            del self._digests[next(iter(self._digests))]
        if self._size_max:
            self._digests[digest] = None

    def digest(self, password_hash: str, password: str) -> bytes:
        # The zero byte is in no hash: nothing of one can pass for a part of the other.
        return blake3(f"{password_hash}\0{password}".encode(), key=self._key).digest()


class Passwords:
    """Hashes passwords and verifies them.

    Args:
        cost: of new hashes.
        workers: how many hashes are computed at once, each in a thread and in as many more as it
            has lanes; 0 computes in place, for simulations whose time is virtual.
        waiting_max: how many requests may wait beyond those.
        random_bytes: where salts come from.
        cores: the cores on which the threads may run; none leaves them where their process is.
        remembered_max: how many passwords are remembered after they were verified; 0 hashes
            each time.
    """

    def __init__(
        self,
        cost: HashCost = DEFAULT_COST,
        *,
        workers: int = 2,
        waiting_max: int = 64,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        cores: frozenset[int] = frozenset(),
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        self._cores = cores
        self._right = _RightPasswords(remembered_max)
        self._hasher = argon2.PasswordHasher(
            time_cost=cost.time_cost,
            memory_cost=cost.memory_cost_kib,
            parallelism=cost.parallelism,
            hash_len=HASH_BYTES,
            salt_len=SALT_BYTES,
        )
        self._limiter = trio.CapacityLimiter(workers) if workers else None
        self._requests_max = workers + waiting_max
        self._requests_count = 0
        self._random_bytes = random_bytes
        self._name_key = random_bytes(blake3.key_size)
        self._dummy_parameters = (
            f"$argon2id$v=19$m={cost.memory_cost_kib},t={cost.time_cost},p={cost.parallelism}"
        )
        sizes = (SALT_BYTES, HASH_BYTES)
        self._dummy_digest = "".join(f"${_random_text(size, random_bytes)}" for size in sizes)

    async def hash(self, password: str) -> str:
        """Hash a new password.

        Raises:
            ServerFault: too many requests are waiting.
        """
        salt = self._random_bytes(SALT_BYTES)
        return await self._run(lambda: self._hasher.hash(password, salt=salt))

    def hash_of_nobody(self, username: str, hashes: Sequence[str]) -> str:
        """Make a hash that no password matches, for a user who does not exist.

        To verify it takes as long as to verify the hash of one of the users, and for one name
        always of the same: users with hashes of older servers take longer than others, so a time
        that is the same for all unknown names would tell which names exist.

        Args:
            username: a name that no user has.
            hashes: those of all users.
        """
        parameters = self._dummy_parameters
        if hashes:
            digest = blake3(username.encode(), key=self._name_key).digest()
            like = hashes[int.from_bytes(digest, "little") % len(hashes)]
            parameters = like.rsplit("$", 2)[0]  # all but salt and digest
        return parameters + self._dummy_digest

    async def verify(self, password_hash: str, password: str, *, remember: bool = False) -> bool:
        """Tell whether a password is the one that was hashed.

        Args:
            password_hash: the stored hash.
            password: what the client says.
            remember: answer at once if it was right before; only for users who may log in.

        Raises:
            ServerFault: too many requests are waiting.
        """
        if not remember:
            return await self._run(lambda: self._matches(password_hash, password))
        digest = self._right.digest(password_hash, password)
        if digest in self._right:
            await trio.lowlevel.checkpoint()
            return True
        # Asked again in the thread: who waited in line may find that the one before was right.
        is_right = await self._run(
            lambda: digest in self._right or self._matches(password_hash, password)
        )
        if is_right:
            self._right.add(digest)
        return is_right

    def _matches(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except VerifyMismatchError:
            return False
        except (Argon2Error, InvalidHashError) as error:
            LOGGER.error("a stored password hash is invalid, the login is refused: %s", error)
            return False

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._requests_count >= self._requests_max and self._limiter is not None:
            raise ServerFault(
                StatusCode.TASK_TIMEOUT, "too many logins are waiting for their password check"
            )
        self._requests_count += 1
        try:
            if self._limiter is None:
                await trio.lowlevel.checkpoint()
                return work()
            run = partial(_run_on_cores, self._cores, work)
            return await trio.to_thread.run_sync(run, limiter=self._limiter)
        finally:
            self._requests_count -= 1


def _run_on_cores(cores: frozenset[int], work: Callable[[], Result]) -> Result:
    """Do work on any of these cores, and leave the thread as it was: others use it again."""
    if not cores:
        return work()
    own = os.sched_getaffinity(0)  # of the calling thread
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        return work()
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, own)


def _random_text(size: int, random_bytes: Callable[[int], bytes]) -> str:
    """Make random bytes, written as in a hash."""
    return base64.b64encode(random_bytes(size)).decode("ascii").rstrip("=")


# Personal access tokens: a token is shown once, and only its hash is stored.


TOKEN_BYTES = 50


def make_token(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make a token: 50 random bytes as text."""
    return base64.b64encode(random_bytes(TOKEN_BYTES)).decode("ascii")


def hash_token(token: str) -> str:
    """Compute what is stored of a token, and what a login looks up."""
    return blake3(token.encode()).hexdigest()
