"""Credentials and TLS travel in the connection string, to planners and tasks alike."""

from __future__ import annotations

import pytest
import trustme

from iggy_sdk import ConnectionFailedError
from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing import RunningServer
from spark_jobs.topics import close_all
from tests.spark.test_reading import make_reader, read_all


@pytest.fixture
def secured(tmp_path):
    """Run a server that speaks TLS only; return its connection string."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    settings = {
        "IGGY_TCP_TLS_ENABLED": "true",
        "IGGY_TCP_TLS_SELF_SIGNED": "false",
        "IGGY_TCP_TLS_CERT_FILE": str(tmp_path / "cert.pem"),
        "IGGY_TCP_TLS_KEY_FILE": str(tmp_path / "key.pem"),
    }
    with RunningServer(settings=settings) as server:
        yield f"{server.direct_url}?reconnection_retries=0&tls=true&tls_ca_file={tmp_path}/ca.pem"
        close_all()


def test_read_when_the_server_speaks_tls_then_the_connection_string_is_enough(secured):
    with IggyClient(secured) as client:
        client.create_stream("s")
        client.create_topic("s", "t", 1)
        client.send_messages("s", "t", [b"sealed"], partition_id=0)
    options = {"server": secured, "stream": "s", "topic": "t"}

    assert [row["payload"] for row in read_all(make_reader(options))] == [b"sealed"]

    unknown = secured.partition("&tls_ca_file")[0]
    with pytest.raises(ConnectionFailedError):
        make_reader({**options, "server": unknown}).partitions()


def test_read_when_a_token_logs_in_then_no_password_is_needed(spark_server, client, topic, options):
    topic(counts=(2,))
    token = client.create_personal_access_token("spark-token").token
    host, port = spark_server.address

    rows = read_all(make_reader({**options, "server": f"iggy://{token}@{host}:{port}"}))

    assert len(rows) == 2
