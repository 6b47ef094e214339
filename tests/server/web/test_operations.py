"""What requests do, beside what was recorded: names, messages, several shards, pages."""

from __future__ import annotations

import base64
import io
import zipfile
from urllib.parse import quote

import pytest
import trio

from iggy_protocol import (
    ConsumerIdentity,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_protocol.rest import ROUTES
from tests.server.web.web_harness import Web, open_web

pytestmark = pytest.mark.trio

MESSAGES = "/streams/s/topics/t/messages"


def text64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def batch(*payloads: bytes, partition_id: int = 0) -> dict:
    return {
        "partitioning": {
            "kind": "partition_id",
            "value": text64(partition_id.to_bytes(4, "little")),
        },
        "messages": [{"payload": text64(payload)} for payload in payloads],
    }


async def poll(web: Web, query: str) -> dict:
    answer = await web.ask("GET", f"{MESSAGES}?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("shards_count", [1, 3])
async def test_messages_when_sent_over_http_then_are_polled_through_every_shard(
    shards_count, autojump_clock
):
    async with open_web(shards_count=shards_count) as web:
        await web.log_in()
        await web.make_topic(4)
        for partition_id in range(4):
            body = batch(b"%d" % partition_id, b"two", partition_id=partition_id)
            assert (await web.ask("POST", MESSAGES, body)).status_code == 201
        for shard_id in range(shards_count):
            client = await web.world.log_in(shard_id)
            for partition_id in range(4):
                start = PollingStrategy.first()
                command = PollMessages(ConsumerIdentity.single(1), "s", "t", start, 9, partition_id)
                found = (await client.ask(command)).messages.payloads()
                assert found == [b"%d" % partition_id, b"two"]


@pytest.mark.parametrize("shards_count", [1, 2])
async def test_messages_when_sent_over_tcp_then_are_polled_over_http_in_pieces(
    shards_count, autojump_clock
):
    async with open_web(shards_count=shards_count) as web:
        await web.log_in()
        await web.make_topic(2)
        client = await web.world.log_in(shards_count - 1)
        payloads = [b"%d" % number * 50 for number in range(1000)]
        for partition_id in (0, 1):
            where = Partitioning.partition(partition_id)
            await client.ask(SendMessages("s", "t", where, payloads))
            polled = await poll(web, f"partition_id={partition_id}&kind=offset&value=10&count=900")
            found = [base64.b64decode(message["payload"]) for message in polled["messages"]]
            assert found == payloads[10:910]
            assert (polled["count"], polled["current_offset"]) == (900, 999)


async def test_poll_when_it_is_large_then_is_cut_between_messages(autojump_clock, monkeypatch):
    monkeypatch.setattr("iggy_ref_server.web.context.POLL_BYTES_MAX", 10_000)
    async with open_web() as web:
        await web.log_in()
        await web.make_topic()
        for _ in range(5):
            await web.ask("POST", MESSAGES, batch(bytes(4000)))
        assert (await poll(web, "count=5"))["count"] == 2


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("count=1&count=2", 400),
        ("count=01&other=1&other=2", 200),
        ("count=%2B1", 200),
        ("count=-1", 400),
        ("count=1.0", 400),
        ("count=4294967296", 400),
        ("auto_commit=TRUE", 400),
        ("kind=", 400),
        ("kind=of", 400),
        ("partition_id=", 400),
        ("consumer_id=", 400),
        ("value=18446744073709551616", 400),
    ],
)
async def test_query_when_written_in_odd_ways_then_is_read_as_the_original_reads_it(
    query, status, autojump_clock
):
    """Each line was tried on a real 0.8.0 server."""
    async with open_web() as web:
        await web.log_in()
        await web.make_topic()
        assert (await web.ask("GET", f"{MESSAGES}?{query}")).status_code == status


@pytest.mark.parametrize(
    ("kind", "value", "status"),
    [
        ("balanced", b"ignored", 201),
        ("partition_id", bytes(3), 400),
        ("partition_id", bytes(5), 201),
        ("messages_key", b"k" * 255, 201),
        ("messages_key", b"k" * 256, 400),
    ],
)
async def test_partitioning_when_its_value_has_odd_sizes_then_is_read_as_the_original_reads_it(
    kind, value, status, autojump_clock
):
    """Each line was tried on a real 0.8.0 server."""
    async with open_web() as web:
        await web.log_in()
        await web.make_topic()
        body = batch(b"x") | {"partitioning": {"kind": kind, "value": text64(value)}}
        assert (await web.ask("POST", MESSAGES, body)).status_code == status


