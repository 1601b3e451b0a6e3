"""In-process apps: an `app://` address is an upstream like any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from support.waiting import until
from tollgate.config.settings import Timeouts
from tollgate.errors import AnswerLost, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream import Call, Client
from tollgate.upstream.answer import BLOCK


class Recorder:
    """An app that records its calls and whether its body was closed."""

    def __init__(self, *chunks: bytes | float | BaseException) -> None:
        self.chunks = chunks
        self.calls: list[tuple] = []
        self.closed = asyncio.Event()
        self.sent = 0

    async def __call__(self, method, path, headers, body):
        self.calls.append((method, path, dict(headers), body))
        return 200, {"Content-Type": "text/event-stream"}, self.body()

    async def body(self) -> AsyncIterator[bytes]:
        try:
            for chunk in self.chunks:
                if isinstance(chunk, BaseException):
                    raise chunk
                if isinstance(chunk, float):
                    await asyncio.sleep(chunk)
                else:
                    self.sent += len(chunk)
                    yield chunk
        finally:
            self.closed.set()


def call(**more) -> Call:
    return Call(
        **{
            "method": "POST",
            "url": "app://box/v1/x?y=1",
            "headers": {"X-A": "b"},
            "body": b"{}",
            **more,
        }
    )


async def test_an_app_receives_the_call_and_returns_the_response(client: Client) -> None:
    app = Recorder(b"a", b"", 0.01, b"b")
    client.register_app("box", app)
    answer = await client.open(call())
    assert (answer.status, answer.headers) == (200, {"content-type": "text/event-stream"})
    assert b"".join([chunk async for chunk in answer.chunks()]) == b"ab"
    assert await (await client.open(call(url="app://box"))).read() == b"ab"
    assert app.calls[0] == ("POST", "/v1/x?y=1", {"x-a": "b"}, b"{}")
    assert app.calls[1][1] == "/"


async def test_an_answer_in_one_piece_is_read_in_blocks_in_linear_time(client: Client) -> None:
    client.register_app("box", Recorder(bytes(64 * 1024 * 1024)))
    began = time.process_time()
    async with await client.open(call()) as answer:
        sizes = [len(chunk) async for chunk in answer.chunks()]
    assert (sum(sizes), max(sizes)) == (64 * 1024 * 1024, BLOCK)
    assert time.process_time() - began < 3  # it used to take ten


@pytest.mark.parametrize("how", ["abort", "cancel", "client closed"])
async def test_closing_early_stops_the_app(client: Client, how: str) -> None:
    app = Recorder(b"a", 100.0, b"b")
    client.register_app("box", app)

    async def consume() -> None:
        async with await client.open(call()) as answer:
            async for _ in answer.chunks():
                if how == "abort":
                    return

    task = asyncio.create_task(consume())
    await until(lambda: app.sent)
    if how == "cancel":
        task.cancel()
    elif how == "client closed":
        await client.close()
    results = await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(app.closed.wait(), 10)
    assert [type(r) for r in results] == [
        {"abort": type(None), "cancel": asyncio.CancelledError, "client closed": UpstreamUnreachable}[how]
    ]


async def test_timeouts_apply_to_apps(client: Client) -> None:
    for chunks, timeouts, budget in (
        ((0.5,), Timeouts(first_byte=0.05), "first_byte"),
        ((b"a", 0.5), Timeouts(idle=0.05), "idle"),
    ):
        app = Recorder(*chunks)
        client.register_app("box", app)
        with pytest.raises(UpstreamTimeout) as caught:
            await (await client.open(call(timeouts=timeouts))).read()
        assert caught.value.budget == budget
        await asyncio.sleep(0)
        assert app.closed.is_set()


async def test_a_slow_consumer_pauses_an_app(client: Client) -> None:
    app = Recorder(*[b"x" * 65536] * 100)
    client.register_app("box", app)
    answer = await client.open(call())
    await asyncio.sleep(0.02)
    assert app.sent < 1_000_000
    assert len(await answer.read()) == 6_553_600


async def refusing_connections(method, path, headers, body):
    raise ConnectionRefusedError


async def test_an_error_of_an_app_is_an_upstream_error(client: Client) -> None:
    client.register_app("box", Recorder(b"a", ValueError("secret detail")))
    with pytest.raises(AnswerLost, match="ValueError") as caught:
        await (await client.open(call())).read()
    assert "secret" not in str(caught.value)
    assert caught.value.upstream_status == 200  # it had been reached: not a 502
    client.register_app("box", refusing_connections)
    with pytest.raises(UpstreamUnreachable, match="ConnectionRefusedError"):
        await client.open(call())
    client.register_app("box", Recorder(b"a", UpstreamFailed("as raised")))
    with pytest.raises(UpstreamFailed, match="as raised"):
        await (await client.open(call())).read()

    async def broken(method, path, headers, body):
        raise UpstreamUnreachable("down")

    client.register_app("box", broken)
    with pytest.raises(UpstreamUnreachable, match="down"):
        await client.open(call())


async def test_an_unregistered_app_is_unreachable(client: Client) -> None:
    with pytest.raises(UpstreamUnreachable, match="'nobody'"):
        await client.open(call(url="app://nobody/x"))


@pytest.mark.parametrize("length", ["²", "9" * 5000], ids=["another script", "thousands of digits"])
async def test_a_length_that_is_no_usual_number_is_no_mistake_of_ours(client: Client, length: str) -> None:
    async def app(method, path, headers, body):
        return 200, {"content-length": length}, Recorder(b"ok").body()

    client.register_app("box", app)
    try:
        assert await (await client.open(call())).read() == b"ok"
    except UpstreamFailed as error:
        assert length != "²" and "exceeds" in error.message
