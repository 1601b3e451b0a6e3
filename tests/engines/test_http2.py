"""HTTP/2 on hypercorn: what one client of a proxy sends ends none of the others' requests, and nothing is occupied for
nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

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


told: list[str] = []


@pytest.fixture
async def client(request, monkeypatch):
    monkeypatch.setattr("test_engines.application", getattr(request, "param", early))
    monkeypatch.setattr("tollgate.engines.hypercorn.KEEP_ALIVE_SECONDS", 0.2)
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


@pytest.mark.parametrize("ask", [
    [(":method", "CONNECT"), (":authority", "a:80")],
    [(":method", "CONNECT"), (":protocol", "websocket"), *ASK[1:]],
    [(":method", "GET"), (":path", b"/\xff"), *ASK[2:]],
], ids=["a tunnel", "a web socket", "a path that is none"])
async def test_what_is_no_request_is_refused_by_itself(client, ask, caplog):
    number = client.begin(*ask)
    assert (await client.hear(StreamReset, number)).error_code == ErrorCodes.REFUSED_STREAM
    assert await client.answered() and caplog.text == ""


async def test_priorities_that_clients_name_are_not_kept(client, caplog):
    client.send(b"".join(b"\0\0\5\2\0" + (2 * each + 1).to_bytes(4, "big") + b"\0\0\0\0\x10" for each in range(2000)))
    assert await client.answered() and caplog.text == ""


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
        assert await client.served.reader.read() == b"", "it is idle now, so it is closed"


async def test_a_connection_whose_last_request_was_taken_back_is_idle(client):
    client.http2.reset_stream(client.begin())
    client.send()
    async with asyncio.timeout(5):
        while await client.served.reader.read(65536):
            pass
