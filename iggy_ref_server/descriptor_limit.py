"""How many descriptors a process of the server may have, and what they are for.

    ├── files that are kept open ───┬── connections ─────────────────┬── reserve ──┤
    0                             half                                         limit

Systems start programs with a soft limit of 1024 for the sake of very old ones, and let them raise
it to the hard limit. Every shard is a process with the limit for itself. Files take at most half of
it: more partitions than that take turns (``storage.open_budget``). Connections take what is left,
but not the reserve, which is for files that are open for a moment, at a start or for a listing.

Owns the limit and the shares. Counts nothing itself.
"""

from __future__ import annotations

import contextlib
import resource

__all__ = ["TooFewDescriptors", "connections_end", "files_max", "raise_descriptor_limit"]

# Below this the server could not open what it needs at the same time.
LIMIT_MIN = 256
# Nobody needs more, and some systems name an absurd number as their hard limit.
LIMIT_MAX = 1 << 20
# A start opens 32 partitions at once with up to three files each; threads open directories.
RESERVE = 256


class TooFewDescriptors(Exception):
    """The system lets a process open too few files for a server."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of this process, and of those it forks, to the hard one.

    Returns:
        How many descriptors each process may have.

    Raises:
        TooFewDescriptors: the limit is too low for a server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    limit = descriptor_limit()
    if limit < LIMIT_MIN:
        raise TooFewDescriptors(
            f"the system lets a process open {limit} files, and a server needs {LIMIT_MIN}; "
            "raise the limit with `ulimit -n`, or LimitNOFILE of the service"
        )
    return limit


def descriptor_limit() -> int:
    """Tell how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else min(soft, LIMIT_MAX)


def files_max() -> int:
    """Tell how many descriptors files may take that are kept open."""
    return descriptor_limit() // 2


def connections_end() -> int:
    """Tell from which descriptor number on a connection would use up the reserve.

    The system gives the lowest number that is free. So a new connection with this number means
    that all below are taken.
    """
    limit = descriptor_limit()
    return limit - min(RESERVE, limit // 4)
