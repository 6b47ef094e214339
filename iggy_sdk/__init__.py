"""The client's door, still closed: this release holds the wire protocol only.

The SDK will run on anyio alone and speak through ``iggy_protocol``. It never imports the server.
"""

from __future__ import annotations

__all__: list[str] = []
