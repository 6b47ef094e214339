"""The one exception that a room of the server raises on purpose towards a client.

Owns nothing but the class. The status is what the client is told; the text is for the log.
"""

from __future__ import annotations

__all__ = ["ServerFault"]


class ServerFault(Exception):
    """A request cannot be served.

    Attributes:
        status: the number of ``iggy_protocol.StatusCode`` that the client is answered.
        message: what is wrong, for people who read the log.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (status {int(status)})")
        self.status = int(status)
        self.message = message
