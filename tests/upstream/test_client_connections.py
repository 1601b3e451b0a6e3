"""Connections: kept alive, raced, bounded, waited for, dropped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from scripted import CHUNKED_HEAD, Peer, Seen, chunked, ok, upstream

import tollgate.upstream
from support.waiting import until
from tollgate.config.settings import Timeouts
from tollgate.errors import UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream import Call, Client
from tollgate.upstream.http import split_url

PATIENT = Timeouts(connect=30, first_byte=30, idle=30, total=60)


def call(url: str, **more) -> Call:
    return Call(**{"method": "POST", "url": url, "body": b"{}", "timeouts": PATIENT, **more})


async def fetch(client: Client, url: str, **more) -> bytes:
    async with await client.open(call(url, **more)) as answer:
        return await answer.read()


async def test_a_connection_is_kept_and_reused(client: Client) -> None:
    async with upstream(ok(b"a")) as server:
        for _ in range(5):
            assert await fetch(client, server.url()) == b"a"
        assert server.connections == 1


def test_the_idna_codec_is_imported_before_the_first_call() -> None:
    code = "import sys; import tollgate.upstream.http; print('encodings.idna' in sys.modules)"
    source = str(Path(tollgate.upstream.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert done.stdout.strip() == "True"


async def test_long_urls_are_called_but_not_cached(client: Client) -> None:
    async with upstream(ok(b"a")) as server:
        for query in ("", "?a=" + "b" * 3000):
            assert await fetch(client, server.url() + query) == b"a"
        assert [url for url, *_ in client._http._routes] == [server.url()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "answer",
    [
        ok(b"a", "connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
        ok(b"a", "keep-alive: timeout=1"),
        ok(b"a") + b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
        ok(b"a") + b"x",
        ok(b"", "transfer-encoding: chunked") + chunked(b"a"),
    ],
    ids=[
        "connection: close",
        "HTTP/1.0",
        "a short keep-alive",
        "an unrequested second response",
        "stray bytes",
        "a length and chunks",
    ],
)
async def test_a_connection_that_must_not_be_kept_is_closed(client: Client, answer: bytes) -> None:
    async with upstream(answer) as server:
        for _ in range(3):
            assert await fetch(client, server.url()) == b"a"
        assert server.connections == 3


@pytest.mark.parametrize("value", ["²", "9" * 5000, "", "-3"], ids=["no digit", "long", "nothing", "negative"])
async def test_an_invalid_keep_alive_timeout_is_ignored(client: Client, value: str) -> None:
    async with upstream(ok(b"a", f"keep-alive: timeout={value}").replace("²".encode(), b"\xb2")) as server:
        assert [await fetch(client, server.url()) for _ in range(2)] == [b"a", b"a"]
        assert server.connections == 1


async def test_a_kept_connection_with_unexpected_bytes_is_dropped(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        await peer.send(ok(b"a"))
        if peer.number == 1:
            await asyncio.sleep(0.02)
            await peer.send(ok(b"poison"))

    async with upstream(script) as server:
        assert await fetch(client, server.url()) == b"a"
        (pool,) = client._http._pools.values()  # type: ignore[attr-defined]
        await until(lambda: not pool.size)
        assert await fetch(client, server.url()) == b"a"
        assert server.connections == 2


async def test_a_kept_connection_that_dies_unanswered_is_replaced_once(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) == 2:
            return peer.hang_up()
        return await peer.send(ok(b"a"))

    async with upstream(script) as server:
        assert await fetch(client, server.url()) == b"a"
        assert await fetch(client, server.url()) == b"a"
        assert [seen.connection for seen in server.seen] == [1, 1, 2]


async def test_a_connection_that_dies_unanswered_is_replaced_by_a_new_one(client: Client) -> None:
    """After a server restart, all kept connections are dead."""
    met = asyncio.Barrier(2)

    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) <= 2:
            await met.wait()  # gives each of the two calls its own connection
            return await peer.send(ok(b"a"))
        return peer.hang_up() if peer.number <= 2 else await peer.send(ok(b"b"))

    async with upstream(script) as server:
        assert await asyncio.gather(*(fetch(client, server.url()) for _ in range(2))) == [b"a", b"a"]
        assert await fetch(client, server.url()) == b"b"
        assert [seen.connection for seen in server.seen[2:]] in ([1, 3], [2, 3])


async def test_a_fresh_connection_that_dies_is_not_replaced(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        peer.hang_up()

    async with upstream(script) as server:
        with pytest.raises(UpstreamUnreachable, match="closed the connection before answering"):
            await fetch(client, server.url())
        assert len(server.seen) == 1


async def test_a_call_is_not_repeated_once_its_response_has_begun(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) == 1:
            return await peer.send(ok(b"a"))
        await peer.send(b"H")
        await asyncio.sleep(0.01)
        return peer.hang_up()

    async with upstream(script) as server:
        assert await fetch(client, server.url()) == b"a"
        with pytest.raises(UpstreamUnreachable):
            await fetch(client, server.url())
        assert len(server.seen) == 2


async def test_a_call_that_may_have_been_processed_is_not_repeated(client: Client, monkeypatch) -> None:
    monkeypatch.setattr("tollgate.upstream.http._RACE_SECONDS", 0.05)

    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) == 1:
            return await peer.send(ok(b"a"))
        await asyncio.sleep(0.1)
        return peer.hang_up()

    async with upstream(script) as server:
        await fetch(client, server.url())
        with pytest.raises(UpstreamUnreachable, match="closed the connection before answering"):
            await fetch(client, server.url())
        assert len(server.seen) == 2


class LoopAhead:
    """The running loop with a clock that a test can advance."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ahead = 0.0

    def time(self) -> float:
        return self.loop.time() + self.ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


