"""The load: raw keep-alive connections over asyncio that send one prepared request again and again, bounded in count
and time, and time every answer. Closed loop (`drive`), fixed rate (`pace`) or all at once (`crowd`).

    python bench/driver.py PORT [--path /v1/chat/completions] [--seconds 2]      the load alone, for profiling
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass, field

CONNECTIONS = 64
_TAIL = 8192
"""Where the sign of a whole stream is looked for: a responses stream ends in a large object."""


@dataclass
class Result:
    """What one load saw: seconds per answer and to its first body byte, in order of arrival; what failed, and why."""

    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    seconds: float = 0.0
    events: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        return len(self.latencies)


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of all lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def request(method: str, path: str, body: bytes, key: str = "", headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: bench",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    if key:
        lines.append(f"authorization: Bearer {key}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Connection(asyncio.Protocol):
    """One connection; `ask` sends the request and gives a future of the answer's end."""

    def __init__(self, result: Result, end: bytes) -> None:
        self.result = result
        self.end = end
        self.answered: asyncio.Future[None] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, data: bytes) -> asyncio.Future[None]:
        self.head = b""
        self.tail = b""
        self.left = -1
        self.events = 0
        self.answered = asyncio.get_running_loop().create_future()
        self.first = 0.0
        self.began = time.perf_counter()
        self.transport.write(data)  # type: ignore[attr-defined]
        return self.answered

    def data_received(self, data: bytes) -> None:
        if self.left == -1:
            self.head += data
            at = self.head.find(b"\r\n\r\n")
            if at < 0:
                return
            data = self.head[at + 4 :]
            self.head = self.head[:at].lower()
            size = self.head.find(b"content-length:")
            self.left = -2 if size < 0 else int(self.head[size + 15 :].split(b"\r\n", 1)[0])
        if not self.first and data:
            self.first = time.perf_counter()
        if self.left == -2:
            self.events += data.count(b"\n\n")
            self.tail = (self.tail + data)[-_TAIL:]
            if self.tail.endswith(b"\r\n0\r\n\r\n"):
                self.finish(self.end in self.tail)
        else:
            self.left -= len(data)
            self.tail = (self.tail + data)[-64:]
            if self.left <= 0:
                self.finish(True)

    def finish(self, whole: bool) -> None:
        now = time.perf_counter()
        result = self.result
        if not self.head.startswith(b"http/1.1 200"):
            result.failures.append((self.head[:60] + b" ... " + self.tail).decode("latin-1"))
        elif not whole:
            result.failures.append(f"the stream ended without {self.end!r}: {self.tail[-200:]!r}")
        else:
            result.latencies.append(now - self.began)
            result.firsts.append((self.first or now) - self.began)
            result.events += self.events
        answered, self.answered = self.answered, None
        if answered and not answered.done():
            answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.answered and not self.answered.done():
            self.result.failures.append(f"the connection was lost: {exc}")
            self.answered.set_result(None)


async def _open(port: int, result: Result, end: bytes) -> _Connection:
    _, made = await asyncio.get_running_loop().create_connection(lambda: _Connection(result, end), "127.0.0.1", port)
    return made


async def drive(
    port: int,
    data: bytes,
    *,
    end: bytes = b"",
    connections: int = CONNECTIONS,
    count: int = 1_000_000,
    seconds: float = 2.0,
) -> Result:
    """Closed loop: every connection asks again as soon as it is answered, until `count` or `seconds` is reached."""
    result = Result()
    began = time.perf_counter()
    stop = began + seconds
    left = count

    async def run() -> None:
        nonlocal left
        connection = await _open(port, result, end)
        while left > 0 and time.perf_counter() < stop and len(result.failures) < 100:
            left -= 1
            if connection.closed:
                connection = await _open(port, result, end)
            await connection.ask(data)
        connection.transport.close()

    await asyncio.gather(*(run() for _ in range(min(connections, count))))
    result.seconds = time.perf_counter() - began
    return result


async def pace(port: int, data: bytes, *, rate: float, seconds: float, end: bytes = b"") -> Result:
    """Fixed rate: a request every 1/rate seconds whatever the answers do; for latency without queueing."""
    result = Result()
    idle: list[_Connection] = []
    began = time.perf_counter()

    async def one(at: float) -> None:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        connection = idle.pop() if idle else await _open(port, result, end)
        if connection.closed:
            connection = await _open(port, result, end)
        await connection.ask(data)
        idle.append(connection)

    await asyncio.gather(*(one(began + i / rate) for i in range(int(rate * seconds))))
    for connection in idle:
        connection.transport.close()
    result.seconds = time.perf_counter() - began
    return result


async def crowd(port: int, data: bytes, *, many: int, end: bytes, spread: float = 1.0) -> Result:
    """`many` answers at the same time, begun over `spread` seconds, one per connection."""
    result = Result()
    began = time.perf_counter()

    async def one(number: int) -> None:
        await asyncio.sleep(number * spread / many)
        try:
            connection = await _open(port, result, end)
        except OSError as error:
            result.failures.append(f"no connection: {error}")
            return
        await connection.ask(data)
        connection.transport.close()

    await asyncio.gather(*(one(i) for i in range(many)))
    result.seconds = time.perf_counter() - began
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The load alone.")
    parser.add_argument("port", type=int)
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--model", default="bench/chat")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--key", default="")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    stream = ',"stream":true' if options.stream else ""
    asked = f'{{"model":"{options.model}","max_tokens":100,"messages":[{{"role":"user","content":"hello"}}]{stream}}}'.encode()  # noqa: E501
    found = asyncio.run(
        drive(options.port, request("POST", options.path, asked, options.key), end=b"", seconds=options.seconds)
    )
    print(
        f"{found.done} answers in {found.seconds:.2f} s, p50 {percentile(found.latencies, 0.5) * 1000:.2f} ms, "
        f"p99 {percentile(found.latencies, 0.99) * 1000:.2f} ms, {len(found.failures)} failed",
        *found.failures[:3],
        sep="\n",
    )
