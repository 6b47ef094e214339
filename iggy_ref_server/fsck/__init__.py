"""Check and repair of a data directory that no server uses.

    check     reads everything and changes nothing
    repair    repairs what it can; what it removes is moved to ``quarantine/``, never deleted

Every finding carries its own repair, so a check reports exactly what a repair would do.
"""

from __future__ import annotations

from iggy_ref_server.fsck.command import check, repair

__all__ = ["check", "repair"]
