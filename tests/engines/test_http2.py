"""HTTP/2 on hypercorn: what one client of a proxy sends ends none of the others' requests, and nothing is occupied for
nothing."""

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

from test_engines import Served
from tollgate.engines import http2

ASK = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]


class Client:
    """One connection to the engine, and what came back on it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.http2 = H2Connection(H2Configuration(validate_outbound_headers=False))
        self.http2.initiate_connection()
        self.told: list[Any] = []

    def begin(self, *headers: tuple[str, str], end: bool = False) -> int:
        number = self.http2.get_next_available_stream_id()
        self.http2.send_headers(number, list(headers) or ASK, end_stream=end)
        return number

    def send(self, more: bytes = b"") -> None:
        self.served.writer.write(self.http2.data_to_send() + more)

    async def hear(self, kind: type, number: int | None = None) -> Any:
        self.send()
        async with asyncio.timeout(5):
            while True:
                for event in self.told:
                    if type(event) is kind and (number is None or event.stream_id == number):
                        return event
                data = await self.served.reader.read(65536)
                assert data, "the connection was closed"
                self.told += self.http2.receive_data(data)
                self.send()

    async def answered(self) -> bool:
        number = self.begin(end=True)
        await self.hear(StreamEnded, number)
        return True


async def early(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


LARGE = bytes(200_000)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """Answers when the body is there, with more than a client takes at once."""
    if scope["type"] != "http":
        return
    message = await receive()
    while message["type"] == "http.request" and message["more_body"]:
        message = await receive()
    told.append(message["type"])
    if message["type"] == "http.disconnect":
        return  # nothing comes after it, and since Python 3.12 the server's end waits for this
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE})
    message = await receive()
    told.append(message["type"])


async def patient(scope: Any, receive: Any, send: Any) -> None:
    """Answers /slow when `slow` is set, everything else at once."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await slow.wait()
    await early(scope, receive, send)


async def counting(scope: Any, receive: Any, send: Any) -> None:
    """Reads /slow when `slow` is set, /early never, everything else at once; notes how long a body was."""
    if scope["path"] == "/slow":
        await slow.wait()
    elif scope["path"] == "/early":
        await asyncio.sleep(60)
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    told.append(f"{size} bytes")
    await early(scope, receive, send)


SLOW = [(":method", "POST"), (":path", "/slow"), (":scheme", "http"), (":authority", "a")]
slow = asyncio.Event()


told: list[str] = []


@pytest.fixture
async def client(request, monkeypatch):
    monkeypatch.setattr("test_engines.application", getattr(request, "param", early))
    monkeypatch.setattr("tollgate.engines.hypercorn.KEEP_ALIVE_SECONDS", 0.2)
    monkeypatch.setattr(sys.modules[__name__], "slow", asyncio.Event())
    told.clear()
    served = Served("hypercorn")
    await served.connect()
    yield Client(served)
    served.writer.close()
    served.stop.set()
    await asyncio.wait_for(served.task, 5)


async def test_requests_taken_back_one_after_another_end_the_connection(client, monkeypatch):
    monkeypatch.setattr(http2, "_MOST_RESETS", 20)
    for _ in range(20):
        client.http2.reset_stream(client.begin())
    assert await client.answered()
    for _ in range(20):
        client.http2.reset_stream(client.begin())
    assert (await client.hear(ConnectionTerminated)).error_code == ErrorCodes.ENHANCE_YOUR_CALM


async def test_a_few_that_are_taken_back_now_and_then_do_not(client, monkeypatch):
    monkeypatch.setattr(http2, "_MOST_RESETS", 5)
    monkeypatch.setattr(http2, "_RESETS_A_SECOND", 10_000)
    for _ in range(20):
        client.http2.reset_stream(client.begin())
        assert await client.answered()


@pytest.mark.parametrize("pieces", [1, 40], ids=["after the answer", "more than is queued"])
async def test_a_body_that_comes_after_its_answer_ends_no_other_request(client, pieces, caplog):
    number = client.begin()
    if pieces == 1:
        await client.hear(StreamEnded, number)
    for _ in range(pieces):
        client.http2.send_data(number, b"x" * 100)
    assert (await client.hear(ResponseReceived, number)) and await client.answered()
    assert caplog.text == ""


async def test_a_body_that_comes_after_its_answer_is_taken_and_dropped(client, monkeypatch):
    """curl and Node lose an answer behind which its stream is ended at once, while they are still writing."""
    number = client.begin()
    await client.hear(StreamEnded, number)
    for _ in range(20):
        client.http2.send_data(number, b"x" * 10_000)
        assert await client.answered()
    assert client.http2.local_flow_control_window(number) > 0
    assert not any(type(event) is StreamReset for event in client.told)
    monkeypatch.setattr(http2, "MOST_DROPPED", 205_000)
    client.http2.send_data(number, b"x" * 10_000)
    assert (await client.hear(StreamReset, number)).error_code == ErrorCodes.NO_ERROR
    assert await client.answered()


