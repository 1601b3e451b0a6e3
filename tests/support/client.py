"""A small raw HTTP/1.1 client: one socket, bytes out, bytes in; it can leave at any time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from typing import Any, Self
from urllib.parse import urlsplit


class CutOff(Exception):
    """The server closed the connection in the middle of a body."""


class Raw:
    """One connection to `base`. It is not reused after an abandoned request."""

    def __init__(self, base: str, key: str) -> None:
        self._at = urlsplit(base)
        self._key = key
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self._at.hostname, self._at.port, limit=1 << 24)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def send(self, path: str, body: Any) -> None:
        """Sends a request."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._at.netloc}\r\nauthorization: Bearer {self._key}\r\ncontent-type: "
            f"application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the response."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        return int(lines[0].split()[1]), {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:]) if name
        }

    async def body(self, headers: dict[str, str]) -> bytes:
        """The whole body."""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        found = []
        while size := self._size(await self.reader.readline()):
            found.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readline()
        return b"".join(found)

    def _size(self, line: bytes) -> int:
        if not line.endswith(b"\r\n"):
            raise CutOff
        return int(line, 16)

    async def ask(self, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
        """Sends a request and reads its whole response; the connection stays open."""
        await self.send(path, body)
        status, headers = await self.head()
        return status, headers, await self.body(headers)

    def reset(self) -> None:
        """Closes the connection with a reset (RST)."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
