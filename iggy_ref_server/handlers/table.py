"""The command table: from a command's code to its handler.

A handler takes the handler context, the session and the command, and returns the reply. It raises
ServerFault to refuse the command.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iggy_protocol import Command
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session

    Serve = Callable[[Office, Session, Any], Awaitable[object]]

__all__ = ["HANDLERS", "Handler", "Place", "handles"]


class Place(Enum):
    """Which shard serves a command."""

    HERE = "the shard of the connection"
    METADATA = "shard 0, which alone writes metadata and knows the members of groups"


@record
class Handler:
    """How a command is served.

    Attributes:
        serve: the handler function.
        place: the shard that runs it.
        is_public: whether it needs no login.
        right_first: whether its permission does not depend on the fields and is checked before
            them.
    """

    serve: Serve
    place: Place
    is_public: bool
    right_first: bool


_handlers: dict[int, Handler] = {}
HANDLERS: Mapping[int, Handler] = _handlers


def handles(
    command: type[Command[Any]],
    *,
    place: Place = Place.HERE,
    is_public: bool = False,
    right_first: bool = False,
) -> Callable[[Serve], Serve]:
    """Register a handler in the table."""

    def register(serve: Serve) -> Serve:
        assert command.CODE not in _handlers, f"{command.__name__} is handled twice"
        _handlers[command.CODE] = Handler(serve, place, is_public, right_first)
        return serve

    return register
