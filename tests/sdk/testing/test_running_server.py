"""The server of a test: found, started, restarted behind the same address, emptied, replaced."""

from __future__ import annotations

import sys

import pytest

from iggy_protocol import (
    ChangePassword,
    CreatePersonalAccessToken,
    CreateStream,
    CreateUser,
    GetPersonalAccessTokens,
    GetStream,
    GetStreams,
    GetUsers,
    Ping,
)
from iggy_sdk.testing import NotOursError, RunningServer, ServerFailedError, ServerNotFoundError
from iggy_sdk.testing.process import server_command
from iggy_sdk.testing.server import SharedServer, external_server_address
from tests.server.wire_client import WireClient

pytestmark = pytest.mark.timeout(90)


def logged_in(server):
    client = WireClient(server.address)
    client.login(server.username, server.password)
    return client


def test_server_when_restarted_then_the_address_and_the_data_stay():
    with RunningServer() as server:
        url, direct = server.url, server.direct_url
        with logged_in(server) as client:
            client.ask(CreateStream("kept"))
            server.restart()
            assert client.is_closed_by_peer()

        with logged_in(server) as client:
            assert client.ask(GetStream("kept")) is not None
        assert server.url == url
        assert server.direct_url != direct


def test_server_when_killed_then_connections_end_and_new_ones_are_refused():
    with RunningServer() as server:
        client = logged_in(server)
        server.kill()

        assert client.is_closed_by_peer()
        assert not server.is_running
        with pytest.raises(ConnectionRefusedError):
            WireClient(server.address)
        with pytest.raises(RuntimeError, match=r"start\(\)"):
            _ = server.direct_url
        server.start()
        logged_in(server).close()
        client.close()


def test_server_when_login_needs_quoting_then_the_url_carries_it():
    with RunningServer(username="admin", password="p@ss:w/rd") as server:
        assert "admin:p%40ss%3Aw%2Frd@127.0.0.1" in server.url
        logged_in(server).close()


def test_server_when_its_settings_change_then_a_restart_brings_them():
    with RunningServer() as server:
        server.settings["IGGY_TCP_ADDRESS"] = "not an address"

        with pytest.raises(ServerFailedError, match="its output"):
            server.restart()


def test_server_when_its_directory_is_given_then_the_data_outlive_it(tmp_path):
    with RunningServer(tmp_path) as server, logged_in(server) as client:
        client.ask(CreateStream("kept"))

    with RunningServer(tmp_path) as server, logged_in(server) as client:
        assert client.ask(GetStream("kept")) is not None


def test_server_when_closed_then_its_temporary_data_are_gone():
    with RunningServer() as server:
        output = server._process
        assert output is not None
        folder = output._output.parent
        assert folder.exists()

    assert not folder.exists()


def test_command_when_nothing_is_installed_then_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ServerNotFoundError, match=r"pip install 'iggy-python\[server\]'"):
        RunningServer()


def test_command_when_only_the_module_is_there_then_is_run_with_this_interpreter(monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert server_command() == (sys.executable, "-m", "iggy_ref_server")


def test_command_when_an_executable_is_on_the_path_then_is_taken(monkeypatch, tmp_path):
    executable = tmp_path / "iggy-server"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert server_command() == (str(executable),)


def test_server_when_it_lacks_a_package_then_says_what_to_install():
    command = [sys.executable, "-c", "import no_such_package_at_all"]

    with pytest.raises(ServerNotFoundError, match=r"no_such_package_at_all.*pip install"):
        RunningServer(command=command).__enter__()


def test_server_when_the_command_is_missing_then_says_so(tmp_path):
    with pytest.raises(ServerNotFoundError, match="There is no command"):
        RunningServer(command=[str(tmp_path / "nothing")]).__enter__()


@pytest.fixture(scope="module")
def shared():
    with SharedServer() as server:
        yield server


def test_shared_server_when_a_test_left_things_then_the_next_finds_none(shared):
    with logged_in(shared.fresh()) as client:
        client.ask(CreateStream("left"))
        client.ask(CreateUser("somebody", "password"))
        client.ask(CreatePersonalAccessToken("token", 0))

        with logged_in(shared.fresh()) as after:
            assert client.is_closed_by_peer()
            assert not after.ask(GetStreams())
            assert not after.ask(GetPersonalAccessTokens())
            assert [user.id for user in after.ask(GetUsers())] == [0]


def test_shared_server_when_faults_were_left_then_they_are_healed(shared):
    server = shared.fresh()
    server.faults.refuse_connections()
    server.faults.drop_connection(times=100)

    again = shared.fresh()

    with logged_in(again) as client:
        assert client.ask(Ping()) is None
    assert again is server


def test_shared_server_when_it_was_killed_then_runs_again_behind_the_same_address(shared):
    server = shared.fresh()
    url = server.url
    server.kill()

    assert shared.fresh().url == url
    logged_in(server).close()


def test_shared_server_when_logins_fail_then_another_takes_its_place(shared):
    server = shared.fresh()
    with logged_in(server) as client:
        client.ask(ChangePassword(0, "iggy", "changed"))

    replaced = shared.fresh()

    assert replaced is not server
    logged_in(replaced).close()


def test_external_server_when_used_then_is_emptied_and_never_stopped():
    with RunningServer() as ours, RunningServer(address=ours.direct_address) as theirs:
        with logged_in(ours) as client:
            client.ask(CreateStream("left"))
        theirs.reset()

        with logged_in(theirs) as client:
            assert client.ask(GetStreams()) == ()
            theirs.faults.drop_connections()
            assert client.is_closed_by_peer()
        for control in (theirs.stop, theirs.kill, theirs.restart):
            with pytest.raises(NotOursError, match="external server"):
                control()
        theirs.close()
        with logged_in(ours) as client:
            client.ask(Ping())


@pytest.mark.parametrize(
    ("told", "address"),
    [("", None), ("node:8090", ("node", 8090)), ("[::1]:8090", ("::1", 8090))],
)
def test_environment_when_it_names_a_server_then_that_is_used(monkeypatch, told, address):
    monkeypatch.setenv("IGGY_TEST_SERVER", told)

    assert external_server_address() == address


@pytest.mark.parametrize("told", ["8090", "node", ":8090", "node:http"])
def test_environment_when_it_names_nonsense_then_says_what_is_wanted(monkeypatch, told):
    monkeypatch.setenv("IGGY_TEST_SERVER", told)

    with pytest.raises(ValueError, match="host:port"):
        external_server_address()
