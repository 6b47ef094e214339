"""The flags of a start, as the command line gives them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StartFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFlags:
    """The flags of a start.

    Attributes:
        fresh: delete the data directory first.
        with_default_root_credentials: create the root user as ``iggy`` with password ``iggy``.
        follower: report this node as a follower.
    """

    fresh: bool = False
    with_default_root_credentials: bool = False
    follower: bool = False