async def test_a_call_that_waited_long_for_its_connection_is_repeated(make_client, monkeypatch) -> None:
    loop, release = LoopAhead(), asyncio.Event()
    monkeypatch.setattr(
        "tollgate.upstream.http.asyncio", SimpleNamespace(**{**vars(asyncio), "get_running_loop": lambda: loop})
    )
    client = make_client(max_per_origin=1)

    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) == 1:
            await release.wait()
        if len(server.seen) == 2:
            return peer.hang_up()
        return await peer.send(ok(b"a"))

    async with upstream(script) as server:
        first, second = (
            asyncio.ensure_future(fetch(client, server.url())),
            asyncio.ensure_future(fetch(client, server.url())),
        )
        await until(lambda: server.seen)
        loop.ahead = 3.0
        release.set()
        assert [await first, await second] == [b"a", b"a"]
        assert [seen.connection for seen in server.seen] == [1, 1, 2]


async def test_two_dead_connections_are_an_error(client: Client) -> None:
    async def script(seen: Seen, peer: Peer) -> None:
        if len(server.seen) == 1:
            return await peer.send(ok(b"a"))
        return peer.hang_up()

    async with upstream(script) as server:
        await fetch(client, server.url())
        with pytest.raises(UpstreamUnreachable):
            await fetch(client, server.url())
        assert len(server.seen) == 3


async def test_idle_connections_are_closed_in_time(make_client) -> None:
    client = make_client(idle_seconds=1)
    async with upstream(ok(b"a")) as server:
        await asyncio.gather(*(fetch(client, server.url()) for _ in range(5)))
        assert server.open == server.connections > 1
        await until(lambda: not server.open)
        assert await fetch(client, server.url()) == b"a"


async def test_connections_to_a_host_are_bounded_and_given_in_order(make_client) -> None:
    client = make_client(max_per_origin=2)
    order: list[str] = []
    arrived: asyncio.Queue[str] = asyncio.Queue()
    answers = asyncio.Semaphore(0)

    async def script(seen: Seen, peer: Peer) -> None:
        arrived.put_nowait(seen.line.split()[1])
        await answers.acquire()
        await peer.send(ok(b"a"))

    async with upstream(script) as server:
        tasks = []
        for i in range(8):
            tasks.append(asyncio.create_task(fetch(client, server.url(f"/{i}"))))
            await asyncio.sleep(0)
        # two connections are opened at once, and either may be first
        first = {await arrived.get(), await arrived.get()}
        for _ in range(6):
            answers.release()
            order.append(await arrived.get())
        answers.release()
        answers.release()
        assert await asyncio.gather(*tasks) == [b"a"] * 8
        assert server.connections == 2
        assert first == {"/0", "/1"}
        assert order == [f"/{i}" for i in range(2, 8)]


