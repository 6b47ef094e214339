"""Sizes, snapshot, logs, configuration, TLS and cluster."""

from __future__ import annotations

import io
import ssl
import zipfile

import pytest
import trustme

from iggy_protocol import (
    ClusterNode,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteStream,
    DeleteTopic,
    GetClusterMetadata,
    GetSnapshot,
    GetStats,
    GetStream,
    LogoutUser,
    NodeRole,
    Ping,
    PurgeTopic,
    SnapshotCompression,
    SnapshotType,
)
from tests.server.features.topic_calls import eventually, make_topic
from tests.server.running import ServerFailed
from tests.server.wire_client import ConnectionLost, Refused


def statistics(topic):
    details = topic.client.ask(GetStream(topic.stream))
    return [(found.name, found.size_bytes, found.messages_count) for found in details.topics], (
        details.size_bytes,
        details.messages_count,
    )


def test_sizes_when_one_topic_is_purged_or_deleted_then_only_its_part_goes(root):
    first = make_topic(root, name="first", partitions=2)
    second = make_topic(root, name="second", stream=first.stream)
    first.send("aaaa", "bbbb")
    first.send("cccc", partition=1)
    second.send("dddd")
    assert statistics(first) == ([("first", 204, 3), ("second", 68, 1)], (272, 4))

    root.ask(PurgeTopic(first.stream, "first"))
    assert statistics(first) == ([("first", 0, 0), ("second", 68, 1)], (68, 1))

    root.ask(DeleteTopic(first.stream, "second"))
    assert statistics(first) == ([("first", 0, 0)], (0, 0))


def snapshot(client, *types, compression=SnapshotCompression.DEFLATED):
    archive = client.ask(GetSnapshot(compression, types)).archive
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name).decode() for name in opened.namelist()}


def test_snapshot_when_of_the_test_part_then_it_contains_the_word(root):
    assert "test" in snapshot(root, SnapshotType.TEST)["test.txt"]


@pytest.mark.parametrize(
    "compression",
    [SnapshotCompression.STORED, SnapshotCompression.BZIP2, SnapshotCompression.LZMA],
)
def test_snapshot_when_packed_otherwise_then_it_opens_all_the_same(root, compression):
    assert snapshot(root, SnapshotType.TEST, compression=compression)["test.txt"]


def test_snapshot_when_a_part_cannot_be_read_then_the_others_come_once_each(server, root):
    (server.data / "logs" / "iggy-server.log.99").mkdir()

    asked = (SnapshotType.SERVER_LOGS, SnapshotType.TEST, SnapshotType.TEST)

    assert list(snapshot(root, *asked)) == ["test.txt"]
    (server.data / "logs" / "iggy-server.log.99").rmdir()
    assert list(snapshot(root, *asked)) == ["server_logs.txt", "test.txt"]


def test_snapshot_when_it_holds_the_configuration_then_secrets_are_blacked_out(start_server):
    key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    settings = {
        "IGGY_SYSTEM_ENCRYPTION_ENABLED": "true",
        "IGGY_SYSTEM_ENCRYPTION_KEY": key,
        "IGGY_HTTP_JWT_ENCODING_SECRET": "jwt-secret-of-the-test",
        "IGGY_HTTP_JWT_DECODING_SECRET": "jwt-secret-of-the-test",
    }
    client = start_server(settings=settings).login()

    parts = snapshot(client, SnapshotType.ALL)

    text = "\n".join(parts.values())
    assert "server_config.txt" in parts
    assert key not in text
    assert "jwt-secret-of-the-test" not in text


def test_logs_when_files_have_a_limit_then_they_rotate_under_their_name(start_server):
    settings = {
        "IGGY_SYSTEM_LOGGING_LEVEL": "trace",
        "IGGY_SYSTEM_LOGGING_MAX_FILE_SIZE": "2 KB",
        "IGGY_SYSTEM_LOGGING_MAX_TOTAL_SIZE": "20 KB",
        "IGGY_SYSTEM_LOGGING_SYSINFO_PRINT_INTERVAL": "5 ms",
    }
    server = start_server(settings=settings)
    logs = server.data / "logs"

    assert eventually(lambda: len(list(logs.iterdir())) > 2)
    assert all(path.name.startswith("iggy-server.log") for path in logs.iterdir())
    assert max(path.stat().st_size for path in logs.iterdir()) < 4_000