async def test_offsets_when_stored_over_http_then_count_for_the_next_poll(autojump_clock):
    async with open_web(shards_count=2) as web:
        await web.log_in()
        await web.make_topic()
        await web.ask("POST", MESSAGES, batch(b"a", b"b", b"c"))
        body = {"consumer_id": "me", "partition_id": 0, "offset": 1}
        answer = await web.ask("PUT", "/streams/s/topics/t/consumer-offsets", body)
        assert answer.status_code == 204
        polled = await poll(web, "consumer_id=me&kind=next")
        assert [message["payload"] for message in polled["messages"]] == [text64(b"c")]


@pytest.mark.parametrize("name", ["a/b", "ünïcode", "a%b", "a b", "?", "..", "+"])
async def test_names_when_escaped_in_a_path_then_are_found(name, autojump_clock):
    async with open_web() as web:
        await web.log_in()
        assert (await web.ask("POST", "/streams", {"name": name})).status_code == 200
        escaped = "%2E%2E" if name == ".." else quote(name, safe="")
        answer = await web.ask("GET", f"/streams/{escaped}")
        assert answer.json()["name"] == name


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/streams/007", 200),
        ("/streams/+7", 404),
        ("/streams/4294967296", 404),
        ("/streams/%FF", 400),
        (f"/streams/{'a' * 256}", 400),
        ("/streams/", 404),
        ("/streams//topics", 400),
        ("/streams//topics/", 404),
        ("/streams/s1/topics//messages?count=1", 400),
        ("/clients/4294967296", 400),
        ("/clients/-1", 400),
    ],
)
async def test_ids_when_written_in_odd_ways_then_are_read_as_the_original_reads_them(
    path, status, autojump_clock
):
    async with open_web() as web:
        await web.log_in()
        for number in range(8):
            await web.ask("POST", "/streams", {"name": f"s{number}"})
        await web.ask("DELETE", "/streams/s7") if path.endswith("+7") else None
        assert (await web.ask("GET", path)).status_code == status


@pytest.mark.parametrize(("text", "status"), [("9" * 5000, 400), ("0" * 5000 + "7", 404)])
async def test_number_in_a_path_when_of_thousands_of_digits_then_is_read_or_refused(
    text, status, autojump_clock
):
    async with open_web() as web:
        await web.log_in()

        assert (await web.ask("GET", f"/clients/{text}")).status_code == status


async def test_users_when_called_as_a_path_ends_then_are_found_below_it(autojump_clock):
    async with open_web() as web:
        await web.log_in()
        body = {"username": "login", "password": "secret", "status": "active"}
        await web.ask("POST", "/users", body)
        body = {"current_password": "secret", "new_password": "other"}
        assert (await web.ask("PUT", "/users/login/password", body)).status_code == 204
        assert (await web.ask("GET", "/users/login")).status_code == 405
        assert (await web.ask("GET", "/users/login/nope")).status_code == 404


async def test_head_when_asked_for_then_is_that_of_get(autojump_clock):
    async with open_web() as web:
        await web.log_in()
        for path in ("/", "/streams", "/openapi.json", "/docs"):
            head, full = [await web.ask(method, path) for method in ("HEAD", "GET")]
            assert head.status_code == full.status_code == 200
            assert head.headers["content-length"] == full.headers["content-length"]


async def test_metrics_when_there_are_several_shards_then_count_all_of_them(autojump_clock):
    async with open_web(shards_count=3) as web:
        await web.log_in()
        await web.make_topic(6)
        for partition_id in range(6):
            await web.ask("POST", MESSAGES, batch(b"x", b"y", partition_id=partition_id))
        clients = [await web.world.log_in(shard_id) for shard_id in range(3)]
        text = (await web.ask("GET", "/metrics", token="")).text
        for line in ("partitions 6", "segments 6", "messages 12", "clients 3", "users 1"):
            assert f"\n{line}\n" in text
        assert text.endswith("# EOF\n")
        for client in clients:
            await client.aclose()
        await trio.sleep(1)
        assert "\nclients 0\n" in (await web.ask("GET", "/metrics", token="")).text