async def test_a_cancelled_waiter_does_not_lose_the_connection(make_client) -> None:
    client = make_client(max_per_origin=1)
    release = asyncio.Event()

    async def script(seen: Seen, peer: Peer) -> None:
        await release.wait()
        await peer.send(ok(b"a"))

    async with upstream(script) as server:
        first = asyncio.create_task(fetch(client, server.url()))
        await until(lambda: server.seen)
        waiters = [asyncio.create_task(fetch(client, server.url())) for _ in range(4)]
        (pool,) = client._http._pools.values()  # type: ignore[attr-defined]
        await until(lambda: len(pool._waiters) >= 4)
        waiters[0].cancel()
        release.set()
        assert await first == b"a"
        waiters[1].cancel()  # it was just given the connection, but has not run yet
        for left in waiters[:2]:
            with pytest.raises(asyncio.CancelledError):
                await left
        async with asyncio.timeout(10):
            assert await asyncio.gather(*waiters[2:]) == [b"a", b"a"]
        assert server.connections <= 2


async def test_waiting_for_a_connection_counts_towards_the_connect_timeout(make_client) -> None:
    client = make_client(max_per_origin=1)
    async with upstream(CHUNKED_HEAD + chunked(b"a", end=False)) as server:
        async with await client.open(call(server.url())):
            with pytest.raises(UpstreamTimeout, match="connect budget of 0.05 s"):
                await fetch(client, server.url(), timeouts=Timeouts(connect=0.05))
        assert await (await client.open(call(server.url()))).chunks().__anext__() == b"a"


async def test_the_total_timeout_applies_while_connecting(make_client) -> None:
    async def resolver(host: str, port: int):
        await asyncio.sleep(60)

    with pytest.raises(UpstreamTimeout, match="total budget of 0.05 s"):
        await fetch(make_client(resolver=resolver), "http://slow.example/", timeouts=Timeouts(connect=2, total=0.05))


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://[::1]:8443/a", ("http", "::1", 8443, "/a")),
        ("https://[2001:DB8::1]?q", ("https", "2001:db8::1", 443, "/?q")),
        ("HTTP://A.example#part", ("http", "a.example", 80, "/")),
    ],
)
def test_a_url_is_split(url: str, wanted: tuple[str, str, int, str]) -> None:
    assert split_url(url) == wanted


async def test_many_concurrent_calls_leak_nothing(make_client) -> None:
    client = make_client(max_per_origin=10)

    async def script(seen: Seen, peer: Peer) -> None:
        kind = int(seen.line.split()[1].rpartition("/")[2]) % 4
        if kind == 1:
            return peer.hang_up()
        if kind == 2:
            await asyncio.sleep(0.02)
        return await peer.send(ok(b"a"))

    async with upstream(script) as server:

        async def one(i: int) -> None:
            with contextlib.suppress(UpstreamUnreachable, UpstreamTimeout):
                await fetch(client, server.url(f"/{i}"), timeouts=Timeouts(first_byte=0.01 if i % 8 == 2 else 2))

        tasks = [asyncio.create_task(one(i)) for i in range(200)]
        await asyncio.sleep(0.01)
        for task in tasks[::7]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        (pool,) = client._http._pools.values()  # type: ignore[attr-defined]
        with contextlib.suppress(TimeoutError):  # a failure is reported below
            await until(lambda: pool.size == pool.idle)
        assert pool.size == pool.idle <= 10
        assert not pool._waiters
        assert len(pool._all) == pool.size


async def test_a_closed_client_rejects_calls(make_client) -> None:
    client = make_client()
    async with upstream(ok(b"a")) as server:
        await fetch(client, server.url())
        await client.close()
        await until(lambda: not server.open)
        with pytest.raises(UpstreamUnreachable, match="closed"):
            await fetch(client, server.url())


async def test_a_port_without_a_listener_is_unreachable(client: Client) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(
            UpstreamUnreachable, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"
        ) as caught:
            await fetch(client, f"http://127.0.0.1:{port}/secret/path?key=canary")
    assert "canary" not in str(caught.value)


async def test_a_dead_address_does_not_hide_a_working_one(make_client) -> None:
    async with upstream(ok(b"a")) as server:

        async def resolver(host: str, port: int):
            return [
                (socket.AF_INET6, "::1", 1),
                (socket.AF_INET, "127.0.0.1", 1),
                (socket.AF_INET, "127.0.0.1", server.port),
            ]

        assert await fetch(make_client(resolver=resolver), "http://many.example/") == b"a"


