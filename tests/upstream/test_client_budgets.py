"""Time and flow control: the four timeouts, slow consumers, large bodies, and closing early."""

from __future__ import annotations

import asyncio

import pytest
from scripted import CHUNKED_HEAD, Peer, Seen, chunked, ok, upstream

from support.waiting import until
from tollgate.config.settings import Timeouts
from tollgate.errors import UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream import Answer, Call, Client
from tollgate.upstream.connection import Connection


def call(url: str, timeouts: Timeouts = Timeouts(connect=30, first_byte=30, idle=30, total=60), **more) -> Call:
    return Call(**{"method": "POST", "url": url, "body": b"{}", "timeouts": timeouts, **more})


async def stall(seen: Seen, peer: Peer) -> bool:
    return True


async def head_then_stall(seen: Seen, peer: Peer) -> bool:
    await peer.send(CHUNKED_HEAD)
    return True


async def part_then_stall(seen: Seen, peer: Peer) -> bool:
    await peer.send(CHUNKED_HEAD + chunked(b"a", end=False))
    return True


async def trickle(seen: Seen, peer: Peer) -> bool:
    await peer.send(CHUNKED_HEAD)
    for _ in range(100):
        await peer.send(chunked(b"a", end=False))
        await asyncio.sleep(0.02)
    return True


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("script", "timeouts", "budget", "received"),
    [
        pytest.param(stall, Timeouts(first_byte=0.08), "first_byte", b"", id="no head"),
        pytest.param(head_then_stall, Timeouts(first_byte=0.08), "first_byte", b"", id="a head and no body"),
        pytest.param(part_then_stall, Timeouts(idle=0.08), "idle", b"a", id="silence"),
        pytest.param(
            part_then_stall, Timeouts(first_byte=1, idle=1.2), "idle", b"a", id="idle is longer than first byte"
        ),
        pytest.param(trickle, Timeouts(idle=5, total=0.2), "total", None, id="an endless stream"),
        pytest.param(stall, Timeouts(total=0.08), "total", b"", id="total before first byte"),
    ],
)
async def test_each_timeout_is_reported_by_its_name(
    client: Client, script, timeouts, budget, received, whole: bool
) -> None:
    loop = asyncio.get_running_loop()
    async with upstream(script) as server:
        got = []
        started = loop.time()
        with pytest.raises(UpstreamTimeout) as caught:
            answer = await client.open(call(server.url(), timeouts))
            if whole:
                await answer.read()
            async for chunk in answer.chunks():
                got.append(chunk)
        assert caught.value.budget == budget
        assert caught.value.seconds == getattr(timeouts, budget)
        assert -0.02 < loop.time() - started - caught.value.seconds < 8  # none of the other timeouts
        if received is not None and not whole:
            assert b"".join(got) == received
        await until(lambda: not server.open)


async def test_a_steady_stream_may_be_longer_than_first_byte_and_idle_together(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        await peer.send(CHUNKED_HEAD)
        for _ in range(12):
            await peer.send(chunked(b"a", end=False))
            await asyncio.sleep(0.18)
        await peer.send(chunked())

    async with upstream(script) as server:
        answer = await client.open(call(server.url(), Timeouts(first_byte=1, idle=1)))
        assert b"".join([chunk async for chunk in answer.chunks()]) == b"a" * 12


async def test_a_slow_consumer_does_not_count_as_an_idle_upstream(client: Client) -> None:
    consumed = asyncio.Event()

    async def script(seen: Seen, peer: Peer) -> None:
        await peer.send(CHUNKED_HEAD + chunked(b"a", end=False))
        await consumed.wait()
        await peer.send(chunked(b"b"))

    async with upstream(script) as server:
        answer = await client.open(call(server.url(), Timeouts(idle=1)))
        stream = answer.chunks()
        assert await anext(stream) == b"a"
        await asyncio.sleep(1.1)  # the upstream was silent as well, but nothing waited for it
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # it waits from now on
        consumed.set()
        assert await following == b"b"


async def test_waiting_for_a_chunk_can_be_cancelled_and_repeated(client: Client) -> None:
    given_up = asyncio.Event()

    async def script(seen: Seen, peer: Peer) -> None:
        await peer.send(CHUNKED_HEAD)
        await given_up.wait()
        await peer.send(chunked(b"a"))

    async with upstream(script) as server:
        stream = (await client.open(call(server.url()))).chunks()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.03)
        given_up.set()
        assert [chunk async for chunk in stream] == [b"a"]


