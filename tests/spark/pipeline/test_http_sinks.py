"""Sinks over HTTP against a real server: ids, retries, refused rows, limits, and secrets."""

from __future__ import annotations

import json

import pytest

from spark_jobs.errors import OptionError
from spark_jobs.pipeline.http_requests import HttpConnection, HttpTarget, RequestFailedError
from spark_jobs.pipeline.http_sinks import grouped
from tests.spark.jobs.test_jobs import messages_of
from tests.spark.pipeline.conftest import SCHEMA
from tests.spark.pipeline.search_server import search_server

JSON = f'[[transform]]\ntype = "json"\nschema = "{SCHEMA}"\n'
CANARY = "c4nary-in-a-mine"


@pytest.fixture
def server():
    with search_server() as running:
        yield running


def test_bulk_when_rows_are_refused_or_delayed_then_each_is_stored_or_a_dead_letter(
    client, stream, orders, pipeline, iggy_spark, server, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("SEARCH_PASSWORD", CANARY)
    orders()
    server.statuses.extend([503, 429])
    server.busy |= {3, 7}
    sink = f'[[sink]]\ntype = "elasticsearch"\nurl = "{server.url}"\nindex = "orders"\n'
    login = 'user = "me"\npassword = { env = "SEARCH_PASSWORD" }\nbatch_rows = 8\n'
    path = pipeline(f'{JSON}{sink}{login}[dead_letters]\ntopic = "dead"\n')

    assert iggy_spark("explain", path) == 0
    assert iggy_spark("run", path) == 0

    stored = [document["id"] for document in server.documents.values()]
    assert sorted(stored) == [number for number in range(40) if number != 13]
    (letters,) = messages_of(client, stream, "dead")
    assert [json.loads(letter.payload)["id"] for letter in letters] == [13]
    assert letters[0].headers["error"] == "refused with status 400: mapper_parsing: thirteen"
    assert all(len(body.splitlines()) <= 16 for _, body in server.requests)
    assert {headers["Authorization"][:6] for headers, _ in server.requests} == {"Basic "}
    said = capsys.readouterr()
    status = (tmp_path / "status" / "orders.json").read_text()
    assert CANARY not in said.out + said.err + status
    assert json.loads(status)["dead_letters_count"] == 1


def test_bulk_when_a_topic_is_read_again_then_documents_keep_their_ids(
    orders, pipeline, iggy_spark, server
):
    orders(count=5)
    sink = f'[[sink]]\ntype = "opensearch"\nurl = "{server.url}"\nindex = "orders"\n'

    assert iggy_spark("run", pipeline(JSON + sink, "a")) == 0
    before = dict(server.documents)
    assert iggy_spark("run", pipeline(JSON + sink, "b")) == 0

    assert len(before) == 10
    assert server.documents == before


def test_post_when_rows_are_sent_then_each_request_has_a_key_of_its_own(
    orders, pipeline, iggy_spark, server, monkeypatch
):
    monkeypatch.setenv("HOOK_TOKEN", f"Bearer {CANARY}")
    orders(count=5)
    header = 'headers = { Authorization = { env = "HOOK_TOKEN" } }\n'
    sink = f'[[sink]]\ntype = "http"\nurl = "{server.url}/hook"\n{header}'

    assert iggy_spark("run", pipeline(JSON + sink, "a")) == 0
    first = {headers["Idempotency-Key"]: json.loads(body) for headers, body in server.requests}
    assert iggy_spark("run", pipeline(JSON + sink, "b")) == 0

    assert sorted(body["id"] for body in first.values()) == list(range(10))
    assert len(server.requests) == 20
    again = {headers["Idempotency-Key"] for headers, _ in server.requests}
    assert again == set(first)
    assert server.requests[0][0]["Authorization"] == f"Bearer {CANARY}"


def test_server_when_it_never_takes_a_request_then_the_pipeline_fails_and_hides_the_secret(
    orders, pipeline, iggy_spark, server, monkeypatch, capsys
):
    monkeypatch.setenv("HOOK_URL", f"{server.url}/hook?token={CANARY}")
    orders(count=1)
    server.statuses.extend([403] * 100)
    sink = '[[sink]]\ntype = "http"\nurl = { env = "HOOK_URL" }\nattempts = 2\n'
    path = pipeline(JSON + sink)
    path.write_text(path.read_text().replace("once = true", "once = true\nrestarts = 0"))

    assert iggy_spark("run", path, "--verbose") == 1

    said = capsys.readouterr()
    assert "/hook did not take a request: status 403" in said.err
    assert CANARY not in said.out + said.err


def test_request_when_the_server_is_away_or_busy_then_is_sent_again_and_then_given_up(server):
    server.statuses.extend([500, 502])
    connection = HttpConnection(HttpTarget(server.url, attempts=3))
    assert connection.post("/x", b"{}", {}) == b"{}"
    assert len(server.requests) == 3

    server.statuses.extend([500] * 3)
    with pytest.raises(RequestFailedError, match="did not take a request: status 500"):
        connection.post("/x", b"{}", {})
    connection.close()
    gone = HttpConnection(HttpTarget("http://me:secret@127.0.0.1:1", attempts=2))
    with pytest.raises(RequestFailedError, match=r"http://\*\*\*@127.0.0.1:1 did not take"):
        gone.post("/x", b"{}", {})


def test_rows_when_grouped_then_requests_have_few_rows_and_bytes():
    rows = [{"_iggy_body": "x" * size} for size in (1, 1, 1, 5, 9, 1)]

    groups = list(grouped(iter(rows), 2, 6))

    assert [[len(row["_iggy_body"]) for row in group] for group in groups] == [
        [1, 1],
        [1, 5],
        [9],
        [1],
    ]


@pytest.mark.parametrize("url", ["ftp://host", "host:80", "http://"])
def test_url_when_it_is_none_then_is_refused(url):
    with pytest.raises(OptionError, match="is no URL; write http"):
        HttpTarget(url).check()
