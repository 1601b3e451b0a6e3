"""Try a model from the browser: uses the gateway's own pipeline with a key of the account, so limits, prices and
rows are real."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any, Self

import orjson
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tollgate.catalog import access_of, may_use
from tollgate.completions import complete
from tollgate.dashboard.key_list import key_list
from tollgate.dashboard.visit import Form, Visit
from tollgate.errors import BadRequest, InternalError, NotFound, TollgateError
from tollgate.http import Responder
from tollgate.public_errors import public_message, stream_error_events
from tollgate.request_body import ClientGone
from tollgate.services import CLIENT_LEFT, Inbound, Reply, Services

_MOST_TOKENS = 32_000


async def show(visit: Visit) -> Response:
    """The form."""
    return await _form(visit, Form(model=visit.query["model"][:200]))


async def answer(visit: Visit) -> Response:
    """The whole answer on a page, for browsers without scripts."""
    with _Counted(visit.services) as counted:
        try:
            inbound = await _inbound(visit, stream=False)
            with visit.ledger.occupy(inbound.key) or nullcontext():
                reply = await complete(visit.services, inbound)
            counted.status = reply.status
        except TollgateError as error:
            counted.refused(error)
            return await _form(visit, visit.form, error=error)
    answered = orjson.loads(reply.body)
    headers = {name.decode(): value.decode("latin-1") for name, value in reply.headers}
    message = _message(answered)
    shown = {
        "text": _text(message.get("content")) or _text(message.get("refusal")),
        "reasoning": _text(message.get("reasoning") or message.get("reasoning_content"))
        or _text(message.get("content"), "thinking"),
        "usage": answered.get("usage") or {},
        "headers": headers,
        "id": inbound.request_id,
    }
    return await _form(visit, visit.form, answer=shown)


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    """The first message of a native chat answer; empty if a provider's filter removed all."""
    choice = next(iter(answer.get("choices") or ()), None)
    message = choice.get("message") if isinstance(choice, dict) else None
    return message if isinstance(message, dict) else {}


def _text(content: Any, kind: str = "text") -> str:
    """The text of a message's content, or of its parts of one kind: [{"type": "thinking", "thinking": [{"type":
    "text", "text": "hm"}]}, {"type": "text", "text": "hi"}] -> "hi", or "hm". `static/dashboard.js` does the same."""
    if isinstance(content, str):
        return content if kind == "text" else ""
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(_text(part.get(kind)) for part in parts if part.get("type", "text") == kind)


async def stream(visit: Visit) -> Response:
    """The answer as the chat stream, for the page's script."""
    try:
        return Streamed(visit.services, await _inbound(visit, stream=True))
    except TollgateError as error:
        with _Counted(visit.services) as counted:
            counted.refused(error)
        return JSONResponse({"error": {"message": error.message}}, error.status)


class _Counted:
    """Counts a try in the metrics, like a request to the chat endpoint."""

    def __init__(self, services: Services) -> None:
        self._metrics = services.metrics
        self.status = CLIENT_LEFT

    def refused(self, error: TollgateError) -> None:
        """The try ends with this error."""
        self.status = error.status
        self._metrics.refused[error.code] += 1

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._metrics.running += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.status = InternalError.status
        self._metrics.running -= 1
        self._metrics.count_reply("chat", self.status, time.monotonic() - self._began)


class Streamed(Response):
    """A pipeline's reply as a Starlette response. The pipeline runs inside it, so that closing the browser cancels
    the upstream call."""

    def __init__(self, services: Services, inbound: Inbound) -> None:
        super().__init__()
        self._services = services
        self._inbound = inbound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the pipeline and send what it gives."""
        extra = [
            (name, value)
            for name, value in self.raw_headers
            if name not in (b"content-length", b"content-type", b"cache-control")
        ]
        responder = Responder(receive, send, extra)
        server = self._services.runtime.current.gateway.server
        responder.watch_client(scope)
        with _Counted(self._services) as counted:
            try:
                try:
                    responder.slot = self._services.ledger.occupy(self._inbound.key)
                    reply = await complete(
                        self._services,
                        self._inbound,
                        streaming=lambda: responder.keep_alive(server.keepalive_comment_seconds),
                        status_sent=responder.status_sent,
                    )
                    await responder.send(reply)
                except TollgateError as error:  # also of a stream whose usage row cannot be written
                    counted.refused(error)
                    await responder.send(_failure(error, responder))
                counted.status = responder.status
            except ClientGone:
                pass
            except asyncio.CancelledError:
                if not responder.recovers():
                    raise
            finally:
                responder.close()


def _failure(error: TollgateError, responder: Responder) -> Reply:
    """The error as JSON; if the stream has begun, if only with a keep-alive comment, as its last event."""
    if not responder.started:
        return Reply(error.status, [], orjson.dumps({"error": {"message": public_message(error)}}))
    own = responder.error_events(error) if responder.answer_begun else b""
    return Reply(200, [], own or stream_error_events("chat", error))


async def _inbound(visit: Visit, *, stream: bool) -> Inbound:
    """The chat request of the form. Raises the same errors as the API."""
    form, services = visit.form, visit.services
    key = await visit.chosen_key("chat")
    if key is None:
        raise NotFound("choose one of your active keys")
    visit.require_ready()
    services.ledger.require_credits(key)
    if not form["prompt"].strip():
        raise BadRequest("write something to send", "prompt")
    messages = [{"role": "user", "content": form["prompt"]}]
    if form["system"].strip():
        messages.insert(0, {"role": "system", "content": form["system"]})
    body: dict[str, Any] = {"model": form["model"], "messages": messages, "stream": stream}
    if form["temperature"].strip():
        body["temperature"] = _number(form, "temperature", "temperature", float, 2)
    if form["max_tokens"].strip():
        body["max_tokens"] = _number(form, "max_tokens", "most tokens", int, _MOST_TOKENS)
    return Inbound("chat", key, orjson.dumps(body), {"content-type": "application/json"}, visit.request_id)


def _number(form: Form, name: str, what: str, kind: type, most: int) -> Any:
    text = form[name]
    try:
        value = kind(text.strip())
    except ValueError:
        raise BadRequest(f'{what} is "{text[:20]}", wanted a number', name) from None
    if not 0 <= value <= most:
        raise BadRequest(f"{what} is {text[:20]}, wanted 0 to {most}", name)
    return value


async def _form(
    visit: Visit, form: Form, *, answer: dict[str, Any] | None = None, error: TollgateError | None = None
) -> Response:
    active = await visit.active_keys()
    accesses = {access_of(view.key) for view in active}
    catalog = visit.runtime.catalog
    usable = [
        model.id
        for model in catalog.models.values()
        if model.type == "chat" and any(may_use(access, model) for access in accesses)
    ]
    chosen = catalog.resolve(form["model"])
    return visit.render(
        "try.html",
        status=error.status if error else 200,
        form=form,
        keys=key_list(active, chosen=form["key"]).views,
        models=usable,
        chosen=chosen.id if chosen else "",
        answer=answer,
        error=error,
        problem=public_message(error) if error else "",
    )
