"""The dialects: the generations of the wire, and the table of versions that chooses one.

Apache Iggy changed its wire with 0.9 and again with 0.10. A connection keeps one dialect from its
first frame to its close, and everything that differs follows from that value: the framing, which
commands exist, and the layouts of their requests and replies.

A command declares its layouts from the oldest dialect to the newest with ``ByDialect``. A dialect
that is not named has the layout of the one before it; ``None`` means that the command does not
exist from there on.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Version(NamedTuple):
    """A version of the protocol, as clients announce it in a login from 0.9 on."""

    major: int
    minor: int
    patch: int

    @classmethod
    def unpack(cls, packed: int) -> Version:
        """Read the number of the wire: ten bits for each part, the patch lowest."""
        return cls(packed >> 20, packed >> 10 & 0x3FF, packed & 0x3FF)

    def pack(self) -> int:
        """Return the number of the wire."""
        return self.major << 20 | self.minor << 10 | self.patch

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Dialect(Enum):
    """One generation of the wire.

    Attributes:
        is_vsr: whether frames have a head of 256 bytes and replies carry the number of their
            request. Otherwise the head has 8, and replies come in the order of the requests.
        version: what a client announces; that of the classic dialect is in its login, unchecked.
        release: the releases of Apache Iggy that speak it, for messages to people.
        server_version: the version of such a server, which it tells at a login.
        binds_sessions: whether a session outlives its connections. Requests refer to the state of
            a partition then, and replies may come in any order.
        age: 0 for the oldest; layouts are looked up by it.
    """

    CLASSIC = (False, Version(0, 10, 0), "0.8", "0.8.0")
    V0_11 = (True, Version(0, 11, 0), "0.9", "0.9.0")
    V0_12_0 = (True, Version(0, 12, 0), "0.10 (preview)", "0.10.0")
    V0_12_2 = (True, Version(0, 12, 2), "0.10", "0.10.0")

    def __init__(
        self,
        is_vsr: bool,
        version: Version,
        release: str,
        server_version: str,
    ) -> None:
        self.is_vsr = is_vsr
        self.version = version
        self.release = release
        self.server_version = server_version
        self.binds_sessions: bool = version >= Version(0, 12, 0)
        self.age: int = len(type(self).__members__)

    # The default hash of an enum's member hashes its name again at every lookup.
    # Type checkers find the same one in the base class.
    if not TYPE_CHECKING:
        __hash__ = object.__hash__

    @property
    def is_lockstep(self) -> bool:
        """Whether a connection carries one request at a time, because replies have no order."""
        return self is Dialect.V0_11

    @property
    def generation(self) -> str:
        """The first release of Apache Iggy that speaks it, as ``0.10``."""
        return self.release.split()[0]

    def __str__(self) -> str:
        return f"the protocol of Apache Iggy {self.release}"


CLASSIC: Final = Dialect.CLASSIC
V0_11: Final = Dialect.V0_11
V0_12_0: Final = Dialect.V0_12_0
V0_12_2: Final = Dialect.V0_12_2


class VersionWindow(NamedTuple):
    """Announced versions, both ends included, and the dialect that they mean."""

    lowest: Version
    highest: Version
    dialect: Dialect


VERSION_WINDOWS: Final = (
    # Every patch of 0.11 has the same layouts; the original server accepts all of them, too.
    VersionWindow(Version(0, 11, 0), Version(0, 11, 1023), V0_11),
    # 0.12.1 was never released, and its layouts are neither those before it nor those after it.
    VersionWindow(Version(0, 12, 0), Version(0, 12, 0), V0_12_0),
    VersionWindow(Version(0, 12, 2), Version(0, 12, 2), V0_12_2),
)
"""The table to extend when a release announces a new version."""

# The preview wheels call their SDK 0.11.1-edge.N and announce 0.12.0. A release may announce the
# same number with the layouts of 0.12.2; the version of its SDK, 0.12.0 or later, tells.
RELEASED_SDK_VERSION: Final = (0, 12)


def dialect_of(version: Version, sdk_version: str = "") -> Dialect | None:
    """Return the dialect of a client by what it announces; None if it is not supported."""
    for window in VERSION_WINDOWS:
        if window.lowest <= version <= window.highest:
            if window.dialect is V0_12_0 and _leading_numbers(sdk_version) >= RELEASED_SDK_VERSION:
                return V0_12_2
            return window.dialect
    return None


SDK_VERSIONS: Final = (
    (Version(0, 12, 0), V0_12_2),
    (Version(0, 11, 1), V0_12_0),
    (Version(0, 11, 0), V0_11),
)
"""The oldest version of the SDK that official clients of each dialect have, newest first."""

_SDK_VERSION: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(-.*)?", re.ASCII)


def dialect_of_sdk(sdk_version: str) -> Dialect:
    """Return the dialect of a client that tells the version of its SDK only, as over HTTP.

    Whatever is no such version is taken as classic.
    """
    match = _SDK_VERSION.fullmatch(sdk_version)
    if match is None:
        return CLASSIC
    version = Version(*map(int, match.groups()[:3]))
    return next((dialect for oldest, dialect in SDK_VERSIONS if version >= oldest), CLASSIC)


def _leading_numbers(version: str) -> tuple[int, ...]:
    """Return major and minor of a version text; nothing where it has none."""
    numbers = version.split("-")[0].split(".")[:2]
    return tuple(int(one) for one in numbers if one.isascii() and one.isdigit())


class ByDialect(Generic[T]):
    """One value for each dialect.

    Args:
        first: the value of the oldest dialect.
        changes: the dialects in which it changes, with the new value.
    """

    __slots__ = ("_values",)

    def __init__(self, first: T, changes: dict[Dialect, T] | None = None) -> None:
        values: list[T] = []
        for dialect in Dialect:
            current = values[-1] if values else first
            values.append((changes or {}).get(dialect, current))
        self._values = tuple(values)

    def __getitem__(self, dialect: Dialect) -> T:
        return self._values[dialect.age]
