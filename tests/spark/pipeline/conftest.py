"""What tests of pipelines share: a topic of orders, and a way to write and run pipeline files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.pipeline import command
from spark_jobs.pipeline.document import parse_document
from spark_jobs.pipeline.specification import PipelineSpec, parse_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iggy_sdk.blocking import IggyClient
    from iggy_sdk.testing import RunningServer

SERVER = "PIPELINE_TEST_SERVER"
BAD = [b"nope", b'{"id": "text"}']
SCHEMA = "id BIGINT NOT NULL, item STRING, cups STRING"


@pytest.fixture
def orders(client: IggyClient, stream: str) -> Callable[..., None]:
    """Return a function that sends orders to both partitions of topic ``orders``."""
    client.create_topic(stream, "orders", 2)

    def send(first: int = 0, count: int = 20, *, bad: bool = False) -> None:
        for partition in range(2):
            payloads = [
                b'{"id": %d, "item": "tea", "cups": "%d"}' % (number, number % 5)
                for number in range(first + partition, first + 2 * count, 2)
            ]
            client.send_messages(
                stream, "orders", payloads + (BAD if bad else []), partition_id=partition
            )

    return send


@pytest.fixture
def pipeline(
    tmp_path: Path, stream: str, spark_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Return a function that writes a pipeline file, which reads topic ``orders``."""
    monkeypatch.setenv(SERVER, spark_server.url)

    def write(text: str, name: str = "orders", *, source: str | None = None) -> Path:
        path = tmp_path / "pipelines" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        reads = source or (
            '[source]\ntype = "iggy"\nstream = "STREAM"\ntopic = "orders"\n'
            'server = { env = "SERVER" }\n'
        )
        run = f'[pipeline]\ncheckpoint = "FOLDER/state/{name}"\nonce = true\n'
        whole = text if "[pipeline]" in text else run + reads + text
        known = {"FOLDER": str(tmp_path), "STREAM": stream, "SERVER": SERVER}
        for word, meaning in known.items():
            whole = whole.replace(word, meaning)
        path.write_text(whole, encoding="utf-8")
        return path

    return write


@pytest.fixture
def iggy_spark(spark: Any, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs ``iggy-spark`` in the session of the tests."""

    def run(*arguments: object) -> int:
        words = list(map(str, arguments))
        if words[0] == "run":
            words += ["--state", str(tmp_path / "status")]
        return command.main(words)

    return run


def parsed(text: str) -> PipelineSpec:
    """Parse the text of a file ``p.toml``."""
    return parse_pipeline(parse_document("p.toml", text))
