"""The command table is complete, agrees with the protocol, and is what requests go through."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
import trio

import iggy_protocol
from iggy_protocol import (
    CLASSIC,
    CommandCode,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Partitioning,
    PollingStrategy,
    PollMessages,
    RequestId,
    RequestReceived,
    SendMessages,
    commands_of,
)
from iggy_protocol.registry import COMMANDS
from iggy_protocol.rest import ROUTES
from iggy_ref_server.dispatch import context, dispatcher
from iggy_ref_server.dispatch.table import COMMAND_TABLE, Execution, Login, Placement
from iggy_ref_server.session import ClientSession
from iggy_ref_server.shard.partition_directory import PartitionKey
from iggy_ref_server.shard.router import owner_shard
from tests.server.simulated.server import open_simulated_server
from tools.command_table import PAGE, rendered

ROWS = list(COMMAND_TABLE.values())
TYPES = {
    **vars(iggy_protocol),
    "HandlerContext": context.HandlerContext,
    "ClientSession": ClientSession,
}


def row_name(row):
    return row.code.name


def test_table_when_compared_with_the_codes_then_each_classic_one_has_exactly_one_row():
    codes = [row.code for row in ROWS]

    assert codes == sorted(codes)
    assert set(codes) >= commands_of(CLASSIC)
    assert list(COMMAND_TABLE) == codes


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_handler_when_inspected_then_takes_the_command_of_its_row(row):
    for handler in filter(None, (row.handler, row.inline_handler)):
        names = list(inspect.signature(handler).parameters)
        hints = {name: eval(handler.__annotations__[name], dict(TYPES)) for name in names}

        expected: dict[str, object] = {
            "context": context.HandlerContext,
            "session": ClientSession,
            "command": COMMANDS[row.code].command,
        }
        if row.takes_request_id:
            # A login from 0.9 on always has one.
            needed = row.login is Login.LOGS_IN
            expected["request_id"] = RequestId if needed else RequestId | None
        assert hints == expected
    assert inspect.iscoroutinefunction(row.handler)
    assert inspect.getdoc(row.handler)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_row_when_it_has_an_inline_handler_then_that_is_tried_first(row):
    assert (row.inline_handler is not None) == (row.execution is Execution.INLINE_FIRST)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_row_when_its_work_is_the_owners_then_the_command_names_a_partition(row):
    names = {field.name for field in fields(COMMANDS[row.code].command)}  # type: ignore[arg-type]
    if row.code == CommandCode.GET_PARTITION_ROUTE:
        return  # the metadata tell it, which every shard has

    assert (row.placement is Placement.PARTITION_OWNER) == bool(
        names & {"partition_id", "partitioning", "targets"}
    )


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_row_when_it_has_late_fields_then_the_command_has_them(row):
    assert set(row.late_fields) <= {
        field.name
        for field in fields(COMMANDS[row.code].command)  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_route_when_it_has_a_command_then_its_row_says_the_same_of_logins(route):
    if isinstance(route.operation, CommandCode):
        row = COMMAND_TABLE[route.operation]

        assert route.public == (row.login in (Login.NOT_NEEDED, Login.LOGS_IN))
        assert row.route is route


@pytest.mark.trio
@pytest.mark.parametrize("shard_id", [0, 1])
async def test_poll_when_it_has_to_wait_or_not_then_is_decoded_once(
    shard_id, monkeypatch, autojump_clock
):
    """The partition is on shard 1: there it is polled inline, and shard 0 has to call."""
    assert owner_shard(PartitionKey(0, 0, 0), 2) == 1
    decode, decoded = RequestReceived.decode, []

    def count(request):
        decoded.append(request.code)
        return decode(request)

    async with open_simulated_server(shards_count=2) as world:
        client = await world.log_in(shard_id)
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 1))
        await client.ask(SendMessages("s", "t", Partitioning.partition(0), [b"m"]))
        poll = PollMessages(ConsumerIdentity.single(1), "s", "t", PollingStrategy.first(), 10, 0)
        monkeypatch.setattr(RequestReceived, "decode", count)

        polled = await client.ask(poll)

    assert polled.messages.payloads() == [b"m"]
    assert decoded == [CommandCode.POLL_MESSAGES]


@pytest.mark.trio
async def test_inline_handler_when_it_waits_then_that_is_our_mistake():
    async def wait():
        await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="INLINE"):
        dispatcher._run_without_waiting(wait())


def test_page_of_commands_when_rendered_anew_then_does_not_change():
    assert PAGE.read_text() == rendered(), "run: python -m tools.command_table"