async def test_an_unread_response_pauses_the_upstream_and_loses_nothing(client: Client) -> None:
    total = 24 * 1024 * 1024
    sent = 0

    async def script(seen: Seen, peer: Peer) -> None:
        nonlocal sent
        sent = 0
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            await peer.send(b"x" * 65536)
            sent += 65536

    async with upstream(script) as server:
        answer = await client.open(call(server.url()))
        await asyncio.sleep(0.2)
        assert answer.size < 2 * 1024 * 1024
        assert sent < total
        assert sum([len(chunk) async for chunk in answer.chunks()]) == total
        answer = await client.open(call(server.url()))
        await asyncio.sleep(0.1)
        assert len(await answer.read()) == total


async def test_a_large_body_is_sent_completely(client: Client) -> None:
    body = bytes(range(256)) * 4096 * 5
    async with upstream(ok(b"a")) as server:
        for _ in range(2):
            assert await (await client.open(call(server.url(), body=body))).read() == b"a"
        assert [seen.body == body for seen in server.seen] == [True, True]
        assert server.connections == 1


async def test_an_early_rejection_ends_the_upload_and_the_connection(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> bool:
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await asyncio.sleep(0.5)
        return False

    async with upstream(script, read_bodies=False) as server:
        answer = await client.open(call(server.url(), body=bytes(32 * 1024 * 1024)))
        assert (answer.status, await answer.read()) == (413, b"big")
        answer = await client.open(call(server.url(), body=b""))
        assert server.connections == 2


async def test_an_upstream_that_stops_reading_is_a_first_byte_timeout(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> bool:
        await asyncio.sleep(1)
        return False

    async with upstream(script, read_bodies=False) as server:
        with pytest.raises(UpstreamTimeout, match="first-byte"):
            await client.open(call(server.url(), Timeouts(first_byte=0.15), body=bytes(32 * 1024 * 1024)))


async def test_a_body_waits_until_its_upstream_reads_and_is_not_copied_meanwhile(client: Client, monkeypatch) -> None:
    connections: list[Connection] = []
    upload = Connection.upload

    async def watched(connection: Connection, answer: Answer, body: bytes) -> None:
        connections.append(connection)
        await upload(connection, answer, body)

    monkeypatch.setattr(Connection, "upload", watched)
    async with upstream(stall, read_bodies=False) as server:
        task = asyncio.create_task(client.open(call(server.url(), body=bytes(32 * 1024 * 1024))))
        await until(lambda: server.seen)
        [connection] = connections
        for _ in range(10):
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() < 1024 * 1024
            await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "script", [stall, head_then_stall, part_then_stall], ids=["before the head", "after the head", "mid-stream"]
)
async def test_cancelling_closes_the_connection_at_once(client: Client, script) -> None:
    there, gone = asyncio.Event(), asyncio.Event()

    async def watched(seen: Seen, peer: Peer) -> None:
        await script(seen, peer)
        there.set()
        if await peer.is_closed(10):
            gone.set()

    async with upstream(watched) as server:

        async def consume() -> None:
            async with await client.open(call(server.url())) as answer:
                async for _ in answer.chunks():
                    pass

        task = asyncio.create_task(consume())
        await asyncio.wait_for(there.wait(), 10)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 10)


async def test_an_aborted_response_raises_and_a_complete_one_is_kept(client: Client) -> None:
    async with upstream(part_then_stall) as stalling, upstream(ok(b"a")) as fine:
        answer = await client.open(call(stalling.url()))
        answer.abort()
        answer.abort()
        with pytest.raises(UpstreamUnreachable, match="abandoned"):
            await answer.read()
        async with await client.open(call(fine.url())) as answer:
            assert await answer.read() == b"a"
        await (await client.open(call(fine.url()))).read()
        assert fine.connections == 1
