"""The limit of file descriptors of a process, and how files and connections share it.

    ├── files that are kept open ───┬── connections ─────────────────┬── reserve ──┤
    0                             half                                         limit

Systems start programs with a soft limit of 1024, for programs that use ``select``, and let them
raise it to the hard limit. The limit is per process, so each shard has its own. Files that stay
open take at most half; beyond that files are closed and reopened (``storage.open_budget``).
Connections take the rest but for the reserve, which is for files that are open only for a moment.
"""

from __future__ import annotations

import contextlib
import resource

# Below this a shard cannot open what it needs at the same time.
LIMIT_MIN = 256
# More is never needed, and some systems have an absurdly high hard limit.
LIMIT_MAX = 1 << 20
# A start opens 32 partitions at once with up to three files each; threads open directories.
RESERVE = 256


class TooFewDescriptors(Exception):
    """The descriptor limit of the system is too low for a server."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of this process, and of those it forks, to the hard one; return it.

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
            f"the limit of open files is {limit}, and a server needs {LIMIT_MIN}; raise it with"
            " `ulimit -n`, or LimitNOFILE of the service"
        )
    return limit


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else min(soft, LIMIT_MAX)


def files_max() -> int:
    """Return how many descriptors may be used for files that stay open."""
    return descriptor_limit() // 2


def connections_end() -> int:
    """Return the first descriptor number that is too high for a connection.

    The kernel assigns the lowest free number. So a connection with this number means that all
    lower ones are in use.
    """
    limit = descriptor_limit()
    return limit - min(RESERVE, limit // 4)
