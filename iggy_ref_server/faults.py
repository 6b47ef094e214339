"""The exception with which the server refuses a request."""

from __future__ import annotations


class ServerFault(Exception):
    """A request cannot be served.

    Attributes:
        status: the number of ``iggy_protocol.StatusCode`` in the reply.
        message: what is wrong, for the log; the client does not see it.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (status {int(status)})")
        self.status = int(status)
        self.message = message
