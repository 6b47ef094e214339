"""What the command line says about a start, for those who read it and those who act on it.

Owns the record and nothing else, so that reading the command line imports no more than this.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StartFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFlags:
    """What the command line says about a start.

    Attributes:
        fresh: delete the data directory first.
        with_default_root_credentials: let the root user be ``iggy`` with the password ``iggy``.
        follower: report this node as a follower.
    """

    fresh: bool = False
    with_default_root_credentials: bool = False
    follower: bool = False
