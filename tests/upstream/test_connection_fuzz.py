"""Any bytes from an upstream end in a response or a clean error, and never in a corrupted pool."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import CHUNKED_HEAD, chunked, ok

from tollgate.errors import UpstreamError
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call
from tollgate.upstream.connection import Connection


class NullTransport:
    """A transport that discards data."""

    def __init__(self) -> None:
        self.closing = False
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class CountingPool:
    """A pool that only counts."""

    idle_seconds = 10.0

    def __init__(self) -> None:
        self.released = self.forgotten = 0

    def release(self, connection: Connection) -> None:
        self.released += 1

    def forget(self, connection: Connection) -> None:
        self.forgotten += 1


def run(chunks: list[bytes]) -> tuple[Answer, CountingPool, NullTransport]:
    async def exchange() -> tuple[Answer, CountingPool, NullTransport]:
        loop = asyncio.get_running_loop()
        rack, wire = CountingPool(), NullTransport()
        connection = Connection(rack, "host:1")  # type: ignore[arg-type]
        connection.connection_made(wire)  # type: ignore[arg-type]
        answer = Answer(connection, Call("POST", "http://x/"), loop, loop.time())
        connection.send(answer, b"POST / HTTP/1.1\r\n\r\n", b"")
        for chunk in chunks:
            if not wire.closing:
                connection.data_received(chunk)
        connection.eof_received()
        connection.connection_lost(None)
        assert rack.forgotten == 1
        return answer, rack, wire

    return asyncio.run(exchange())


_GOOD = [
    ok(b"hello"),
    CHUNKED_HEAD + chunked(b"he", b"llo"),
    b"HTTP/1.1 200 OK\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"hello", "x: y"),
]
_BITS = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b":",
        b"HTTP/1.1 ",
        b"200",
        b"content-length: ",
        b"transfer-encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"99999999999999999999",
        b"upgrade: x\r\nconnection: upgrade\r\n",
        b"\xff" * 9,
    ]
)


@st.composite
def _damaged(draw: st.DrawFn) -> list[bytes]:
    data = draw(st.sampled_from(_GOOD))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.one_of(_BITS, st.binary(max_size=6))) + data[at + draw(st.integers(0, 6)) :]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=5)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


@settings(max_examples=600, deadline=None)
@given(st.one_of(_damaged(), st.lists(st.binary(max_size=200), max_size=4)))
def test_any_bytes_end_in_a_response_or_a_clean_error(chunks: list[bytes]) -> None:
    answer, rack, _ = run(chunks)
    assert answer._done != (answer._error is not None)
    if answer._error is not None:
        assert isinstance(answer._error, UpstreamError)
        assert rack.released == 0
    if rack.released:
        assert answer._done
    assert answer._timer is None


@pytest.mark.parametrize("answer", _GOOD, ids=["length", "chunked", "until close", "interim"])
def test_every_chunk_boundary_gives_the_same_response(answer: bytes) -> None:
    for at in range(1, len(answer)):
        got, _, _ = run([answer[:at], answer[at:]])
        assert (got.status, b"".join(got.parts), got._error) == (200, b"hello", None)


@pytest.mark.parametrize(("lost", "sent"), [(False, b"POST / HTTP/1.1\r\n\r\n{}"), (True, b"")], ids=["open", "lost"])
async def test_a_request_is_sent_at_the_end_of_the_loop_turn_unless_the_connection_is_lost(
    lost: bool, sent: bytes
) -> None:
    loop = asyncio.get_running_loop()
    wire = NullTransport()
    connection = Connection(CountingPool(), "host:1")  # type: ignore[arg-type]
    connection.connection_made(wire)  # type: ignore[arg-type]
    connection.send(Answer(connection, Call("POST", "http://x/"), loop, loop.time()), b"POST / HTTP/1.1\r\n\r\n", b"{}")
    assert wire.sent == b""
    if lost:
        connection.connection_lost(None)
    await asyncio.sleep(0)
    assert wire.sent == sent
    connection.abort()
