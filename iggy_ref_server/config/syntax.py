"""The syntax of values: durations and sizes, addresses, CPU allocations, log levels.

    "5ms"  "1 m"  "7 days"  "2 days 4 hours"      durations: numbers with a unit, added up
    "1 GiB"  "100 KB"  "1.5 MiB"  "512"           sizes: decimal or binary units, or plain bytes
    "none"  "unlimited"                           no limit

Durations are whole microseconds and sizes are whole bytes, so formatting loses nothing.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

from iggy_protocol import parse_duration, record

U64_MAX: Final = 2**64 - 1

NEVER_US: Final = U64_MAX
"""No expiry, as the wire encodes it."""

UNLIMITED_BYTES: Final = U64_MAX
"""A topic size without a limit, as the wire encodes it."""

SERVER_DEFAULT: Final = 0
"""An expiry or a topic size that the server chooses, as the wire encodes it."""

EXPIRY_US_MAX: Final = (2**32 - 1) * 1_000_000
"""The longest expiry in a configuration of Apache Iggy: 2^32 - 1 seconds."""

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND

_WRITTEN_DURATION_UNITS: Final = (
    ("days", _DAY),
    ("h", 3600 * _SECOND),
    ("m", 60 * _SECOND),
    ("s", _SECOND),
    ("ms", 1000),
    ("us", 1),
)

# From the largest to the smallest; of one rank the binary unit is larger, so it comes first.
_SIZE_UNITS: Final[dict[str, int]] = {
    f"{prefix}{suffix}": base**rank
    for rank, prefix in ((6, "E"), (5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K"))
    for suffix, base in (("iB", 1024), ("B", 1000))
}
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(?P<unit>[A-Za-z]*)")
_NO_SIZE: Final = frozenset({"unlimited", "none"})


def format_duration(duration_us: int) -> str:
    """Format a duration exactly; ``parse_duration`` reads it back.

    Args:
        duration_us: microseconds, from 0 to 2^64 - 1.
    """
    parts = []
    for name, unit_us in _WRITTEN_DURATION_UNITS:
        count, duration_us = divmod(duration_us, unit_us)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Parse a size; no limit, such as ``"unlimited"``, is 0.

    Args:
        text: such as ``"1 GiB"``, ``"100.00 KB"`` or ``"512"``.

    Returns:
        Bytes.

    Raises:
        ValueError: the text is not a size; the message says what was expected.
    """
    stripped = text.strip()
    if stripped.lower() in _NO_SIZE:
        return 0
    match = _SIZE.fullmatch(stripped)
    factor = _size_factor(match["unit"]) if match else None
    if match is None or factor is None:
        raise ValueError(f'{text!r} is not a size; write a number and a unit, such as "100 KB"')
    size_bytes = Fraction(match["number"]) * factor
    if size_bytes.denominator != 1 or size_bytes > U64_MAX:
        raise ValueError(f"{text!r} is not a whole number of bytes in 64 bits")
    return int(size_bytes)


def _size_factor(unit: str) -> int | None:
    """Return the factor of a unit; ``B`` may be omitted, but a lower-case ``b`` means bits."""
    if unit in {"", "B"}:
        return 1
    written = unit[:1].upper() + unit[1:]
    return _SIZE_UNITS.get(written if written.endswith("B") else f"{written}B")


def format_size(size_bytes: int) -> str:
    """Format a size exactly, in the largest unit of which it is a whole multiple.

    Args:
        size_bytes: from 0 to 2^64 - 1.
    """
    for unit, factor in _SIZE_UNITS.items():
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def parse_expiry(text: str) -> int:
    """Read when messages or tokens expire.

    Args:
        text: a duration, or ``"none"``, ``"unlimited"``, ``"never_expire"``, ``"server_default"``.

    Returns:
        Microseconds, ``NEVER_US`` or ``SERVER_DEFAULT``.

    Raises:
        ValueError: the text is none of these, or the duration is zero or too long.
    """
    lowered = text.strip().lower()
    if lowered in {"none", "unlimited", "never_expire"}:
        return NEVER_US
    if lowered in {"default", "server_default"}:
        return SERVER_DEFAULT
    expiry_us = parse_duration(text)
    if expiry_us == 0:
        raise ValueError(f'{text!r} would expire messages at once; write "none" to keep them')
    if expiry_us > EXPIRY_US_MAX:
        raise ValueError(f"{text!r} is longer than {format_duration(EXPIRY_US_MAX)}")
    return expiry_us


