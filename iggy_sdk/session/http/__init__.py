"""The session over REST, for networks that allow nothing but HTTP.

No environment variable is read: a proxy named there would see every access token. The package
needs the extra ``http``, so it is imported only when a client uses this transport.
"""

from __future__ import annotations

from iggy_sdk.session.http.session import HttpSession

__all__ = ["HttpSession"]
