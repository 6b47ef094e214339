"""A commit group: batches that are written and acknowledged together."""

from __future__ import annotations

from iggy_ref_server.pending import Pending

__all__ = ["DONE", "CommitGroup"]


class CommitGroup(Pending):
    """Everything that is written together, and acknowledged together.

    Attributes:
        is_done: whether it is decided.
        fault: why nothing of it is stored, once it is done; None when all is well.
    """

    __slots__ = ()


def _finished() -> CommitGroup:
    group = CommitGroup()
    group.finish()
    return group


DONE = _finished()
"""A group that is committed from the start: a batch without new messages gets it."""