def format_expiry(expiry_us: int) -> str:
    """Format an expiry; ``parse_expiry`` reads it back."""
    if expiry_us == NEVER_US:
        return "never_expire"
    return "server_default" if expiry_us == SERVER_DEFAULT else format_duration(expiry_us)


def parse_topic_size(text: str) -> int:
    """Parse the maximum size of a topic.

    Args:
        text: a size, ``"unlimited"``, or ``"0"`` or ``"server_default"``.

    Returns:
        Bytes, ``UNLIMITED_BYTES`` or ``SERVER_DEFAULT``.

    Raises:
        ValueError: the text is none of these.
    """
    lowered = text.strip().lower()
    if lowered == "unlimited":
        return UNLIMITED_BYTES
    return SERVER_DEFAULT if lowered == "server_default" else parse_size(text)


def format_topic_size(size_bytes: int) -> str:
    """Format a topic size; ``parse_topic_size`` reads it back."""
    if size_bytes == UNLIMITED_BYTES:
        return "unlimited"
    return "server_default" if size_bytes == SERVER_DEFAULT else format_size(size_bytes)


# Addresses of listeners: ``127.0.0.1:8090``, ``[::1]:8090`` or ``localhost:8090``.


PORT_MAX = 2**16 - 1


class SocketAddress(NamedTuple):
    """A host and a port; written as text, it is what ``parse_address`` reads."""

    host: str
    port: int

    @property
    def version(self) -> int | None:
        """The IP version, or None where the host is a name."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).version
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> SocketAddress:
    """Parse an address; names are not resolved.

    Raises:
        ValueError: the text is not an address; the message says what was expected.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(f'{text!r} is not an address; write "HOST:PORT", such as "127.0.0.1:8090"')
    address = SocketAddress(match[1] or match[2], int(match[3]))
    looks_numeric = re.fullmatch(r"[0-9.]+", address.host) or match[1]
    if looks_numeric and address.version is None:
        raise ValueError(f"{text!r} has an invalid IP address")
    return address


# The syntax of ``system.sharding.cpu_allocation``: which CPU cores the shards get.
#
#     all                                 every core that the process may use
#     4                                   the first four of them
#     5..8                                cores 5, 6 and 7
#     numa:auto                           one shard for each physical core of every NUMA node
#     numa:nodes=0,1;cores=4;no_ht=true   four physical cores of each of these nodes
#
# ``str`` of a parsed value gives the text again. The cores of the machine are not read here.


CPU_ALLOCATION_FORMS = "all, a number, A..B, numa:auto or numa:nodes=0,1;cores=4;no_ht=true"


@record
class AllCores:
    """Every core that the process may use."""

    def __str__(self) -> str:
        return "all"


@record
class CoreCount:
    """The first so many cores."""

    count: int

    def __str__(self) -> str:
        return str(self.count)


