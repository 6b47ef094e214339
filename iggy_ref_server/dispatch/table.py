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
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.session import ClientSession

    Serve = Callable[[HandlerContext, ClientSession, Any], Awaitable[object]]

__all__ = ["HANDLERS", "Handler", "Placement", "handles"]


class Placement(Enum):
    """Which shard serves a command."""

    ANY_SHARD = "the shard of the connection"
    METADATA_SHARD = "shard 0, which alone writes metadata and knows the members of groups"


@record
class Handler:
    """How a command is served.

    Attributes:
        serve: the handler function.
        placement: the shard that runs it.
        is_public: whether it needs no login.
        permission_first: whether its permission does not depend on the fields and is checked before
            them.
    """

    serve: Serve
    placement: Placement
    is_public: bool
    permission_first: bool


_handlers: dict[int, Handler] = {}
HANDLERS: Mapping[int, Handler] = _handlers


def handles(
    command: type[Command[Any]],
    *,
    placement: Placement = Placement.ANY_SHARD,
    is_public: bool = False,
    permission_first: bool = False,
) -> Callable[[Serve], Serve]:
    """Register a handler in the table."""

    def register(serve: Serve) -> Serve:
        assert command.CODE not in _handlers, f"{command.__name__} is handled twice"
        _handlers[command.CODE] = Handler(serve, placement, is_public, permission_first)
        return serve

    return register