@pytest.mark.parametrize(
    "ask",
    [
        [(":method", "CONNECT"), (":authority", "a:80")],
        [(":method", "CONNECT"), (":protocol", "websocket"), *ASK[1:]],
        [(":method", "GET"), (":path", b"/\xff"), *ASK[2:]],
        [*ASK[:3], (":authority", "a/b")],
        [*ASK[:3], (":authority", "a@b")],
        [(":method", b"P\xffST"), *ASK[1:]],
        [(":method", "PO ST"), *ASK[1:]],
        [(":method", ""), *ASK[1:]],
        [(":method", "connect"), *ASK[1:]],
    ],
    ids=[
        "a tunnel",
        "a web socket",
        "a path that is none",
        "a host with a path",
        "a host with a user",
        "a method that is none",
        "a method of two words",
        "no method",
        "a web socket by another spelling",
    ],
)
async def test_what_is_no_request_is_refused_by_itself(client, ask, caplog):
    number = client.begin(*ask)
    assert (await client.hear(StreamReset, number)).error_code == ErrorCodes.REFUSED_STREAM
    assert await client.answered() and caplog.text == ""


async def test_what_is_no_request_may_be_taken_back_at_once(client, caplog):
    client.http2.reset_stream(client.begin((":method", "CONNECT"), (":authority", "a:80")))
    assert await client.answered() and caplog.text == ""


@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_fault_of_the_gateway_ends_a_connection_and_not_the_gateway(client, monkeypatch, caplog):
    """Its socket stayed open, and the server never ended."""
    frames = Frames(client)
    client.begin(*SLOW, end=True)
    await frames.until(ends(client.begin(end=True)))  # by then the other one is being answered as well
    monkeypatch.setattr(http2, "_is_readable", lambda event: 1 / 0)
    client.begin(end=True)
    farewell = await frames.until(is_farewell)
    assert isinstance(farewell, GoAwayFrame) and farewell.error_code == ErrorCodes.INTERNAL_ERROR
    assert await client.served.reader.read() == b""
    assert [record.message for record in caplog.records] == [
        "an HTTP/2 connection is closed because of a fault of the gateway"
    ]
    client.served.stop.set()
    await asyncio.wait_for(client.served.task, 10)


async def test_priorities_that_clients_name_are_not_kept(client, caplog):
    client.send(b"".join(b"\0\0\5\2\0" + (2 * each + 1).to_bytes(4, "big") + b"\0\0\0\0\x10" for each in range(2000)))
    assert await client.answered() and caplog.text == ""


@pytest.mark.parametrize("client", [counting], indirect=True)
async def test_a_body_that_waits_to_be_read_holds_up_nobody_else(client, monkeypatch):
    """As one does that waits for room: all clients of a proxy stood still with it."""
    number = client.begin(*SLOW)
    for _ in range(65):
        client.http2.send_data(number, b"x" * 1000)
    client.send()
    assert await client.answered()
    other = client.begin((":method", "POST"), (":path", "/long"), *ASK[2:])
    for _ in range(4):
        client.http2.send_data(other, b"x" * 16_000)
    client.http2.end_stream(other)
    await client.hear(StreamEnded, other)
    assert told == ["0 bytes", "64000 bytes"], "what waits leaves room for the bodies of others"
    assert client.http2.local_flow_control_window(number) == 535, "nothing more of it may come"
    await asyncio.sleep(1)
    assert not any(type(event) is StreamReset for event in client.told), "it is not the client that is slow"
    monkeypatch.setattr(http2, "SLOWEST_BYTES", 0)  # nor is this test, on a busy machine
    slow.set()
    await client.hear(WindowUpdated, number)
    client.http2.send_data(number, b"x" * 16_000, end_stream=True)
    await client.hear(StreamEnded, number)
    assert told[-1] == "81000 bytes"


@pytest.mark.parametrize("client", [counting], indirect=True)
async def test_bodies_that_nobody_reads_use_up_no_window(client):
    for _ in range(120):
        assert await client.answered()  # hears what may be sent
        number = client.begin((":method", "POST"), (":path", "/early"), *ASK[2:])
        for _ in range(4):
            client.http2.send_data(number, b"x" * 16_000)
        client.http2.reset_stream(number)
    number = client.begin()
    client.http2.send_data(number, b"x" * 10_000, end_stream=True)
    await client.hear(StreamEnded, number)
    assert told[-1] == "10000 bytes"


