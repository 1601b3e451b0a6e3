"""What the bench's own servers share: one asyncio protocol on one loopback port until told to end."""

from __future__ import annotations

import asyncio
import signal

import uvloop


def run(protocol: type[asyncio.Protocol], port: int) -> None:
    """Serve `protocol` until SIGTERM or SIGINT; prints the port, which the system chooses for 0."""
    uvloop.run(_serve(protocol, port))


async def _serve(protocol: type[asyncio.Protocol], port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()
