"""HTTP/2 on hypercorn: a client of a proxy cannot end other clients' requests, and nothing is kept needlessly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset, WindowUpdated
from h2.settings import SettingCodes
from hyperframe.frame import Frame, GoAwayFrame, PingFrame, RstStreamFrame

from engines.served import Served
from support.waiting import until
from tollgate.engines import http2

REQUEST = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]


class Client:
    """A connection to the engine and the events received on it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.http2 = H2Connection(H2Configuration(validate_outbound_headers=False))
        self.http2.initiate_connection()
        self.events: list[Any] = []

    def begin(self, *headers: tuple[str, str], end: bool = False) -> int:
        number = self.http2.get_next_available_stream_id()
        self.http2.send_headers(number, list(headers) or REQUEST, end_stream=end)
        return number

    def send(self, more: bytes = b"") -> None:
        self.served.writer.write(self.http2.data_to_send() + more)

    async def wait_for(self, kind: type, number: int | None = None) -> Any:
        self.send()
        async with asyncio.timeout(30):
            while True:
                for event in self.events:
                    if type(event) is kind and (number is None or event.stream_id == number):
                        return event
                data = await self.served.reader.read(65536)
                assert data, "the connection was closed"
                self.events += self.http2.receive_data(data)
                self.send()

    async def answered(self) -> bool:
        number = self.begin(end=True)
        await self.wait_for(StreamEnded, number)
        return True


async def early(scope: Any, receive: Any, send: Any) -> None:
    """Answers without reading the body."""
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


LARGE = bytes(200_000)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """Answers after the body, with more than a client accepts at once."""
    if scope["type"] != "http":
        return
    message = await receive()
    while message["type"] == "http.request" and message["more_body"]:
        message = await receive()
    records.append(message["type"])
    if message["type"] == "http.disconnect":
        return  # no further message follows, and since Python 3.12 the server's shutdown waits for this
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE})
    message = await receive()
    records.append(message["type"])


