"""CPU of the upstream client alone: µs per call, ours beside others that are installed.

    python bench/client.py [--rounds 5] [--calls 4000]

A server in a process of its own answers 1 KB of JSON, or 100 events in one write; the figure is the client process's
CPU time (user and system) per call, the median over rounds that interleave the clients. 50 calls run at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tollgate.upstream import Call, Client

AT_ONCE = 50
EVENTS = 100
_ANSWER = json.dumps(
    {"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"message": {"content": "x" * 880}}]}
).encode()
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word '
    b'"}}]}\n\n'
)
_REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 900}]}).encode()
_HEADERS = {"authorization": "Bearer sk-x", "content-type": "application/json"}

_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_1\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_ANSWER),
    _ANSWER,
)
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT) for _ in range(EVENTS))
    + b"0\r\n\r\n"
)


class _Upstream(asyncio.Protocol):
    """The least server: a request is over when its head and a body of the known length are here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        at = self.data.find(b"\r\n\r\n")
        if at >= 0 and len(self.data) >= at + 4 + len(_REQUEST):
            stream = self.data.startswith(b"POST /stream")
            self.data = b""
            self.transport.write(_STREAM if stream else _JSON)  # type: ignore[attr-defined]


def _serve(pipe) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Upstream, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


Sender = Callable[[str], Awaitable[int]]


async def _measure(send: Sender, url: str, calls: int) -> float:
    async def worker(count: int) -> None:
        for _ in range(count):
            assert await send(url) > 0

    await asyncio.gather(*(worker(4) for _ in range(AT_ONCE)))
    started = time.process_time()
    await asyncio.gather(*(worker(calls // AT_ONCE) for _ in range(AT_ONCE)))
    return (time.process_time() - started) / calls * 1e6


async def _ours(base: str, path: str, calls: int) -> float:
    client = Client(environ={})

    async def send(url: str) -> int:
        answer = await client.open(Call("POST", url, _HEADERS, _REQUEST))
        if path == "/stream":
            return sum([len(chunk) async for chunk in answer.chunks()])
        return len(await answer.read())

    try:
        return await _measure(send, base + path, calls)
    finally:
        await client.close()


async def _aiohttp(base: str, path: str, calls: int) -> float:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send(url: str) -> int:
            async with session.post(url, data=_REQUEST, headers=_HEADERS) as response:
                if path == "/stream":
                    return sum([len(chunk) async for chunk in response.content.iter_any()])
                return len(await response.read())

        return await _measure(send, base + path, calls)


async def _httpx(base: str, path: str, calls: int) -> float:
    import httpx

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:

        async def send(url: str) -> int:
            async with client.stream("POST", url, content=_REQUEST, headers=_HEADERS) as response:
                return sum([len(chunk) async for chunk in response.aiter_raw()])

        return await _measure(send, base + path, max(AT_ONCE * 4, calls // 20))


def _installed() -> dict[str, Callable[[str, str, int], Awaitable[float]]]:
    clients = {"tollgate": _ours}
    for name, run in (("aiohttp", _aiohttp), ("httpx", _httpx)):
        try:
            __import__(name)
        except ImportError:
            print(f"({name} is not installed)")
        else:
            clients[name] = run
    return clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=4000)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{mine.recv()}"
    clients = _installed()
    figures: dict[tuple[str, str], list[float]] = {}
    try:
        for _ in range(options.rounds):
            for path in ("/json", "/stream"):
                for name, run in clients.items():
                    figures.setdefault((name, path), []).append(uvloop.run(run(base, path, options.calls)))  # type: ignore[arg-type]
    finally:
        server.terminate()
    print(f"{'µs of CPU per call':<20}{'1 KB JSON':>12}{'100 events':>12}{'per event':>12}")
    for name in clients:
        plain, stream = (statistics.median(figures[name, path]) for path in ("/json", "/stream"))
        print(f"{name:<20}{plain:>12.1f}{stream:>12.1f}{(stream - plain) / EVENTS:>12.2f}")


if __name__ == "__main__":
    main()
