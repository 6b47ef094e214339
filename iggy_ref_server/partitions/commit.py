"""The word that staged messages are stored, or why they are not.

Owns the class. Knows nothing of messages.
"""

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
"""A group that was done before anybody asked."""