@pytest.mark.parametrize(
    ("file_size", "total_size", "files"),
    [("20 KB", "80 KB", 4), ("0", "80 KB", 1), ("20 KB", "0", 6), ("0", "0", 1)],
    ids=["both limited", "file unlimited", "total unlimited", "both unlimited"],
)
def test_logs_when_streams_come_and_go_then_files_obey_their_limits(
    start_server, file_size, total_size, files
):
    settings = {
        "IGGY_SYSTEM_LOGGING_MAX_FILE_SIZE": file_size,
        "IGGY_SYSTEM_LOGGING_MAX_TOTAL_SIZE": total_size,
        "IGGY_SYSTEM_LOGGING_ROTATION_CHECK_INTERVAL": "1 s",
        "IGGY_SYSTEM_LOGGING_RETENTION": "30 s",
    }
    server = start_server(settings=settings)
    client = server.login()
    for number in range(400):
        client.ask(CreateStream(f"stream-{number}-{'x' * 90}"))
        client.ask(DeleteStream(f"stream-{number}-{'x' * 90}"))
    server.stop()

    sizes = {path.name: path.stat().st_size for path in (server.data / "logs").iterdir()}

    suffixes = [name.removeprefix("iggy-server.log").removeprefix(".") for name in sizes]
    assert all(suffix.isdecimal() or not suffix for suffix in suffixes)
    assert len(sizes) <= files if total_size != "0" else len(sizes) >= files
    assert max(sizes.values()) > 100_000 if file_size == "0" else max(sizes.values()) <= 20_000


def test_log_when_things_change_then_it_says_who_did_what_and_no_secret(start_server):
    server = start_server(shards=2)
    client = server.login()
    client.ask(CreateStream("orders"))
    client.ask(CreateUser("reader", "very-secret"))
    token = client.ask(CreatePersonalAccessToken("mine", 0)).token
    with pytest.raises(Refused):
        server.connect().login("reader", "not-the-secret")
    client.ask(LogoutUser())
    server.stop()

    log = (server.data / "logs" / "iggy-server.log").read_text()

    assert f"{client.local_address} as user 0: CreateStream(name='orders')" in log
    assert f"{client.local_address} as user 0: CreateUser(username='reader', status=ACTIVE)" in log
    assert f"{client.local_address} as user 0: LogoutUser()" in log
    [refusal] = [
        line for line in log.splitlines() if " WARN " in line and "refused a request" in line
    ]
    assert "wrong user name or password" in refusal
    assert not any(secret in log for secret in ("very-secret", "not-the-secret", token))


def test_environment_when_it_overrides_then_the_effective_configuration_says_so(start_server):
    settings = {
        "IGGY_SYSTEM_TOPIC_MESSAGE_EXPIRY": "7 days",
        "IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED": "TRUE",
        "IGGY_TCP_SOCKET_OVERRIDE_DEFAULTS": "true",
        "IGGY_TCP_SOCKET_RECV_BUFFER_SIZE": "300000",
        "IGGY_TCP_SOCKET_NODELAY": "true",
    }
    server = start_server(settings=settings)

    config = server.current_config()

    assert config["data_maintenance"]["messages"]["cleaner_enabled"] is True
    assert config["tcp"]["socket"]["nodelay"] is True
    assert config["tcp"]["address"].endswith(str(server.address[1]))
    client = server.login()
    topic = make_topic(client, message_expiry_us=0)
    assert topic.details().message_expiry_us == 7 * 86_400_000_000


def test_configuration_when_a_value_makes_no_sense_then_the_server_says_which(start_server):
    with pytest.raises(ServerFailed, match=r"(?s)instead of starting.*segment"):
        start_server(settings={"IGGY_SYSTEM_SEGMENT_SIZE": "100 B"})


