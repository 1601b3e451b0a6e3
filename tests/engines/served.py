"""A real engine on a loopback port."""

from __future__ import annotations

import asyncio
from typing import Any

from tollgate.config.settings import Server
from tollgate.engines import engine_of


class Served:
    """An application behind an engine, with one client connection to it."""

    def __init__(self, application: Any, name: str, drain_seconds: float = 1) -> None:
        self.stop = asyncio.Event()
        self.engine = engine_of(Server(engine=name, bind=("127.0.0.1:0",), drain_seconds=drain_seconds))
        [address] = self.engine.bind()
        self.port = int(address.removeprefix("127.0.0.1:"))  # the port that was bound
        self.task = asyncio.create_task(self.engine.serve(application, self.stop.wait, lambda: None))

    async def connect(self) -> None:
        async with asyncio.timeout(30):
            while True:
                try:
                    self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                    return
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)

    async def get(self, path: str = "/") -> bytes:
        self.writer.write(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode())
        await self.reader.readuntil(b"\r\n\r\n")
        return await self.reader.readexactly(2)

    async def closed_after(self) -> float:
        """Seconds until the engine closes the connection; fails if it does not."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):  # a busy machine is slow
            assert await self.reader.read() == b""
        return loop.time() - began
