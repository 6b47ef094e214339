"""The doctor: looks at a data directory that no server uses, says what is wrong, and mends it.

    check     reads everything and changes nothing
    repair    mends what can be mended; what has to go is moved to ``quarantine/``, never deleted

Every finding carries its own remedy, so that a check tells exactly what a repair would do.
"""

from __future__ import annotations

from iggy_ref_server.doctor.visit import check, repair

__all__ = ["check", "repair"]
