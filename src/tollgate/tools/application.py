"""The HTTP layer of the tool server.

It checks host and origin, key and credits before any JSON-RPC (SPEC authentication 6), limits the body, and chooses
between a JSON answer (the default, which every client reads) and events (for a call that asks for progress). The
protocol itself is the official SDK's, in `protocol.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.auth import authenticate, permit
from tollgate.errors import BadRequest, InternalError, MethodNotAllowed, ShuttingDown, TollgateError, Unavailable
from tollgate.http import SSE_HEADERS, Receive, Scope, Send, headers_of
from tollgate.json_bounds import MAX_SMALL_BODY_VALUES, too_many
from tollgate.process.concurrency import shielded
from tollgate.replies import error_reply
from tollgate.request_body import ClientGone, read_body, require_json, unpacked
from tollgate.services import CLIENT_LEFT, Reply, Services, new_request_id
from tollgate.tools.calls import CALLER, NAME, VERSION, Caller
from tollgate.tools.guard import allowed_hosts, require_own

if TYPE_CHECKING:
    from tollgate.config.settings import Server
    from tollgate.ledger import KeyRecord, Slot

log = logging.getLogger("tollgate.tools")

_LISTEN_SECONDS = 600
"""The server is stateless, so a GET stream stays silent; it ends after this time so that none stays open for ever."""


class ToolsApp:
    """The tool server as an ASGI application. The SDK is imported at the first request; its transports end with the
    gateway's background tasks."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._managers: asyncio.Future[tuple[Any, Any]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        answer = _Answer(send, new_request_id())
        began = asyncio.get_running_loop().time()
        metrics = self.services.metrics
        metrics.running += 1
        try:
            await self._serve(scope, receive, answer)
        except ClientGone:
            pass
        except Exception:
            log.exception("request %s failed: %s %r", answer.request_id, scope["method"], scope["path"])
            if not answer.status:
                await answer.reply(error_reply("tools", InternalError(), answer.request_id))
        finally:
            answer.end()
            metrics.running -= 1
            metrics.count_reply("mcp", answer.status or CLIENT_LEFT, asyncio.get_running_loop().time() - began)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Check a request and handle it, or answer with the error."""
        headers = headers_of(scope)
        place = self.services.room.place()
        try:
            require_own(headers, allowed_hosts(self._server), self._server.cors_origins)
            key = self._admit(scope, headers)
            if scope["method"] == "GET":
                return await self._listen(headers, receive, answer)
            if scope["method"] != "POST":
                raise MethodNotAllowed("GET, POST")
            require_json(headers)
            limit = self._server.max_small_body_bytes
            packed = await read_body(receive, headers, limit, place)
            body = await unpacked(packed, headers, limit, place)
            if not self.services.ledger.is_current(key):  # a key that was revoked while the body came is refused
                key = self._admit(scope, headers)
            return await self._post(scope, headers, Caller(key, answer.request_id), body, receive, answer)
        except TollgateError as error:
            self.services.metrics.refused[error.code] += 1
            most_wait = self.services.runtime.current.gateway.retry.max_retry_after_seconds
            reply = error_reply("tools", error, answer.request_id, most_wait=most_wait)
        finally:
            place.leave()
        await answer.reply(reply)

    @property
    def _server(self) -> Server:
        return self.services.runtime.current.gateway.server

    def _admit(self, scope: Scope, headers: Mapping[str, str]) -> KeyRecord:
        """Check key, credits and readiness. Raises errors that are answered on the HTTP layer."""
        services = self.services
        key = authenticate(services.ledger, headers)
        if key.restricted:
            permit(key, "mcp", scope, self._server.trusted_proxies)
        if services.draining:
            raise ShuttingDown()
        services.ledger.require_ready()
        services.ledger.require_balance(key.account_id)  # holds do not count here; the tool that spends asks for a hold
        return key

    async def _post(
        self, scope: Scope, headers: Mapping[str, str], caller: Caller, body: bytes, receive: Receive, answer: _Answer
    ) -> None:
        """Pass a message to the protocol layer, which parses the body again."""
        message = _message(body, min(MAX_SMALL_BODY_VALUES, self._server.max_values))
        if message.get("method") == "tools/call":
            answer.slot = self.services.ledger.occupy(caller.key)
            await self.services.ledger.admit(caller.key)  # HTTP 429, before any JSON-RPC (CLIENTS 3b)
            caller = replace(caller, counted=True)
        as_json, as_events = await self._ready()
        manager = as_events if _requests_progress(message, headers) else as_json
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda _: answer.end())  # the call goes on, but nobody waits for it: free its slot
        replayed = False

        async def replay() -> Any:
            nonlocal replayed
            if replayed:
                await asyncio.shield(gone)
                return {"type": "http.disconnect"}
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await manager.handle_request(
                {**scope, "headers": _as_sdk_wants(scope["headers"]), CALLER: caller}, replay, answer
            )
        finally:
            gone.cancel()

    async def _listen(self, headers: Mapping[str, str], receive: Receive, answer: _Answer) -> None:
        """GET: facts about this server, or for a client that wants to listen, a stream that stays open and silent."""
        if "text/event-stream" not in headers.get("accept", ""):
            facts = {"name": NAME, "version": VERSION, "transport": "streamable-http", "stateless": True}
            return await answer.reply(Reply(200, [], orjson.dumps(facts)))
        await answer({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            now = asyncio.get_running_loop().time
            due, ends = now(), now() + _LISTEN_SECONDS
            while now() < ends:
                if now() >= due:
                    await answer({"type": "http.response.body", "body": b": listening\n\n", "more_body": True})
                    due = now() + self._server.keepalive_comment_seconds
                done, _pending = await asyncio.wait({gone}, timeout=min(1.0, max(0.0, due - now())))
                if done or self.services.draining:
                    break
            if not gone.done():
                await answer({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    async def _ready(self) -> tuple[Any, Any]:
        """The two transports, running. The first request waits until the SDK is imported, off the event loop."""
        if self._managers is None:
            self._managers = asyncio.get_running_loop().create_future()
            self.services.tasks.spawn(self._host(self._managers))
        return await shielded(self._managers)

    async def _host(self, made: asyncio.Future[tuple[Any, Any]]) -> None:
        """Run the transports. Their task groups must be entered and left by the same task, this one."""
        try:
            protocol = await asyncio.to_thread(importlib.import_module, "tollgate.tools.protocol")
            as_json, as_events = protocol.make_managers(self.services)
            async with as_json.run(), as_events.run():
                made.set_result((as_json, as_events))
                await asyncio.Event().wait()
        finally:
            self._managers = None
            if not made.done():
                made.set_exception(Unavailable("the tool server did not start"))


class _Answer:
    """Sends an answer, with the request's id in its headers. `status` is 0 until the answer has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.status = 0
        self.slot: Slot | None = None
        """The call's place among those that its key may run at once."""
        self._send = send

    async def __call__(self, message: Any) -> None:
        """Send one ASGI message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            tag = self.request_id.encode()
            headers = [*message.get("headers", ()), (b"x-request-id", tag), (b"request-id", tag)]
            if self.status >= 400 and not any(name == b"x-tollgate-error" for name, _ in headers):
                error = InternalError if self.status >= 500 else BadRequest  # of the SDK, which answers in JSON-RPC
                headers.append((b"x-tollgate-error", error.code.encode()))
            message = {**message, "headers": headers}
        elif not message.get("more_body", False):
            self.end()  # before the client has the end, and can send its next request
        await self._send(message)

    def end(self) -> None:
        """The call is over: free its slot. A second time does nothing."""
        if self.slot is not None:
            self.slot.leave()

    async def reply(self, reply: Reply) -> None:
        """Send a whole answer."""
        length = str(len(reply.body)).encode()
        headers = [(b"content-type", reply.media_type), (b"content-length", length), *reply.headers]
        await self({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self({"type": "http.response.body", "body": reply.body})


def _message(body: bytes, most_values: int) -> dict[str, Any]:
    """The JSON-RPC message in a body. Empty when there is none or it is a batch: the protocol layer answers that.
    Raises `BadRequest` for one that takes too long to parse."""
    if too_many(body, most_values):
        raise BadRequest(f"the message holds more than {most_values} values")
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return message if isinstance(message, dict) else {}


def _requests_progress(message: dict[str, Any], headers: Mapping[str, str]) -> bool:
    """Whether this is a tool call with a progress token, from a client that accepts events. Only then the answer is an
    event stream."""
    if message.get("method") != "tools/call" or "text/event-stream" not in headers.get("accept", ""):
        return False
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and meta.get("progressToken") is not None


def _as_sdk_wants(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a message that is JSON, as the SDK requires them: with an Accept header if there is none, which
    means anything (RFC 9110), and the plain name of the content type."""
    names = {name.lower() for name, _ in headers}
    accept = [] if b"accept" in names else [(b"accept", b"application/json, text/event-stream")]
    others = [header for header in headers if header[0].lower() != b"content-type"]
    return [*others, *accept, (b"content-type", b"application/json")]


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
