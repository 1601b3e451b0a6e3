"""The floor to compare with: an HTTP proxy in bare asyncio that forwards bytes, swaps the key and keeps connections.

    python bench/bare.py --upstream PORT [--port 0]      prints its port

It reads a request to its end, sends it on over a kept connection and pipes the answer back, finding its end by
`content-length` or by the last chunk. No checks, no limits, no billing: this is what moving the bytes costs in Python.
"""

from __future__ import annotations

import argparse
import asyncio

from listen import run


class Front(asyncio.Protocol):
    """A client's connection: one request at a time."""

    pool: list[Back] = []  # noqa: RUF012 - one process, one pool
    upstream = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.held = b""
        self.back: Back | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.back:
            self.back.transport.abort()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.held += data
        end = self.held.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.held[:end]
        at = head.lower().find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.held) < end + 4 + size:
            return
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"authorization:")]
        request = (
            b"\r\n".join([*lines, b"authorization: Bearer upstream", b"", b""]) + self.held[end + 4 : end + 4 + size]
        )
        self.held = self.held[end + 4 + size :]
        while self.pool:
            back = self.pool.pop()
            if not back.transport.is_closing():
                back.send(self, request)
                return
        self.connecting = asyncio.ensure_future(self.connect(request))

    async def connect(self, request: bytes) -> None:
        _, back = await asyncio.get_running_loop().create_connection(Back, "127.0.0.1", self.upstream)
        back.send(self, request)


class Back(asyncio.Protocol):
    """A kept connection to the upstream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.front: Front | None = None

    def send(self, front: Front, request: bytes) -> None:
        self.front, front.back = front, self
        self.head, self.left, self.tail = b"", -1, b""
        self.transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        front = self.front
        if front is None:
            self.transport.abort()  # type: ignore[attr-defined]
            return
        front.transport.write(data)  # type: ignore[attr-defined]
        if self.left == -1:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.head[:end].lower().find(b"content-length:")
            self.left = -2 if at < 0 else int(self.head[at + 15 :].split(b"\r\n", 1)[0])
            data = self.head[end + 4 :]
        if self.left == -2:
            self.tail = (self.tail + data)[-7:]
            done = self.tail == b"\r\n0\r\n\r\n"
        else:
            self.left -= len(data)
            done = self.left <= 0
        if done:
            self.front = front.back = None
            Front.pool.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.front:
            self.front.back = None
            self.front.transport.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A bare asyncio proxy.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--upstream", type=int, required=True)
    options = parser.parse_args()
    Front.upstream = options.upstream
    run(Front, options.port)
