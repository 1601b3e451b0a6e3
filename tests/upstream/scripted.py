"""An upstream that sends exactly the bytes a test specifies, when it specifies, and records what it received."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Seen:
    """A received request, and the number of its connection (counted from 1)."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class Peer:
    """The server's side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, data: bytes, cut: int = 0) -> None:
        pieces = [data[i : i + cut] for i in range(0, len(data), cut)] if cut else [data]
        for piece in pieces:
            # uvloop's transport raises RuntimeError where asyncio's drops data until `drain`
            if self.writer.is_closing():
                raise ConnectionResetError("the other side is gone")
            self.writer.write(piece)
            await self.writer.drain()
            if cut:
                await asyncio.sleep(0)

    def hang_up(self) -> None:
        self.writer.transport.abort()

    async def is_closed(self, seconds: float = 2.0) -> bool:
        """Whether the client closes the connection within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


Script = Callable[[Seen, Peer], Awaitable[bool | None]]
"""Answers one request. True means: accept no further request on this connection, and leave it open."""


@dataclass
class Upstream:
    """A running scripted server: its address, the requests it received, and its total and open connections."""

    script: Script
    port: int = 0
    scheme: str = "http"
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    errors: list[BaseException] = field(default_factory=list)
    read_bodies: bool = True

    def url(self, path: str = "/v1/x") -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        peer = Peer(reader, writer, self.connections)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *rest = head.rstrip("\r\n").split("\r\n")
                headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in rest)}
                body = await reader.readexactly(int(headers.get("content-length", 0))) if self.read_bodies else b""
                seen = Seen(line, headers, body, peer.number)
                self.seen.append(seen)
                if await self.script(seen, peer):
                    await reader.read(-1)
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # raised by the test that owns the server
            self.errors.append(error)
        finally:
            self.open -= 1
            writer.transport.abort()


@asynccontextmanager
async def upstream(script: Script | bytes, *, tls: ssl.SSLContext | None = None, read_bodies: bool = True):
    """Runs a server. `script` is a function, or the bytes of one response that is sent to every request."""
    if isinstance(script, bytes):
        answer = script

        async def script(seen: Seen, peer: Peer) -> None:
            await peer.send(answer)

    server = Upstream(script, scheme="https" if tls else "http", read_bodies=read_bodies)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in asyncio.all_tasks():
            if task.get_coro().__qualname__ == "Upstream.serve":  # type: ignore[union-attr]
                task.cancel()
        await asyncio.sleep(0)
        assert not server.errors, server.errors


def ok(body: bytes = b"{}", *headers: str) -> bytes:
    """A 200 response with content-length."""
    lines = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def chunked(*parts: bytes, end: bool = True) -> bytes:
    """The body of a chunked response."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + (b"0\r\n\r\n" if end else b"")


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
