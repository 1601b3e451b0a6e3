"""A raw upstream on a loopback socket that can send what no HTTP library would."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

Behaviour = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What the server does after it has read a request, head and body."""


@contextlib.asynccontextmanager
async def wire(behaviour: Behaviour) -> AsyncIterator[str]:
    """A server that reads one request per connection and then runs `behaviour`; gives its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            await behaviour(await reader.readexactly(length), reader, writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def head(*, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}".encode()


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> Behaviour:
    """A complete, valid response with this body."""

    async def behave(request, reader, writer):
        writer.write(head(status=status, kind=kind, more=f"content-length: {len(body)}\r\n") + b"\r\n" + body)

    return behave


def raw(*blocks: bytes, then: str = "close") -> Behaviour:
    """Writes these bytes; then `close`, `reset`, or `stall` until the gateway disconnects."""

    async def behave(request, reader, writer):
        for block in blocks:
            writer.write(block)
            await writer.drain()
            await asyncio.sleep(0.005 if len(block) > 20 else 0)
        if then == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "stall":
            await reader.read()

    return behave


def stream_of(*blocks: bytes, then: str = "end") -> Behaviour:
    """An event stream in chunked encoding; `end` completes it, the others are as in `raw`."""
    opening = head(kind="text/event-stream", more="transfer-encoding: chunked\r\n") + b"\r\n"
    last = (b"0\r\n\r\n",) if then == "end" else ()
    return raw(opening, *(chunked(block) for block in blocks), *last, then="close" if then == "end" else then)


@contextlib.contextmanager
def full_backlog():
    """An address that neither accepts nor rejects connections: a connect hangs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(4):
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(listener.getsockname())
        waiting.append(sock)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for sock in (*waiting, listener):
            sock.close()
