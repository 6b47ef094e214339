"""The ports of a server: shared by its shards, and by nobody else."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

import pytest

from iggy_ref_server.process import locks
from iggy_ref_server.process.locks import CHOICES_MAX, PortInUse, bind_shared_port

LOOPBACK = "127.0.0.1"
KINDS = pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])


@pytest.fixture
def bind():
    """Bind ports as a server does, and release them after the test."""
    with ExitStack() as stack:

        def bind_port(port: int, count: int, kind: socket.SocketKind) -> int:
            sockets, claim = bind_shared_port(LOOPBACK, port, count, kind=kind)
            for bound in sockets:
                stack.enter_context(bound)
            assert claim is not None
            stack.callback(os.close, claim)
            (chosen,) = {bound.getsockname()[1] for bound in sockets}
            return chosen

        yield bind_port


@KINDS
def test_port_when_several_shards_listen_then_is_one(bind, kind):
    assert bind(0, 3, kind) > 0


@KINDS
def test_port_when_another_server_listens_then_is_refused(bind, kind):
    port = bind(0, 1, kind)

    with pytest.raises(PortInUse, match=f"{LOOPBACK}:{port} is in use"):
        bind(port, 1, kind)


@KINDS
def test_port_when_another_server_takes_the_chosen_one_then_is_another(bind, kind, monkeypatch):
    taken = bind(0, 1, kind)
    choose = locks._with_free_port
    choices = iter([taken] * CHOICES_MAX)

    def choose_late(target):
        free = choose(target)
        port = next(choices, free.port)
        return free._replace(address=(LOOPBACK, port))

    monkeypatch.setattr(locks, "_with_free_port", choose_late)

    assert bind(0, 2, kind) != taken


@KINDS
def test_port_when_many_servers_listen_then_the_kernel_never_chooses_one_of_theirs(bind, kind):
    ports = [bind(0, 1, kind) for _ in range(300)]

    assert len(set(ports)) == len(ports)


@KINDS
def test_address_when_the_machine_does_not_have_it_then_the_error_names_the_setting(kind):
    with pytest.raises(PortInUse, match="set another IGGY_TCP_ADDRESS"):
        bind_shared_port("192.0.2.1", 0, 1, kind=kind)
