"""What only clients from 0.9 on know over HTTP: descriptions, confirmations, changes."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import StatusCode
from iggy_protocol.rest import format_cursor, parse_cursor
from tests.server.web.option_requests import (
    NEWER,
    OLD_TOPIC,
    SDK_0_8,
    SDK_0_10,
    TOPIC_OF_0_9,
    TOPIC_OF_0_10,
    log_in,
    make_topic,
    topic_of,
)
from tests.server.web.web_harness import ROOT, Web, open_web

# Descriptions, one's own account


@pytest.mark.trio
@pytest.mark.parametrize("version", [SDK_0_8, SDK_0_10])
async def test_options_when_described_then_tell_kind_default_and_flags(version, autojump_clock):
    async with open_web(settings={"SYSTEM_SEGMENT_SIZE": "4 MiB"}) as web:
        await log_in(web, version)

        described = {one["key"]: one for one in (await web.ask("GET", "/options/topic")).json()}

        assert described["segment_size"] == {
            "key": "segment_size",
            "kind": "uint64",
            "default": "4194304",
            "description": described["segment_size"]["description"],
            "updatable": False,
            "resettable": False,
            "secret": False,
            "read_only": False,
            "critical": False,
        }
        assert described["message_expiry"]["resettable"]
        assert described["name"]["default"] is None
        assert len((await web.ask("GET", "/options/user")).json()) == 2
        assert (await web.ask("GET", "/options/bogus")).status_code == 404


@pytest.mark.trio
@pytest.mark.parametrize("version", [SDK_0_8, SDK_0_10])
async def test_me_when_asked_for_then_is_the_caller(version, autojump_clock):
    user = {"username": "joe", "password": "secret", "status": "active"}
    async with open_web() as web:
        await log_in(web, version)
        await web.ask("POST", "/users", user)
        refused = await web.ask("POST", "/users", {**user, "username": "me"})
        assert refused.json()["id"] == StatusCode.INVALID_USERNAME

        await log_in(web, version, "joe", "secret")

        assert (await web.ask("GET", "/users/me")).json()["username"] == "joe"
        assert (await web.ask("GET", "/users/iggy")).status_code == 403


# Sends


def message(context: dict[str, int] | None = None) -> dict[str, Any]:
    """Return the body of a send to the first partition."""
    body: dict[str, Any] = {
        "partitioning": {"kind": "partition_id", "value": "AAAAAA=="},
        "messages": [{"payload": "aGVsbG8="}],
    }
    return body if context is None else {**body, "context": context}


async def messages_count(web: Web) -> int:
    """Return how many messages the topic holds."""
    return int((await topic_of(web))["messages_count"])


@pytest.mark.trio
async def test_send_when_of_a_client_of_0_8_then_is_answered_with_nothing(autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_8)
        await make_topic(web, OLD_TOPIC)

        answer = await web.ask("POST", "/streams/s/topics/t/messages", message())

        assert (answer.status_code, answer.content) == (201, b"")
        assert "iggy-durability" not in answer.headers


@pytest.mark.trio
@pytest.mark.parametrize(
    ("body", "durability"), [(TOPIC_OF_0_9, "persisted"), (TOPIC_OF_0_10, "replicated")]
)
async def test_send_when_of_a_newer_client_then_is_confirmed(body, durability, autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, body)
        context = (await topic_of(web))["partitions"][0]["context"]

        answer = await web.ask("POST", "/streams/s/topics/t/messages", message(context))

        assert answer.status_code == 201, answer.text
        place = {"stream_id": 0, "topic_id": 0, "partition_id": 0}
        assert answer.json()["confirmations"] == [{**place, "base_offset": 0}]
        assert answer.headers["iggy-durability"] == durability
        assert await messages_count(web) == 1

        again = await web.ask("POST", "/streams/s/topics/t/messages", message(context))
        assert again.json()["confirmations"] == [{**place, "base_offset": 1}]


@pytest.mark.trio
async def test_send_when_the_partition_has_started_over_then_is_refused(autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, TOPIC_OF_0_10)
        context = (await topic_of(web))["partitions"][0]["context"]
        await web.ask("DELETE", "/streams/s/topics/t/purge")

        answer = await web.ask("POST", "/streams/s/topics/t/messages", message(context))

        assert answer.status_code == 400
        assert answer.json()["id"] == StatusCode.PARTITION_HISTORY_UNAVAILABLE
        assert await messages_count(web) == 0


@pytest.mark.trio
@pytest.mark.parametrize("version", [SDK_0_8, SDK_0_10])
async def test_send_when_nothing_is_to_be_waited_for_then_is_accepted(version, autojump_clock):
    path = "/streams/s/topics/t/messages?ack=none"
    async with open_web() as web:
        await log_in(web, version)
        await make_topic(web, OLD_TOPIC)

        answer = await web.ask("POST", path, message())
        refused = await web.ask("POST", path.replace("topics/t", "topics/x"), message())

        assert (answer.status_code, answer.content) == (202, b"")
        assert refused.status_code == 404
        assert await messages_count(web) == 1


@pytest.mark.trio
@NEWER
async def test_messages_when_polled_by_a_newer_client_then_are_as_always(version, autojump_clock):
    async with open_web() as web:
        await log_in(web, version)
        await make_topic(web, TOPIC_OF_0_10)
        await web.ask("POST", "/streams/s/topics/t/messages", message())

        query = "consumer_kind=consumer&consumer_id=1&partition_id=0&kind=next&count=5"
        polled = (await web.ask("GET", f"/streams/s/topics/t/messages?{query}")).json()

        assert [one["payload"] for one in polled["messages"]] == ["aGVsbG8="]


# Changes of metadata


@pytest.mark.trio
@pytest.mark.parametrize("version", [SDK_0_8, SDK_0_10])
async def test_changes_when_followed_then_go_on_behind_the_cursor(version, autojump_clock):
    async with open_web() as web:
        await log_in(web, version)
        first = (await web.ask("GET", "/metadata/changes?from=earliest&limit=100")).json()
        await make_topic(web, TOPIC_OF_0_10)

        page = (await web.ask("GET", f"/metadata/changes?after={first['next_cursor']}")).json()

        assert (page["status"], page["phase"], page["has_more"]) == ("ok", "changes", False)
        stream, topic = page["changes"]
        assert (stream["kind"], stream["group"]) == ("stream_created", "streams")
        assert stream["actor"] == 0
        assert stream["body"]["name"] == "s"
        assert topic["body"]["key"]["stream"] == stream["body"]["key"]
        assert topic["body"]["options"]["segment_size"] == {"value": "67108864", "explicit": True}
        assert topic["body"]["partitions_count"] == 2
        cursor = parse_cursor(page["next_cursor"])
        assert (cursor.op, f"{cursor.checksum:x}") == (topic["op"], topic["checksum"])
        assert format_cursor(cursor) == page["next_cursor"]


@pytest.mark.trio
async def test_current_state_when_read_in_pages_then_has_everything(autojump_clock):
    grants = {
        "global": dict.fromkeys(
            (
                "manage_servers",
                "read_servers",
                "manage_users",
                "read_users",
                "manage_streams",
                "read_streams",
                "manage_topics",
                "read_topics",
                "poll_messages",
                "send_messages",
            ),
            False,
        )
    }
    user = {"username": "joe", "password": "secret", "status": "active", "permissions": grants}
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, TOPIC_OF_0_10)
        await web.ask("POST", "/users", user)
        path = "/metadata/changes?from=current&limit=2&groups=streams,users, topics"
        pages = [(await web.ask("GET", path)).json()]
        while pages[-1]["has_more"]:
            after = pages[-1]["token"]
            pages.append((await web.ask("GET", f"{path}&current_after={after}")).json())

        items = [item for page in pages for item in page["items"]]
        assert [item["group"] for item in items] == ["streams", "topics", "users", "users"]
        assert items[-1]["body"]["permissions"]["global"]["read_users"] is False
        assert items[-1]["body"]["status"] == "active"
        assert {page["next_cursor"] for page in pages} == {pages[0]["next_cursor"]}
        assert pages[-1]["token"] is None


@pytest.mark.trio
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "after=nonsense",
        "current_after=%21",
        "current_after=AAAA",
        "groups=bogus",
        "from=bogus",
        "since=-1",
        "since=" + "9" * 20,
    ],
)
async def test_changes_when_the_query_is_wrong_then_answer_is_400(query, autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)

        answer = await web.ask("GET", f"/metadata/changes?{query}")

        assert answer.status_code == 400, answer.text


@pytest.mark.trio
async def test_changes_when_the_user_may_not_manage_the_server_then_answer_is_403(autojump_clock):
    async with open_web() as web:
        await web.log_in(**ROOT)
        user = {"username": "joe", "password": "secret", "status": "active"}
        await web.ask("POST", "/users", user)
        await web.log_in("joe", "secret")

        assert (await web.ask("GET", "/metadata/changes")).status_code == 403