@pytest.mark.parametrize(
    ("settings", "path", "token", "status"),
    [
        ({"HTTP_METRICS_ENABLED": "false"}, "/metrics", "", 404),
        ({"HTTP_METRICS_ENDPOINT": "/m"}, "/metrics", "", 404),
        ({"HTTP_METRICS_ENDPOINT": "/m"}, "/m", "", 401),
        ({"HTTP_METRICS_ENDPOINT": "/m"}, "/m", None, 200),
    ],
)
async def test_metrics_when_configured_then_are_there(
    settings, path, token, status, autojump_clock
):
    async with open_web(settings=settings) as web:
        await web.log_in()
        assert (await web.ask("GET", path, token=token)).status_code == status


async def test_snapshot_when_asked_for_then_is_an_archive_without_secrets(
    autojump_clock, tmp_path, monkeypatch
):
    secret = "this secret must not leave the server"
    async with open_web(settings={"HTTP_JWT_ENCODING_SECRET": secret}) as web:
        await web.log_in()
        body = {"compression": "Deflated", "snapshot_types": ["Test", "ResourceUsage"]}
        answer = await web.ask("POST", "/snapshot", body)
        archive = zipfile.ZipFile(io.BytesIO(answer.content))
        assert len(archive.namelist()) == 2
        assert not any(secret.encode() in archive.read(name) for name in archive.namelist())


async def test_documents_when_read_then_describe_every_route(autojump_clock):
    async with open_web() as web:
        document = (await web.ask("GET", "/openapi.json")).json()
        page = (await web.ask("GET", "/docs")).text
        described = {
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
        }
        assert described == {(route.method, route.path) for route in ROUTES}
        schemas = document["components"]["schemas"]
        assert references(document) <= {f"#/components/schemas/{name}" for name in schemas}
        for path in document["paths"]:
            assert f"<code>{path}</code>" in page
        assert "<script" not in page


def references(value: object) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if "$ref" in value else set()
        return found.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def test_unexpected_failure_when_it_happens_then_answers_500_and_the_rest_goes_on(
    autojump_clock, monkeypatch, caplog
):
    async with open_web() as web:
        await web.log_in()

        async def broken(session, command):
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(web.context.dispatcher, "perform", broken)
            answer = await web.ask("GET", "/streams")
        assert (answer.status_code, answer.json()["id"]) == (500, StatusCode.ERROR)
        assert "a bug" in caplog.text
        assert (await web.ask("GET", "/streams")).status_code == 200


CORS = "HTTP_CORS_"


@pytest.mark.parametrize(
    ("settings", "origin", "expected"),
    [
        ({}, "http://a.example", "*"),
        ({"ALLOWED_ORIGINS": "[http://a.example]"}, "http://a.example", "http://a.example"),
        ({"ALLOWED_ORIGINS": "[http://a.example]"}, "http://b.example", None),
        ({"ENABLED": "false"}, "http://a.example", None),
    ],
)
async def test_origins_when_configured_then_are_told(settings, origin, expected, autojump_clock):
    settings = {CORS + name: value for name, value in settings.items()}
    async with open_web(settings=settings) as web:
        answer = await web.client.get("/ping", headers={"origin": origin})
        assert answer.headers.get("access-control-allow-origin") == expected
        assert answer.text == "pong"


async def test_preflight_when_much_is_allowed_then_says_all_of_it(autojump_clock):
    settings = {
        f"{CORS}ALLOWED_ORIGINS": "[http://a.example]",
        f"{CORS}ALLOW_CREDENTIALS": "true",
        f"{CORS}ALLOW_PRIVATE_NETWORK": "true",
        f"{CORS}EXPOSED_HEADERS": "[x-one, x-two]",
        f"{CORS}ALLOWED_METHODS": "[get, post]",
    }
    asked = {"origin": "http://a.example", "access-control-request-private-network": "true"}
    async with open_web(settings=settings) as web:
        told = (await web.client.options("/streams/1", headers=asked)).headers
        assert told["access-control-allow-credentials"] == "true"
        assert told["access-control-allow-private-network"] == "true"
        assert told["access-control-allow-methods"] == "GET,POST"
        assert told["allow"] == "GET,HEAD,PUT,DELETE"
        told = (await web.client.get("/ping", headers=asked)).headers
        assert told["access-control-expose-headers"] == "x-one,x-two"
        assert told["access-control-allow-credentials"] == "true"