@record
class CoreRange:
    """The cores from ``first`` up to, but without, ``end``."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first}..{self.end}"


@record
class NumaCores:
    """Cores by NUMA node.

    Attributes:
        nodes: which nodes; none at all means every node.
        cores_per_node: how many cores of each; 0 means all.
        is_physical: whether only one thread of each physical core is taken.
    """

    nodes: tuple[int, ...] = ()
    cores_per_node: int = 0
    is_physical: bool = True

    def __str__(self) -> str:
        if self == NumaCores():
            return "numa:auto"
        nodes = f"nodes={','.join(map(str, self.nodes))};" if self.nodes else ""
        return f"numa:{nodes}cores={self.cores_per_node};no_ht={str(self.is_physical).lower()}"


CpuAllocation: TypeAlias = AllCores | CoreCount | CoreRange | NumaCores


def parse_cpu_allocation(text: str) -> CpuAllocation:
    """Parse a CPU allocation.

    Raises:
        ValueError: the text is malformed; the message names the valid forms.
    """
    stripped = text.strip()
    if stripped == "all":
        return AllCores()
    if stripped.startswith("numa:"):
        return _parse_numa(stripped.removeprefix("numa:"), text)
    if ".." in stripped:
        first, _, end = stripped.partition("..")
        cores = CoreRange(_core_number(first, text), _core_number(end, text))
        if cores.first >= cores.end:
            raise ValueError(f"{text!r} is an empty range; the first number must be the smaller")
        return cores
    count = _core_number(stripped, text)
    if count == 0:
        raise ValueError("must be at least 1: a server needs a shard")
    return CoreCount(count)


def _parse_numa(parameters: str, text: str) -> NumaCores:
    if parameters == "auto":
        return NumaCores()
    given: dict[str, str] = {}
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name not in {"nodes", "cores", "no_ht"} or name in given:
            raise ValueError(
                f"{text!r} has an unknown or repeated part {parameter!r}; "
                f"write {CPU_ALLOCATION_FORMS}"
            )
        given[name] = value
    nodes = (
        tuple(_core_number(node, text) for node in given["nodes"].split(","))
        if "nodes" in given
        else ()
    )
    if len(set(nodes)) < len(nodes):
        raise ValueError(f"{text!r} names a node twice")
    is_physical = given.get("no_ht", "true")
    if is_physical not in {"true", "false"}:
        raise ValueError(f"{text!r}: no_ht must be true or false")
    return NumaCores(nodes, _core_number(given.get("cores", "0"), text), is_physical == "true")


def _core_number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 6:
        raise ValueError(f"{text!r} is not a CPU allocation; write {CPU_ALLOCATION_FORMS}")
    return int(digits)


# Log levels: the syntax of ``RUST_LOG`` and of ``system.logging.level``.
#
#     info                          everything from info upwards
#     warn,iggy=debug               debug for this server, warn for the libraries that it uses
#     error,iggy_ref_server.segments=trace
#     off
#
# A part is the name of a Python logger; ``iggy`` and ``server`` mean this server, and ``::`` may
# separate names as in Rust. Without a level for all other loggers, it is ``error``.


TRACE: Final = 5
OFF: Final = logging.CRITICAL + 10

_LOG_LEVELS: Final = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": OFF,
    "none": OFF,
}
_OWN_LOGGERS: Final = ("iggy_ref_server", "iggy_protocol")
_OWN_NAMES: Final = frozenset({"iggy", "iggy_server", "server"})
_LOGGER_NAME: Final = re.compile(r"\w+(?:(?:\.|::)\w+)*")


@record
class LogFilter:
    """The levels of all loggers.

    Attributes:
        level: the level of the root logger.
        parts: the levels of named loggers.
    """

    level: int
    parts: dict[str, int]


def parse_log_filter(text: str) -> LogFilter:
    """Parse log levels.

    Args:
        text: ``level`` and ``part=level``, separated by commas, case-insensitive.

    Raises:
        ValueError: the text is empty or malformed.
    """
    directives = [directive.strip() for directive in text.split(",") if directive.strip()]
    if not directives:
        raise ValueError(f"{text!r} has no level; write {', '.join(_LOG_LEVELS)}")
    level = logging.ERROR
    parts: dict[str, int] = {}
    for directive in directives:
        part, separator, name = directive.partition("=")
        if not separator and part.lower() in _LOG_LEVELS:
            level = _LOG_LEVELS[part.lower()]
            continue
        wanted = _LOG_LEVELS.get(name.strip().lower())
        if wanted is None or not _LOGGER_NAME.fullmatch(part.strip()):
            raise ValueError(f"{directive!r} is neither a level nor PART=LEVEL")
        parts.update(dict.fromkeys(_logger_names(part.strip()), wanted))
    return LogFilter(level, parts)


def _logger_names(part: str) -> tuple[str, ...]:
    """Translate the name of a part, which may be a Rust module of Apache Iggy, to logger names."""
    first, *rest = part.replace("::", ".").split(".")
    roots = _OWN_LOGGERS if first in _OWN_NAMES else (first,)
    return tuple(".".join((root, *rest)) for root in roots)