async def test_concurrent_lookups_are_shared_and_a_cancelled_call_does_not_stop_one(make_client) -> None:
    lookups: list[str] = []
    known = asyncio.Event()

    async def resolver(host: str, port: int):
        lookups.append(host)
        await known.wait()
        if host == "none.example":
            raise UpstreamUnreachable("cannot resolve none.example")
        return [(socket.AF_INET, "127.0.0.1", server.port)]

    async with upstream(ok(b"a")) as server:
        client = make_client(resolver=resolver)
        calls = [
            asyncio.ensure_future(fetch(client, f"http://{name}.example/"))
            for _ in range(5)
            for name in ("some", "none")
        ]
        await until(lambda: len(lookups) >= 2)
        calls[0].cancel()
        calls[1].cancel()
        known.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(lookups) == ["none.example", "some.example"]
        assert done[2::2] == [b"a"] * 4
        assert [type(error) for error in done[3::2]] == [UpstreamUnreachable] * 4
        assert len(set(map(id, done[3::2]))) == 4, "each call raises its own error"
        assert await fetch(client, "http://some.example/") == b"a"
        with pytest.raises(UpstreamUnreachable, match="cannot resolve none"):
            await fetch(client, "http://none.example/")
        assert lookups.count("none.example") == 2, "a result is not kept: next time the name may have an address"


async def test_the_next_address_is_tried_beside_a_silent_one_after_a_quarter_second(make_client, caplog) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        silent = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]  # a full backlog does not answer
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", silent))
        async with upstream(ok(b"a")) as server:

            async def resolver(host: str, port: int):
                return [(socket.AF_INET, "127.0.0.1", silent), (socket.AF_INET, "127.0.0.1", server.port)]

            # one of the loops excludes the time in which the process did not run
            clock = asyncio.get_running_loop().time
            started = clock()
            assert await fetch(make_client(resolver=resolver), "http://many.example/") == b"a"
            assert 0.2 < clock() - started < 25, "the connect timeout is 30 seconds"
            await asyncio.sleep(0)
        assert not caplog.records, "the attempt that lost is given up without a word"
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("ftp://x/", "must begin with"),
        ("x", "must begin with"),
        ("http://", "no usable host"),
        ("http://u:p@x/", "user name"),
        ("http://x:99999/", "port out of range"),
        ("http://x:y/", "no usable host"),
        ("http://a b/", "no usable host"),
        ("http://a..b/", "invalid host name"),
        (f"http://{'a' * 64}.example/", "invalid host name"),
        ("http://\u2024/", "not a valid host name"),
    ],
)
async def test_an_invalid_url_is_reported(client: Client, url: str, wanted: str) -> None:
    with pytest.raises(UpstreamUnreachable, match=wanted):
        await client.open(call(url))


@pytest.mark.parametrize("made", [dict, MappingProxyType], ids=["mutable", "immutable"])
@pytest.mark.parametrize(
    "headers", [{"x": "a\r\nb: c"}, {"x\n": "a"}, {"x": "a\0"}, {"x": "漢"}], ids=["CRLF", "name", "NUL", "not latin"]
)
async def test_a_header_cannot_smuggle_another(client: Client, headers: dict[str, str], made: type) -> None:
    async with upstream(ok()) as server:
        with pytest.raises(UpstreamUnreachable, match="a header for the upstream"):
            await client.open(call(server.url(), headers=made(headers)))
        assert server.seen == []


async def test_immutable_headers_are_encoded_once_and_not_mixed_up(client: Client) -> None:
    """Including maps that reuse the memory of another, and two methods on one URL."""
    async with upstream(ok(b"a")) as server:
        for number in range(200):  # more than are cached
            await fetch(client, server.url(), headers=MappingProxyType({"x-turn": str(number)}), body=b"b" * number)
        assert [(seen.headers["x-turn"], seen.headers["content-length"], len(seen.body)) for seen in server.seen] == [
            (str(n), str(n), n) for n in range(200)
        ]
        same = MappingProxyType({"authorization": "Bearer k"})
        for method, body in (("POST", b"{}"), ("GET", b""), ("POST", b"{...}")):
            await fetch(client, server.url(), method=method, headers=same, body=body)
        assert [
            (seen.line.split()[0], seen.headers.get("content-length"), seen.headers["authorization"])
            for seen in server.seen[-3:]
        ] == [("POST", "2", "Bearer k"), ("GET", None, "Bearer k"), ("POST", "5", "Bearer k")]
