import asyncio
from types import SimpleNamespace

import pytest

from tollgate.engines import hypercorn as hypercorn_engine
from tollgate.engines.hypercorn import _ClientLeft, _Connection, _Turn


async def test_who_waits_for_a_turn_notices_that_the_client_left_behind_unread_requests():
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET / HTTP/1.1\r\n")
    reader.feed_eof()
    with pytest.raises(_ClientLeft):
        async with asyncio.timeout(1):
            await _Turn(reader).wait()


@pytest.mark.parametrize("arrives", ["never", "unread", "read"])
async def test_the_end_of_the_server_closes_no_connection_on_which_a_request_has_arrived(monkeypatch, arrives):
    monkeypatch.setattr(hypercorn_engine, "LAST_CALL_SECONDS", 0.01)
    closed, looked = [], []
    connection = _Connection.__new__(_Connection)
    connection.loop, connection.reader = asyncio.get_running_loop(), asyncio.StreamReader()
    connection.context = SimpleNamespace(terminated=asyncio.Event())
    connection.config = SimpleNamespace(keep_alive_timeout=60)
    connection.writer, connection._writes = SimpleNamespace(transport=None), SimpleNamespace(flush=lambda: None)
    connection._idle_since = connection.loop.time()

    def end_unused(transport):
        looked.append(transport)
        if arrives == "unread" and len(looked) == 3:
            connection._idle_since = None  # it is being answered by now
        return arrives != "unread"

    async def close():
        closed.append(True)

    monkeypatch.setattr(hypercorn_engine, "end_unused", end_unused)
    connection._initiate_server_close = close
    if arrives == "read":
        connection.reader.feed_data(b"GET")
        connection.loop.call_later(0.05, setattr, connection, "_idle_since", None)
    connection.context.terminated.set()
    await asyncio.wait_for(connection._idle_timeout(), 5)
    assert (bool(closed), len(looked)) == {"never": (True, 1), "unread": (False, 3), "read": (False, 0)}[arrives]
