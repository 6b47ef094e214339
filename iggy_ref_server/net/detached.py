"""The detached requests of one client: those that wait for messages while others are answered.

A client from 0.10 on lets such a request wait for seconds. It is taken out of the order of replies
and has a task of its own. Its pipeline goes on with other requests, and the request ends

    with its reply
    when the client cancels it, without a reply
    when its connection ends, without a reply
    when the session of the client ends, with a refusal

All pipelines of a client share one object of these: over QUIC the request that cancels another one
comes on a stream of its own.

Starts no tasks and handles no requests; the scheduler does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from iggy_protocol import StatusCode
from iggy_ref_server.dispatch.replies import CommandReply

if TYPE_CHECKING:
    from iggy_protocol import UnansweredRequest


SESSION_ENDED: Final = CommandReply(StatusCode.UNAUTHENTICATED)


class DetachedRequest:
    """A request that is answered out of order.

    Attributes:
        receiver: the pipeline that has received it, and sends its reply.
        request: identifies it to the connection of that pipeline.
        scope: cancels its task.
        refusal: what it is answered if its task was cancelled; None if nothing.
    """

    __slots__ = ("receiver", "refusal", "request", "scope")

    def __init__(self, receiver: object, request: UnansweredRequest) -> None:
        self.receiver = receiver
        self.request = request
        self.scope = trio.CancelScope()
        self.refusal: CommandReply | None = None


class DetachedRequests:
    """The detached requests of one client; each connection bounds how many there are."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: dict[DetachedRequest, None] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def has_any_of(self, receiver: object) -> bool:
        """Return whether requests of a pipeline are not answered."""
        return any(one.receiver is receiver for one in self._requests)

    def add(self, receiver: object, request: UnansweredRequest) -> DetachedRequest:
        """Note a request that its connection has detached."""
        detached = DetachedRequest(receiver, request)
        self._requests[detached] = None
        return detached

    def settle(self, detached: DetachedRequest) -> bool:
        """Forget a request whose task is done; False if its connection has ended before."""
        if detached not in self._requests:
            return False
        del self._requests[detached]
        return True

    def cancel(self, number: int) -> None:
        """End a request whose client no longer waits; nothing happens if there is none."""
        for detached in self._requests:
            if detached.request.number == number:
                detached.scope.cancel()
                return

    def drop(self, receiver: object) -> None:
        """End the requests of a pipeline whose connection ends."""
        for detached in [one for one in self._requests if one.receiver is receiver]:
            del self._requests[detached]
            detached.scope.cancel()

    def refuse_all(self) -> None:
        """End all requests, because the session of the client has ended."""
        for detached in self._requests:
            detached.refusal = SESSION_ENDED
            detached.scope.cancel()