async def patient(scope: Any, receive: Any, send: Any) -> None:
    """Answers /slow when `slow` is set, everything else at once."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await slow.wait()
    await early(scope, receive, send)


async def counting(scope: Any, receive: Any, send: Any) -> None:
    """Reads /slow when `slow` is set, /early never (it ends then), everything else at once; records the length of each
    body."""
    if scope["path"] == "/slow":
        await slow.wait()
    elif scope["path"] == "/early":
        await slow.wait()
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    records.append(f"{size} bytes")
    await early(scope, receive, send)


SLOW = [(":method", "POST"), (":path", "/slow"), (":scheme", "http"), (":authority", "a")]
slow = asyncio.Event()


records: list[str] = []


@pytest.fixture
async def client(request, monkeypatch):
    monkeypatch.setattr("tollgate.engines.hypercorn.KEEP_ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(sys.modules[__name__], "slow", asyncio.Event())
    records.clear()
    served = Served(getattr(request, "param", early), "hypercorn")
    await served.connect()
    yield Client(served)
    slow.set()  # since Python 3.12 the server's shutdown waits for requests that still run
    served.writer.close()
    served.stop.set()
    await asyncio.wait_for(served.task, 30)


async def test_many_requests_reset_in_a_row_end_the_connection(client, monkeypatch):
    monkeypatch.setattr(http2, "_MOST_RESETS", 20)
    for _ in range(20):
        client.http2.reset_stream(client.begin())
    assert await client.answered()
    for _ in range(20):
        client.http2.reset_stream(client.begin())
    assert (await client.wait_for(ConnectionTerminated)).error_code == ErrorCodes.ENHANCE_YOUR_CALM


async def test_occasional_resets_do_not_end_the_connection(client, monkeypatch):
    monkeypatch.setattr(http2, "_MOST_RESETS", 5)
    monkeypatch.setattr(http2, "_RESETS_A_SECOND", 10_000)
    for _ in range(20):
        client.http2.reset_stream(client.begin())
        assert await client.answered()


@pytest.mark.parametrize("pieces", [1, 40], ids=["after the answer", "more than is queued"])
async def test_a_body_after_its_answer_ends_no_other_request(client, pieces, caplog):
    number = client.begin()
    if pieces == 1:
        await client.wait_for(StreamEnded, number)
    for _ in range(pieces):
        client.http2.send_data(number, b"x" * 100)
    assert (await client.wait_for(ResponseReceived, number)) and await client.answered()
    assert caplog.text == ""


async def test_a_body_after_its_answer_is_discarded_up_to_a_limit(client, monkeypatch):
    """curl and Node lose a response if its stream is reset while they are still writing."""
    number = client.begin()
    await client.wait_for(StreamEnded, number)
    for _ in range(20):
        client.http2.send_data(number, b"x" * 10_000)
        assert await client.answered()
    assert client.http2.local_flow_control_window(number) > 0
    assert not any(type(event) is StreamReset for event in client.events)
    monkeypatch.setattr(http2, "MOST_DROPPED", 205_000)
    client.http2.send_data(number, b"x" * 10_000)
    assert (await client.wait_for(StreamReset, number)).error_code == ErrorCodes.NO_ERROR
    assert await client.answered()


@pytest.mark.parametrize(
    "headers",
    [
        [(":method", "CONNECT"), (":authority", "a:80")],
        [(":method", "CONNECT"), (":protocol", "websocket"), *REQUEST[1:]],
        [(":method", "GET"), (":path", b"/\xff"), *REQUEST[2:]],
        [*REQUEST[:3], (":authority", "a/b")],
        [*REQUEST[:3], (":authority", "a@b")],
        [(":method", b"P\xffST"), *REQUEST[1:]],
        [(":method", "PO ST"), *REQUEST[1:]],
        [(":method", ""), *REQUEST[1:]],
        [(":method", "connect"), *REQUEST[1:]],
    ],
    ids=[
        "a tunnel",
        "a web socket",
        "an invalid path",
        "a host with a path",
        "a host with a user",
        "an invalid method",
        "a method with a space",
        "no method",
        "CONNECT in lower case",
    ],
)
async def test_an_invalid_request_is_refused_alone(client, headers, caplog):
    number = client.begin(*headers)
    assert (await client.wait_for(StreamReset, number)).error_code == ErrorCodes.REFUSED_STREAM
    assert await client.answered() and caplog.text == ""


async def test_an_invalid_request_may_be_reset_at_once(client, caplog):
    client.http2.reset_stream(client.begin((":method", "CONNECT"), (":authority", "a:80")))
    assert await client.answered() and caplog.text == ""


@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_an_internal_error_ends_the_connection_but_not_the_gateway(client, monkeypatch, caplog):
    """Its socket used to stay open, and the server never stopped."""
    frames = Frames(client)
    client.begin(*SLOW, end=True)
    await frames.wait_for(ends(client.begin(end=True)))  # by then, the first one is running as well
    monkeypatch.setattr(http2, "_is_readable", lambda event: 1 / 0)
    client.begin(end=True)
    farewell = await frames.wait_for(is_goaway)
    assert isinstance(farewell, GoAwayFrame) and farewell.error_code == ErrorCodes.INTERNAL_ERROR
    assert await client.served.reader.read() == b""
    assert [record.message for record in caplog.records] == [
        "an HTTP/2 connection is closed because of an internal error"
    ]
    client.served.stop.set()
    await asyncio.wait_for(client.served.task, 10)


async def test_priorities_are_not_stored(client, caplog):
    client.send(b"".join(b"\0\0\5\2\0" + (2 * each + 1).to_bytes(4, "big") + b"\0\0\0\0\x10" for each in range(2000)))
    assert await client.answered() and caplog.text == ""


@pytest.mark.parametrize("client", [counting], indirect=True)
async def test_an_unread_body_blocks_no_other_request(client, monkeypatch):
    """A body that waits for room, for example, used to block all clients of a proxy."""
    number = client.begin(*SLOW)
    for _ in range(65):
        client.http2.send_data(number, b"x" * 1000)
    client.send()
    assert await client.answered()
    other = client.begin((":method", "POST"), (":path", "/long"), *REQUEST[2:])
    for _ in range(4):
        client.http2.send_data(other, b"x" * 16_000)
    client.http2.end_stream(other)
    await client.wait_for(StreamEnded, other)
    assert records == ["0 bytes", "64000 bytes"], "an unread body leaves window to the others"
    assert client.http2.local_flow_control_window(number) == 535, "no more of it may be sent"
    await asyncio.sleep(2.5)  # several times the idle time
    assert not any(type(event) is StreamReset for event in client.events), "the client is not the slow side"
    monkeypatch.setattr(http2, "SLOWEST_BYTES", 0)  # nor is this test, on a busy machine
    slow.set()
    await client.wait_for(WindowUpdated, number)
    client.http2.send_data(number, b"x" * 16_000, end_stream=True)
    await client.wait_for(StreamEnded, number)
    assert records[-1] == "81000 bytes"


@pytest.mark.parametrize("client", [counting], indirect=True)
async def test_unread_bodies_of_reset_requests_free_their_window(client):
    for _ in range(120):
        assert await client.answered()  # receives window updates
        number = client.begin((":method", "POST"), (":path", "/early"), *REQUEST[2:])
        for _ in range(4):
            client.http2.send_data(number, b"x" * 16_000)
        client.http2.reset_stream(number)
    number = client.begin()
    client.http2.send_data(number, b"x" * 10_000, end_stream=True)
    await client.wait_for(StreamEnded, number)
    assert records[-1] == "10000 bytes"


@pytest.mark.parametrize("client", [reading], indirect=True)
async def test_a_body_that_is_too_slow_is_reset_alone(client):
    slow = client.begin()
    for _ in range(3):
        client.http2.send_data(slow, b"x")
        client.send()
    assert (await client.wait_for(StreamReset, slow)).error_code == ErrorCodes.CANCEL
    await until(lambda: records)
    assert records[0] == "http.disconnect"
    assert not any(type(event) is ConnectionTerminated for event in client.events), "other requests continue"


@pytest.mark.parametrize("client", [reading], indirect=True)
async def test_a_request_whose_client_opens_no_window_is_reset(client, monkeypatch):
    monkeypatch.setattr(http2, "STUCK_SECONDS", 0.3)
    client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    number = client.begin(end=True)
    assert (await client.wait_for(StreamReset, number)).error_code == ErrorCodes.CANCEL
    await until(lambda: records == ["http.request", "http.disconnect"])
    async with asyncio.timeout(30):
        rest = client.http2.receive_data(await client.served.reader.read())
    assert [type(event) for event in rest] == [ConnectionTerminated], "the idle connection is closed"


async def test_a_connection_whose_last_request_was_reset_is_idle(client):
    client.http2.reset_stream(client.begin())
    client.send()
    async with asyncio.timeout(30):
        while await client.served.reader.read(65536):
            pass


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "while it is answered"])
@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_client_that_sends_goaway_receives_its_pending_answers(client, together):
    """Node's `session.close()` and Go's `Shutdown` send it at once and wait for running requests (RFC 9113, 6.8)."""
    frames = Frames(client)
    number = client.begin(*SLOW, end=True)
    if not together:
        await frames.wait_for(ends(client.begin(end=True)))  # by then, the first one is running as well
    client.send(GoAwayFrame(stream_id=0).serialize() + PingFrame(stream_id=0, opaque_data=b"12345678").serialize())
    await frames.wait_for(lambda frame: isinstance(frame, PingFrame))  # what follows the GOAWAY is read, too
    slow.set()
    await frames.wait_for(ends(number))


@pytest.mark.parametrize("error", [ErrorCodes.NO_ERROR, ErrorCodes.INTERNAL_ERROR], ids=lambda each: each.name)
@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_client_that_disconnects_with_goaway_is_closed(client, error):
    if error:
        client.begin(*SLOW, end=True)
    client.send(GoAwayFrame(stream_id=0, error_code=error).serialize())
    async with asyncio.timeout(30):
        while await client.served.reader.read(65536):
            pass


class Frames:
    """Reads raw frames, for a client that continues after a GOAWAY, as h2's own does not."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.unread = b""
        self.seen: list[Frame] = []

    async def wait_for(self, found: Callable[[Frame], bool]) -> Frame:
        """The first matching frame; fails if the connection is closed before it."""
        self.client.send()
        async with asyncio.timeout(30):
            while True:
                for frame in self.seen:
                    if found(frame):
                        return frame
                data = await self.client.served.reader.read(65536)
                assert data, f"the connection was closed after {self.seen}"
                self._read(data)

    def _read(self, data: bytes) -> None:
        self.unread += data
        while len(self.unread) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self.unread[:9]))
            if len(self.unread) < 9 + length:
                return
            frame.parse_body(memoryview(self.unread[9 : 9 + length]))
            self.unread = self.unread[9 + length :]
            self.seen.append(frame)


