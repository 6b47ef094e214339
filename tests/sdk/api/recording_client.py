"""A client without a connection, for tests of verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_protocol import CLASSIC
from iggy_sdk.families import AllFamilies
from iggy_sdk.options import ClientOptions

if TYPE_CHECKING:
    from iggy_protocol import Command, Dialect


class RecordingClient(AllFamilies):
    """A client without a connection: notes what is asked, answers from a table by command."""

    def __init__(self, answers: dict[type, Any] | None = None, **options: Any) -> None:
        self._options = ClientOptions(**options)
        self.spoken = CLASSIC
        self.answers = answers or {}
        self.asked: list[Any] = []
        self.timeouts: list[Any] = []

    @property
    def options(self) -> ClientOptions:
        return self._options

    @property
    def dialect(self) -> Dialect:
        return self.spoken

    async def request(self, command: Command[Any], *, timeout: Any = None) -> Any:
        self.asked.append(command)
        self.timeouts.append(timeout)
        answer = self.answers.get(type(command))
        if isinstance(answer, Exception):
            raise answer
        return answer