@pytest.mark.parametrize("others", [1, 3])
def test_cluster_when_configured_then_its_nodes_are_described(start_server, others):
    settings = {"IGGY_CLUSTER_ENABLED": "true", "IGGY_CLUSTER_NAME": "ours"}
    for number in range(others):
        prefix = f"IGGY_CLUSTER_NODE_OTHERS_{number}_"
        settings |= {
            f"{prefix}NAME": f"node-{number}",
            f"{prefix}IP": f"127.0.0.{number + 2}",
            f"{prefix}PORTS_TCP": str(9000 + number),
        }
    server = start_server(settings=settings)

    metadata = server.login().ask(GetClusterMetadata())

    assert metadata.name == "ours"
    assert [node.role for node in metadata.nodes] == [NodeRole.LEADER] + [
        NodeRole.FOLLOWER
    ] * others
    assert metadata.nodes[0].tcp_port == server.address[1]
    assert [node.tcp_port for node in metadata.nodes[1:]] == [9000 + n for n in range(others)]


def test_cluster_when_the_server_is_told_to_follow_then_it_names_the_other_as_leader(start_server):
    settings = {
        "IGGY_CLUSTER_ENABLED": "true",
        "IGGY_CLUSTER_NODE_OTHERS_0_NAME": "leader",
        "IGGY_CLUSTER_NODE_OTHERS_0_IP": "127.0.0.1",
        "IGGY_CLUSTER_NODE_OTHERS_0_PORTS_TCP": "8095",
    }
    client = start_server(settings=settings, arguments=["--follower"]).login()

    current, leader = client.ask(GetClusterMetadata()).nodes

    assert current.role is NodeRole.FOLLOWER
    assert (leader.name, leader.role, leader.tcp_port) == ("leader", NodeRole.LEADER, 8095)


def test_cluster_when_a_follower_knows_several_others_then_each_is_named_as_leader(start_server):
    settings = {"IGGY_CLUSTER_ENABLED": "true"}
    for number in range(2):
        settings |= {
            f"IGGY_CLUSTER_NODE_OTHERS_{number}_NAME": f"node-{number}",
            f"IGGY_CLUSTER_NODE_OTHERS_{number}_IP": "127.0.0.1",
            f"IGGY_CLUSTER_NODE_OTHERS_{number}_PORTS_TCP": str(9000 + number),
        }
    client = start_server(settings=settings, arguments=["--follower"]).login()

    roles = [node.role for node in client.ask(GetClusterMetadata()).nodes]

    assert roles == [NodeRole.FOLLOWER, NodeRole.LEADER, NodeRole.LEADER]


def test_cluster_when_it_is_off_then_one_healthy_leader_is_described(root, server):
    [node] = root.ask(GetClusterMetadata()).nodes

    assert isinstance(node, ClusterNode)
    assert (node.name, node.role) == ("iggy-node", NodeRole.LEADER)
    assert node.tcp_port == server.address[1]


def trusting_nobody():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_tls_when_the_certificate_is_given_then_clients_can_verify_it(start_server, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    settings = {
        "IGGY_TCP_TLS_ENABLED": "true",
        "IGGY_TCP_TLS_SELF_SIGNED": "false",
        "IGGY_TCP_TLS_CERT_FILE": str(tmp_path / "cert.pem"),
        "IGGY_TCP_TLS_KEY_FILE": str(tmp_path / "key.pem"),
    }
    server = start_server(settings=settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)

    client = server.connect(tls=context)
    client.login()
    topic = make_topic(client)
    topic.send(*(b"x" * 100_000 for _ in range(20)))

    assert len(topic.read()) == 20


@pytest.mark.parametrize("shards", [1, 2])
def test_tls_when_self_signed_then_a_certificate_is_made_and_plain_clients_are_dropped(
    start_server, shards
):
    settings = {"IGGY_TCP_TLS_ENABLED": "true", "IGGY_TCP_TLS_CERT_FILE": "missing.pem"}
    server = start_server(settings=settings, shards=shards)

    client = server.connect(tls=trusting_nobody())
    client.login()
    assert client.socket.version() == "TLSv1.3"
    assert client.ask(GetStats()).clients_count == 1

    plain = server.connect()
    with pytest.raises((ConnectionLost, ConnectionError)):
        plain.ask(Ping())


def test_topic_when_created_with_the_server_default_size_then_the_configured_one_is_used(
    start_server,
):
    client = start_server(settings={"IGGY_SYSTEM_TOPIC_MAX_SIZE": "10 GB"}).login()
    topic = make_topic(client)

    assert topic.details().max_topic_size_bytes == 10_000_000_000
    made = client.ask(CreateTopic(topic.stream, "explicit", 1, max_topic_size_bytes=2**31))
    assert made.max_topic_size_bytes == 2**31
