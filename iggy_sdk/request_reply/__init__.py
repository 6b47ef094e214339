"""Request and reply over two topics.

options    what callers and responders can be told
envelope   the headers of requests and replies, which are the whole protocol
pending    the calls that wait for their replies
caller     sends requests, reads replies
responder  reads requests as a member of a group, sends replies
methods    what a client offers of it
"""

from __future__ import annotations

from iggy_sdk.request_reply.caller import RequestReply, RequestReplyStatistics
from iggy_sdk.request_reply.errors import RemoteHandlerError, ReplyTimeoutError
from iggy_sdk.request_reply.methods import RequestReplyMethods
from iggy_sdk.request_reply.options import RequestReplySettings, ResponderSettings
from iggy_sdk.request_reply.responder import Responder, ResponderStatistics

__all__ = [
    "RemoteHandlerError",
    "ReplyTimeoutError",
    "RequestReply",
    "RequestReplyMethods",
    "RequestReplySettings",
    "RequestReplyStatistics",
    "Responder",
    "ResponderSettings",
    "ResponderStatistics",
]
