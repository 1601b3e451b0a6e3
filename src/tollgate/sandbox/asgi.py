"""The sandbox over HTTP: plain ASGI around the same callable. If a client leaves, its answer ends and is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from tollgate.sandbox.service import Sandbox

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def asgi(sandbox: Sandbox) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application of a sandbox."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if body is None:
            return
        answering = asyncio.ensure_future(_answer(sandbox, scope, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
            await asyncio.wait((answering,))
        if not answering.cancelled() and (error := answering.exception()) is not None:
            # If the application fails in mid-answer, a server closes the connection without ending the body.
            raise error

    return app


async def _answer(sandbox: Sandbox, scope: Scope, body: bytes, send: Send) -> None:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    status, found, chunks = await sandbox(scope["method"], scope["path"], headers, body)
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    async with aclosing(chunks):
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(receive: Receive) -> bytes | None:
    """The whole request body, or None when the client left before its end."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
