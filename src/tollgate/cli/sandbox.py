"""`tollgate sandbox`: the sandbox provider as a server of its own, for tests of a gateway or a client library."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any

import click

from tollgate.cli.address import network_address
from tollgate.cli.books import fail
from tollgate.engines import Stopped
from tollgate.engines.sockets import bound_socket


@click.command(help="Run the sandbox provider as a server of its own.")
@click.option(
    "--bind",
    default="127.0.0.1:9797",
    show_default=True,
    callback=network_address,
    help="Address to listen on, as host:port; port 0 picks a free one.",
)
@click.option("--key", help="The only API key to accept; default: any, or none.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "hypercorn", "uvicorn"]),
    default="auto",
    show_default=True,
    help="HTTP server to use; auto takes uvicorn when it is installed.",
)
def command(bind: str, key: str | None, engine: str) -> None:
    import uvloop

    from tollgate.sandbox import Sandbox, asgi

    if engine == "auto":
        engine = "uvicorn" if find_spec("uvicorn") else "hypercorn"
    try:
        listening = _listen(bind)
    except OSError as error:
        fail(f"the sandbox could not listen on {bind}: {error.strerror or error}")
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"The sandbox provider is listening on http://{shown}:{port}/v1")
    sys.stdout.flush()
    serve = _uvicorn if engine == "uvicorn" else _hypercorn
    uvloop.run(_until_stopped(serve, asgi(Sandbox(key=key)), listening))


def _listen(bind: str) -> socket.socket:
    found = bound_socket(f"127.0.0.1{bind}" if bind.startswith(":") else bind)
    found.listen(1024)
    return found


async def _until_stopped(
    serve: Callable[[Any, socket.socket, Stopped], Awaitable[None]], app: Any, listening: socket.socket
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def stopped() -> None:
        await stop.wait()

    await serve(app, listening, stopped)


async def _hypercorn(app: Any, listening: socket.socket, stopped: Stopped) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.accesslog = None
    config.errorlog = None  # connections are dropped on request, which is no error
    config.graceful_timeout = 0.5
    config.keep_alive_timeout = 75
    await serve(app, config, shutdown_trigger=stopped)


async def _uvicorn(app: Any, listening: socket.socket, stopped: Stopped) -> None:
    import uvicorn

    from tollgate.engines.uvicorn import serve_until

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    await serve_until(stopped, config, [listening])
