"""An idle connection is ended at once, unless an unread request has arrived on it."""

import asyncio
import socket

import pytest
import uvloop

from tollgate.engines.sockets import end_unused


class Held:
    """The transport of a connection, with only what is needed here."""

    def __init__(self, sock, unsent=0):
        self._sock, self._unsent = sock, unsent

    def get_extra_info(self, name):
        return self._sock if name == "socket" else None

    def get_write_buffer_size(self):
        return self._unsent


@pytest.fixture
def pair():
    ours, clients = socket.socketpair()
    with ours, clients:
        clients.setblocking(False)
        yield ours, clients


def sees_end(clients):
    try:
        return clients.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_connection_with_an_unread_request_stays_open(pair):
    ours, clients = pair
    clients.send(b"GET")
    assert not end_unused(Held(ours)) and not sees_end(clients)
    ours.recv(3)
    assert end_unused(Held(ours)) and sees_end(clients), "the end is sent at once, before the socket is closed"
    assert ours.fileno() >= 0


def test_unsent_data_is_not_cut_off(pair):
    ours, clients = pair
    assert end_unused(Held(ours, unsent=1)) and not sees_end(clients)


def test_a_closed_socket_or_none_counts_as_ended(pair):
    ours, _ = pair
    ours.close()
    assert end_unused(Held(ours)) and end_unused(Held(None))


def test_sockets_of_uvloop_are_supported():
    """They wrap real sockets and have few of their methods."""

    async def ended():
        seen = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda reader, writer: seen.set_result(writer), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            accepted = await seen
            assert end_unused(accepted.transport) and await reader.read() == b""
            accepted.close()
            writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ended())
