"""The server's door, still closed: this release holds the wire protocol only.

The reference server will run on trio alone and speak through ``iggy_protocol``. It never imports
the SDK.
"""

from __future__ import annotations

__all__: list[str] = []
