"""The same client over REST, for networks that let nothing else through.

    conversation    commands in, replies out; what HTTP cannot do is refused at once
    bearer          the access token, renewed before it ends
    verdicts        what an answer means: a reply, an error, or no Iggy server at all
    pool            a few connections, each for one exchange at a time
    exchange        one request and its answer on one connection

No environment variable is read: a proxy named there would see every access token.

Needs the extra ``http``, so nothing in here is imported before somebody asks for this transport.
"""

from __future__ import annotations

from iggy_sdk.http.conversation import HttpConversation

__all__ = ["HttpConversation"]
