"""Sources besides topics: files, webhooks over the server's HTTP API, and what is missing."""

from __future__ import annotations

import base64
import json
import urllib.request

import pytest

from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer
from tests.spark.pipeline.conftest import SERVER

FILES = """
[pipeline]
checkpoint = "FOLDER/state"
once = true
[source]
type = "files"
path = "FOLDER/in"
format = "json"
schema = "id BIGINT NOT NULL, item STRING"
[[sink]]
type = "parquet"
path = "FOLDER/lake"
[dead_letters]
path = "FOLDER/dead"
"""


def test_files_when_they_arrive_then_each_row_is_read_once(spark, pipeline, iggy_spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "item": "tea"}\n\n{"item": "no id"}\n')
    path = pipeline(FILES)

    assert iggy_spark("run", path) == 0
    (tmp_path / "in" / "b.json").write_text('{"id": 2}\n{"id": "x"}\n')
    assert iggy_spark("run", path) == 0

    rows = spark.read.parquet(str(tmp_path / "lake")).orderBy("id").collect()
    assert [(row["id"], row["item"]) for row in rows] == [(1, "tea"), (2, None)]
    dead = spark.read.parquet(str(tmp_path / "dead")).orderBy("file").collect()
    assert [(row["file"][-6:], row["row"], row["error"]) for row in dead] == [
        ("a.json", 1, "field id is missing"),
        ("b.json", 1, "it does not fit the schema"),
    ]


WEBHOOK = """
[pipeline]
checkpoint = "FOLDER/state"
once = true
[source]
type = "webhook"
stream = "hooks"
topic = "orders"
server = { env = "SERVER" }
[[sink]]
type = "parquet"
path = "FOLDER/lake"
"""


def post(url, body, token=None):
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


def test_webhook_when_something_is_posted_then_the_pipeline_reads_it(
    spark, pipeline, iggy_spark, tmp_path, monkeypatch, capsys
):
    settings = {"IGGY_HTTP_ENABLED": "true", "IGGY_HTTP_ADDRESS": "127.0.0.1:0"}
    with RunningServer(settings=settings) as server, IggyClient(server.url) as client:
        path = pipeline(WEBHOOK)
        monkeypatch.setenv(SERVER, server.url)
        http = f"http://127.0.0.1:{client.get_cluster_metadata().nodes[0].http_port}"
        assert iggy_spark("check", path) == 0
        login = post(f"{http}/users/login", {"username": "iggy", "password": "iggy"})
        message = {"payload": base64.b64encode(b'{"id": 1}').decode()}
        body = {"partitioning": {"kind": "balanced", "value": ""}, "messages": [message]}
        url = f"{http}/streams/hooks/topics/orders/messages"
        post(url, body, login["access_token"]["token"])

        assert iggy_spark("run", path) == 0

    (row,) = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert bytes(row["payload"]) == b'{"id": 1}'
    said = capsys.readouterr().err
    assert f"what is posted to {url} with 'Authorization: Bearer TOKEN'" in said


def test_kafka_when_spark_has_no_connector_then_says_which_package_is_needed(
    spark, pipeline, iggy_spark, capsys
):
    source = '[source]\ntype = "kafka"\nservers = "h:9092"\ntopic = "t"\n'
    path = pipeline('[[sink]]\ntype = "console"\n', source=source)

    assert iggy_spark("run", path) == 1

    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    assert f"add --packages {package}" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "text"), [("csv", "id,item\n1,tea\n"), ("text", '{"id": 1}\n')])
def test_files_when_of_other_formats_then_are_shown_without_a_run(
    spark, pipeline, iggy_spark, tmp_path, capsys, kind, text
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text(text)
    changed = FILES.replace('"json"', f'"{kind}"').replace(
        'schema = "id BIGINT NOT NULL, item STRING"\n', ""
    )

    assert iggy_spark("run", pipeline(changed), "--dry-run") == 0

    shown = capsys.readouterr().out
    assert f"{kind} files in" in shown
    assert "rows, first 1:" in shown