def ends(number: int) -> Callable[[Frame], bool]:
    return lambda frame: frame.stream_id == number and "END_STREAM" in frame.flags


def resets(number: int) -> Callable[[Frame], bool]:
    return lambda frame: isinstance(frame, RstStreamFrame) and frame.stream_id == number


def is_goaway(frame: Frame) -> bool:
    return isinstance(frame, GoAwayFrame)


@pytest.mark.parametrize("client", [patient], indirect=True)
@pytest.mark.parametrize("busy", [True, False])
async def test_a_shutdown_sends_goaway_and_answers_requests_on_their_way(client, busy):
    """A proxy multiplexes many clients' requests, and a POST is not repeated automatically."""
    frames = Frames(client)
    running = client.begin(*(SLOW if busy else REQUEST), end=True)
    await frames.wait_for(ends(client.begin(end=True)))  # by then, the first one is running as well
    client.served.stop.set()
    goaway = await frames.wait_for(is_goaway)
    assert isinstance(goaway, GoAwayFrame)
    assert (goaway.last_stream_id, goaway.error_code) == (2**31 - 1, ErrorCodes.NO_ERROR), "more may be on its way"
    late = client.begin(end=True)
    await frames.wait_for(ends(late))
    slow.set()
    await frames.wait_for(ends(running))
    last = await frames.wait_for(lambda frame: is_goaway(frame) and frame is not goaway)
    assert isinstance(last, GoAwayFrame) and last.last_stream_id == late
    async with asyncio.timeout(30):
        assert await client.served.reader.read() == b"", "the idle connection is closed"


@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_request_long_after_goaway_is_refused(client, monkeypatch):
    monkeypatch.setattr(http2, "CLOSE_GRACE_SECONDS", 0)
    frames = Frames(client)
    running = client.begin(*SLOW, end=True)
    await frames.wait_for(ends(client.begin(end=True)))
    client.served.stop.set()
    await frames.wait_for(is_goaway)
    late = client.begin(end=True)
    refusal = await frames.wait_for(resets(late))
    assert isinstance(refusal, RstStreamFrame) and refusal.error_code == ErrorCodes.REFUSED_STREAM
    slow.set()
    await frames.wait_for(ends(running))