@pytest.mark.parametrize("client", [reading], indirect=True)
async def test_a_body_of_which_hardly_anything_comes_ends_by_itself(client):
    slow = client.begin()
    for _ in range(3):
        client.http2.send_data(slow, b"x")
        client.send()
    assert (await client.hear(StreamReset, slow)).error_code == ErrorCodes.CANCEL
    while not told:
        await asyncio.sleep(0.01)
    assert told[0] == "http.disconnect"
    assert not any(type(event) is ConnectionTerminated for event in client.told), "others go on"


@pytest.mark.parametrize("client", [reading], indirect=True)
async def test_a_client_that_opens_no_window_does_not_keep_its_request(client, monkeypatch):
    monkeypatch.setattr(http2, "STUCK_SECONDS", 0.3)
    client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    number = client.begin(end=True)
    assert (await client.hear(StreamReset, number)).error_code == ErrorCodes.CANCEL
    async with asyncio.timeout(5):
        while told != ["http.request", "http.disconnect"]:
            await asyncio.sleep(0.01)
        rest = client.http2.receive_data(await client.served.reader.read())
    assert [type(event) for event in rest] == [ConnectionTerminated], "it is idle now, so it is closed"


async def test_a_connection_whose_last_request_was_taken_back_is_idle(client):
    client.http2.reset_stream(client.begin())
    client.send()
    async with asyncio.timeout(5):
        while await client.served.reader.read(65536):
            pass


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "while it is answered"])
@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_client_that_will_ask_no_more_gets_the_answers_it_waits_for(client, together):
    """Node's `session.close()` and Go's `Shutdown` say so at once, and wait for what is under way (RFC 9113, 6.8)."""
    frames = Frames(client)
    number = client.begin(*SLOW, end=True)
    if not together:
        await frames.until(ends(client.begin(end=True)))  # by then the other one is being answered as well
    client.send(GoAwayFrame(stream_id=0).serialize() + PingFrame(stream_id=0, opaque_data=b"12345678").serialize())
    await frames.until(lambda frame: isinstance(frame, PingFrame))  # what comes behind it is read, too
    slow.set()
    await frames.until(ends(number))


@pytest.mark.parametrize("error", [ErrorCodes.NO_ERROR, ErrorCodes.INTERNAL_ERROR], ids=lambda each: each.name)
@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_a_client_that_leaves_for_good_is_let_go(client, error):
    if error:
        client.begin(*SLOW, end=True)
    client.send(GoAwayFrame(stream_id=0, error_code=error).serialize())
    async with asyncio.timeout(5):
        while await client.served.reader.read(65536):
            pass


class Frames:
    """A client that goes on after it was told to begin no more requests, as h2's own does not: it reads frames."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.unread = b""
        self.seen: list[Frame] = []

    async def until(self, found: Callable[[Frame], bool]) -> Frame:
        """The first frame of this kind; fails where the connection is closed before it."""
        self.client.send()
        async with asyncio.timeout(5):
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


def is_refusal(number: int) -> Callable[[Frame], bool]:
    return lambda frame: isinstance(frame, RstStreamFrame) and frame.stream_id == number


def is_farewell(frame: Frame) -> bool:
    return isinstance(frame, GoAwayFrame)


@pytest.mark.parametrize("client", [patient], indirect=True)
@pytest.mark.parametrize("busy", [True, False])
async def test_a_server_that_ends_tells_its_clients_and_answers_what_they_sent_before_they_knew(client, busy):
    """A proxy puts the requests of many on one connection, and no one repeats a POST by itself."""
    frames = Frames(client)
    running = client.begin(*(SLOW if busy else ASK), end=True)
    await frames.until(ends(client.begin(end=True)))  # by then the other one is being answered as well
    client.served.stop.set()
    farewell = await frames.until(is_farewell)
    assert isinstance(farewell, GoAwayFrame)
    assert (farewell.last_stream_id, farewell.error_code) == (2**31 - 1, ErrorCodes.NO_ERROR), "more may be on its way"
    late = client.begin(end=True)
    await frames.until(ends(late))
    slow.set()
    await frames.until(ends(running))
    last = await frames.until(lambda frame: is_farewell(frame) and frame is not farewell)
    assert isinstance(last, GoAwayFrame) and last.last_stream_id == late
    async with asyncio.timeout(5):
        assert await client.served.reader.read() == b"", "what is idle is closed"


@pytest.mark.parametrize("client", [patient], indirect=True)
async def test_what_comes_long_after_the_server_said_that_it_ends_may_be_sent_elsewhere(client, monkeypatch):
    monkeypatch.setattr(http2, "LAST_CALL_SECONDS", 0)
    frames = Frames(client)
    running = client.begin(*SLOW, end=True)
    await frames.until(ends(client.begin(end=True)))
    client.served.stop.set()
    await frames.until(is_farewell)
    late = client.begin(end=True)
    refusal = await frames.until(is_refusal(late))
    assert isinstance(refusal, RstStreamFrame) and refusal.error_code == ErrorCodes.REFUSED_STREAM
    slow.set()
    await frames.until(ends(running))
