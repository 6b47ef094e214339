"""Options over HTTP: bodies of every release, and what each is told."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_protocol import StatusCode
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.web.option_requests import (
    NEWER,
    OLD_TOPIC,
    SDK_0_8,
    SDK_0_9,
    SDK_0_10,
    SDK_PREVIEW,
    TOPIC_OF_0_9,
    TOPIC_OF_0_10,
    explicit,
    log_in,
    make_topic,
    topic_of,
)
from tests.server.web.web_harness import open_web

# What each client is told


@pytest.mark.trio
@pytest.mark.parametrize("version", [None, SDK_0_8, "1"])
@pytest.mark.parametrize("body", [OLD_TOPIC, TOPIC_OF_0_9, TOPIC_OF_0_10])
async def test_client_of_0_8_when_it_reads_then_is_told_what_it_always_was(
    version, body, autojump_clock
):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, body)
        user = {"username": "joe", "password": "secret", "status": "active"}
        await web.ask("POST", "/users", user)
        await log_in(web, version)

        topic = await topic_of(web)
        stream = (await web.ask("GET", "/streams/s")).json()
        joe = (await web.ask("GET", "/users/joe")).json()

        assert list(topic) == [
            "id",
            "created_at",
            "name",
            "size",
            "message_expiry",
            "compression_algorithm",
            "max_topic_size",
            "replication_factor",
            "messages_count",
            "partitions_count",
            "partitions",
        ]
        assert list(topic["partitions"][0])[-1] == "messages_count"
        for shown in (stream, *stream["topics"], joe):
            assert "options" not in shown


@pytest.mark.trio
@NEWER
async def test_newer_client_when_it_reads_then_is_told_options_and_contexts(
    version, autojump_clock
):
    async with open_web() as web:
        await log_in(web, version)
        created = await make_topic(web, TOPIC_OF_0_10)

        topic = await topic_of(web)

        assert created.status_code == 200, created.text
        assert (
            explicit(topic)
            == explicit(created.json())
            == {
                "consumer_offset_durability": "replicated",
                "durability": "replicated",
                "message_expiry": str(2**64 - 1),
                "segment_size": "67108864",
            }
        )
        assert topic["options"]["preallocate_segments"] == {"value": "false", "explicit": False}
        context = topic["partitions"][1]["context"]
        assert context["incarnation"] > 0
        assert context["owner_generation"] == 0
        assert context["metadata_op"] > 0
        stream = (await web.ask("GET", "/streams/s")).json()
        assert stream["topics"][0]["options"] == topic["options"]
        assert ("encryption_key_source" in stream["options"]) == (version != SDK_0_9)
        assert (await web.ask("GET", "/users/iggy")).json()["options"] == {}
        assert "options" in (await web.ask("GET", "/users")).json()[0]
        assert "options" in (await web.ask("GET", "/streams")).json()[0]
        assert "options" in (await web.ask("GET", "/streams/s/topics")).json()[0]


@pytest.mark.trio
async def test_token_when_exchanged_then_still_tells_what_its_client_speaks(autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, TOPIC_OF_0_10)

        answer = await web.ask("POST", "/users/refresh-token", {"token": web.token}, token="")
        web.token = answer.json()["access_token"]["token"]

        assert "options" in await topic_of(web)


# Creating


@pytest.mark.trio
@pytest.mark.parametrize("version", [None, SDK_0_9, SDK_0_10])
async def test_topic_when_created_as_0_9_does_then_has_its_options(version, autojump_clock):
    async with open_web() as web:
        await log_in(web, version)
        assert (await make_topic(web, TOPIC_OF_0_9)).status_code == 200
        await log_in(web, SDK_0_10)

        topic = await topic_of(web)

        assert explicit(topic) == {
            "compression_algorithm": "none",
            "consumer_offset_durability": "replicated",
            "durability": "persisted",
            "max_topic_size": str(2**64 - 1),
            "message_expiry": str(2**64 - 1),
            "segment_size": "67108864",
        }


@pytest.mark.trio
async def test_topic_when_created_as_0_8_does_then_its_fields_are_explicit(autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        assert (await make_topic(web, OLD_TOPIC)).status_code == 200

        assert explicit(await topic_of(web)).keys() == {
            "compression_algorithm",
            "message_expiry",
            "max_topic_size",
        }


@pytest.mark.trio
async def test_topic_when_only_named_then_is_one_of_0_10_or_a_mistake_of_0_8(autojump_clock):
    body = {"name": "t", "partitions_count": 1}
    async with open_web() as web:
        await log_in(web, SDK_0_8)
        refused = await make_topic(web, body)
        await log_in(web, SDK_0_10)
        created = await make_topic(web, body)

        assert refused.status_code == 422
        assert "compression_algorithm" in refused.text
        assert created.status_code == 200
        assert explicit(created.json()) == {}


@pytest.mark.trio
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"bogus": 1}, 4041),
        ({"segment_size": 1}, 4042),
        ({"segment_size": ""}, 4042),
        ({"message_expiry": "long"}, 4042),
        ({"replication_factor": 2}, 4042),
        ({"name": "x"}, 4041),
        ({"": "x"}, 4042),
    ],
)
async def test_options_when_wrong_then_the_answer_names_the_status(options, status, autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)

        answer = await make_topic(web, {**TOPIC_OF_0_10, "options": options})

        assert (answer.status_code, answer.json()["id"]) == (400, status)


@pytest.mark.trio
@pytest.mark.parametrize("options", [{"segment_size": 1.5}, {"durability": ["x"]}, [], "x"])
async def test_options_when_of_another_shape_then_the_body_is_refused(options, autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_10)

        assert (await make_topic(web, {**TOPIC_OF_0_10, "options": options})).status_code == 422


@pytest.mark.trio
async def test_stream_and_user_when_created_with_options_then_unknown_ones_are_refused(
    autojump_clock,
):
    key = "a" * 43 + "="
    user = {"username": "joe", "password": "secret", "status": "active"}
    async with open_web() as web:
        await log_in(web, SDK_0_8)
        asked = [
            await web.ask("POST", "/streams", {"name": "s", "options": {}}),
            await web.ask("POST", "/streams", {"name": "x", "options": {"encryption_key": key}}),
            await web.ask("POST", "/streams", {"name": "x", "options": {"bogus": 1}}),
            await web.ask("POST", "/users", {**user, "options": {"bogus": 1}}),
            await web.ask("POST", "/users", {**user, "options": {}}),
        ]

        assert [answer.status_code for answer in asked] == [200, 400, 400, 400, 200]
        assert [answer.json()["id"] for answer in asked[1:4]] == [4106, 4041, 4041]


@pytest.mark.trio
async def test_topic_size_when_smaller_than_its_segments_then_the_reason_names_both(
    autojump_clock,
):
    options = {"segment_size": "8 MiB", "max_topic_size": "4 MiB"}
    async with open_web() as web:
        await log_in(web, SDK_0_10)

        answer = await make_topic(web, {**TOPIC_OF_0_10, "options": options})

        assert answer.json()["id"] == StatusCode.INVALID_TOPIC_SIZE
        assert "4.19 MB < segment size: 8.39 MB" in answer.json()["reason"]


# Updating


@pytest.mark.trio
async def test_topic_when_updated_as_0_9_does_then_nulls_stay(autojump_clock):
    body: dict[str, Any] = {
        "compression_algorithm": "gzip",
        "message_expiry": None,
        "max_topic_size": None,
        "name": "t2",
        "options": {},
    }
    async with open_web() as web:
        await log_in(web, SDK_0_9)
        await make_topic(web, {**TOPIC_OF_0_9, "message_expiry": 5_000_000})

        answer = await web.ask("PUT", "/streams/s/topics/t", body)

        assert (answer.status_code, answer.content) == (204, b"")
        topic = await topic_of(web)
        assert (topic["name"], topic["compression_algorithm"], topic["message_expiry"]) == (
            "t2",
            "gzip",
            5_000_000,
        )


@pytest.mark.trio
async def test_topic_when_updated_as_0_10_does_then_resets_and_sets(autojump_clock):
    options = {**TOPIC_OF_0_10["options"], "max_topic_size": "2 GiB"}  # type: ignore[dict-item]
    async with open_web() as web:
        await log_in(web, SDK_PREVIEW)
        await make_topic(web, {**TOPIC_OF_0_10, "options": options})

        body: dict[str, Any] = {
            "message_expiry": 5000000,
            "name": "t2",
            "reset": ["max_topic_size"],
        }
        answer = await web.ask("PUT", "/streams/s/topics/t", body)

        assert answer.status_code == 204, answer.text
        topic = await topic_of(web)
        assert (topic["name"], topic["message_expiry"], topic["max_topic_size"]) == (
            "t2",
            5_000_000,
            2**64 - 1,
        )
        assert "max_topic_size" not in explicit(topic)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"segment_size": "1 MiB"}, 4103),
        ({"compression_algorithm": "gzip"}, 4103),
        ({"bogus": 1}, 4041),
        ({"reset": ["name"]}, 4104),
        ({"reset": ["message_expiry"], "message_expiry": 5}, 3),
        ({"reset": ["message_expiry", "message_expiry"]}, 3),
        ({"reset": []}, 3),
        ({}, 3),
        ({"name": None}, 3),
        ({"message_expiry": "long"}, 4042),
    ],
)
async def test_update_of_0_10_when_wrong_then_the_answer_names_the_status(
    body, status, autojump_clock
):
    async with open_web() as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, TOPIC_OF_0_10)
        before = await topic_of(web)

        answer = await web.ask("PUT", "/streams/s/topics/t", body)

        assert (answer.status_code, answer.json()["id"]) == (400, status)
        assert explicit(await topic_of(web)) == explicit(before)


@pytest.mark.trio
@pytest.mark.parametrize("body", [{"name": "x"}, {"name": None}, {}])
async def test_update_of_0_8_when_incomplete_then_is_refused_as_always(body, autojump_clock):
    async with open_web() as web:
        await log_in(web, SDK_0_8)
        await make_topic(web, OLD_TOPIC)

        assert (await web.ask("PUT", "/streams/s/topics/t", body)).status_code == 422


@pytest.mark.trio
@NEWER
async def test_streams_and_users_when_updated_in_any_way_then_are_renamed(version, autojump_clock):
    user = {"username": "bob", "password": "secret", "status": "active"}
    async with open_web() as web:
        await log_in(web, version)
        for name in ("s", "r"):
            await web.ask("POST", "/streams", {"name": name})
        await web.ask("POST", "/users", user)
        await web.ask("POST", "/users", {**user, "username": "eve"})

        asked = [
            await web.ask("PUT", "/streams/s", {"name": "s2"}),
            await web.ask("PUT", "/streams/r", {"name": "r2", "options": {}}),
            await web.ask("PUT", "/users/bob", {"status": "inactive", "username": "bobby"}),
            await web.ask("PUT", "/users/eve", {"username": "eva", "status": None, "options": {}}),
            await web.ask("PUT", "/streams/s2", {"reset": ["name"]}),
            await web.ask("PUT", "/streams/s2", {"options": {}}),
            await web.ask("PUT", "/users/bobby", {"options": {"status": "gone"}}),
        ]

        assert [answer.status_code for answer in asked] == [204] * 4 + [400] * 3
        assert [answer.json()["id"] for answer in asked[4:]] == [4104, 3, 4042]
        streams = (await web.ask("GET", "/streams")).json()
        assert [stream["name"] for stream in streams] == ["s2", "r2"]
        users = (await web.ask("GET", "/users")).json()
        assert [(user["username"], user["status"]) for user in users[1:]] == [
            ("bobby", "inactive"),
            ("eva", "active"),
        ]


@pytest.mark.trio
async def test_options_when_the_server_starts_again_then_are_the_same(autojump_clock):
    storage = SimulatedStorage()
    settings = {"HTTP_JWT_ENCODING_SECRET": "a secret that is long enough for everybody"}
    async with open_web(storage, settings=settings) as web:
        await log_in(web, SDK_0_10)
        await make_topic(web, TOPIC_OF_0_10)
        before, token = await topic_of(web), web.token

    async with open_web(storage, settings=settings) as web:
        web.token = token
        after = await topic_of(web)
        assert after["options"] == before["options"]
