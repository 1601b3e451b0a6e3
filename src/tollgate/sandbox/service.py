"""The sandbox as one asynchronous callable: routes, reads, answers, plays. Both the in-process form and HTTP use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from secrets import token_hex

import orjson

from tollgate.remembered.bounded import BoundedMemory
from tollgate.sandbox import chat_request, embeddings, images, messages_request, responses_request
from tollgate.sandbox.answer import answer, choices
from tollgate.sandbox.caching import PromptCache
from tollgate.sandbox.chat_answer import ChatWriter
from tollgate.sandbox.controls import Controls, Failure, read_controls
from tollgate.sandbox.faults import Fault
from tollgate.sandbox.messages_answer import MessagesWriter
from tollgate.sandbox.playing import Body, Stats, play_stream, play_whole
from tollgate.sandbox.prompt import Prompt
from tollgate.sandbox.responses_answer import ResponsesWriter
from tollgate.sandbox.writing import Writer

Reply = tuple[int, dict[str, str], Body | AsyncGenerator[bytes]]
"""Status, headers with lower-case names, body."""

Played = tuple[int, str, Callable[[Callable[[], None]], AsyncGenerator[bytes]]]
"""Status, content type, and the function that makes the body."""

MODELS = ("draw", "echo", "echo-mini", "embed", "paint", "reasoner")
"""The listed models. Any other name is answered like `echo`, except names that begin with `missing`."""

_HTML = b"<!doctype html>\n<html><head><title>Sandbox</title></head><body><h1>This is a web page</h1></body></html>\n"
_MOST_MARKED = 9 * 8192
"""Characters of an embedding input or an image prompt in which markers are looked for: a longer input is refused. Each
pair of brackets takes a microsecond, and a body may have 16 million."""
_REMEMBERED = 2000
_MOST_STORED = 16 * 1024 * 1024
"""Bytes of all conversations: inside a gateway this is the gateway's memory."""


class Sandbox:
    """A model provider that echoes. `key`: the only key it accepts, if set. Keeps conversations, prompts and image
    jobs in limited memory; instances share nothing."""

    def __init__(self, *, key: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stats = Stats()
        self._key = key
        self._cache = PromptCache()
        self._jobs = images.Jobs(clock)
        self._stored: BoundedMemory[str, bytes] = BoundedMemory(_MOST_STORED)
        """Conversations, as JSON, by the id of their last response."""
        self._failed: BoundedMemory[tuple[int, int], int] = BoundedMemory(_REMEMBERED)
        self._texts: dict[str, Callable[[dict[str, object], Mapping[str, str]], tuple[Prompt, Writer]]] = {
            "/chat/completions": self._chat,
            "/responses": self._responses,
            "/messages": self._messages,
        }

    async def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer one request; `headers` have lower-case names. A bad request gives an answer and never raises.

        Raises `ConnectionResetError` (here or from the body) where a network would have dropped the connection.
        """
        route = path.partition("?")[0]
        route = route.removeprefix("/v1") or "/"
        if route == "/_sandbox/stats":
            return 200, {"content-type": "application/json"}, _bytes(orjson.dumps(asdict(self.stats)))
        self.stats.requests += 1
        request_id = f"req_{token_hex(12)}"
        base = {"content-type": "application/json", "x-request-id": request_id, "request-id": request_id}
        dialect = "messages" if route.startswith("/messages") else "chat"
        try:
            self._authorise(method, route, headers)
            status, kind, make = await self._answer(method, route, headers, body)
        except (Fault, RecursionError, orjson.JSONEncodeError) as raised:
            too_deep = Fault(400, "The JSON body of your request is nested too deeply.")
            fault = raised if isinstance(raised, Fault) else too_deep
            fault.with_traceback(None)  # which has this frame, and the request in it: they would keep each other
            make = partial(play_whole, fault.body(dialect, request_id), Controls())
            return fault.status, {**base, **fault.headers}, Body(make, self.stats)
        return status, {**base, "content-type": kind}, Body(make, self.stats)

    async def _answer(self, method: str, route: str, headers: Mapping[str, str], raw: bytes) -> Played:
        """Status, content type and the maker of the body."""
        if method == "GET":
            return self._get(route, headers)
        if method != "POST":
            raise Fault(405, f"Method {method} is not allowed here.", code="method_not_allowed")
        body = _parsed(raw)
        if str(body.get("model", "")).startswith("missing"):
            raise Fault(
                404,
                f"The model `{body['model']}` does not exist or you do not have access to it.",
                code="model_not_found",
            )
        if route in self._texts:
            return await self._text(route, body, headers)
        text = _plain_text(route, body)
        controls, _ = read_controls(text, headers, str(body.get("model", "")))
        await self._before(controls, text)
        if route == "/messages/count_tokens":
            found: object = {"input_tokens": messages_request.read(body, headers, counting_only=True).tokens}
        elif route == "/embeddings":
            # In a thread: two thousand vectors take most of a second, and in-process the loop is the gateway's.
            found = await asyncio.to_thread(
                embeddings.embed, body, _model(body), usage=controls.prompt_tokens, silent=controls.no_usage
            )
        elif route == "/images":
            found = self._jobs.show(self._jobs.submit(body, headers), _address(headers))
        elif route == "/images/generations":
            found = images.generate(body, headers)
        else:
            raise Fault(404, f"Unknown request URL: POST {route}.", code="unknown_url")
        return self._whole(orjson.dumps(found), controls, "chat")

    async def _text(self, route: str, body: dict[str, object], headers: Mapping[str, str]) -> Played:
        dialect = route[1:]
        prompt, writer = self._texts[route](body, headers)
        controls = prompt.controls
        await self._before(controls, prompt.text)
        if not prompt.stream:
            return self._whole(orjson.dumps(writer.whole()), controls, dialect)
        if controls.html:
            return self._whole(b"", controls, dialect)
        failing = iter(writer.failure())
        events = failing if controls.error_in_200 else writer.events()
        return 200, "text/event-stream; charset=utf-8", partial(play_stream, events, failing, controls)

    def _whole(self, data: bytes, controls: Controls, dialect: str) -> Played:
        if controls.html:
            return controls.html, "text/html; charset=utf-8", partial(play_whole, _HTML, controls)
        if controls.error_in_200:
            data = Fault(500).body(dialect, f"req_{token_hex(12)}")
        return 200, "application/json", partial(play_whole, data, controls)

    def _chat(self, body: dict[str, object], headers: Mapping[str, str]) -> tuple[Prompt, Writer]:
        prompt = chat_request.read(body, headers)
        cached = self._cache.meet(prompt.model, prompt.segments)
        return prompt, ChatWriter(prompt, choices(prompt, cached), body)

    def _messages(self, body: dict[str, object], headers: Mapping[str, str]) -> tuple[Prompt, Writer]:
        prompt = messages_request.read(body, headers)
        cached = self._cache.meet(prompt.model, prompt.segments)
        return prompt, MessagesWriter(prompt, answer(prompt, cached), body)

    def _responses(self, body: dict[str, object], headers: Mapping[str, str]) -> tuple[Prompt, Writer]:
        previous = body.get("previous_response_id")
        earlier: list[Mapping[str, object]] = []
        if previous is not None:
            kept = self._stored.find(previous) if isinstance(previous, str) else None
            if kept is None:
                raise Fault(
                    400,
                    f"Previous response with id '{previous}' not found.",
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            earlier = orjson.loads(kept)
        prompt = responses_request.read(body, headers, earlier)
        writer = ResponsesWriter(prompt, answer(prompt, self._cache.meet(prompt.model, prompt.segments)), body)
        if body.get("store") is not False:
            items = [*earlier, *responses_request.items_of(body), *writer.items]
            data = bytes(memoryview(orjson.dumps(items)))  # a copy: orjson's own takes up to 32 KB, however short
            self._stored.keep(writer.id, data, max(len(data), _MOST_STORED // _REMEMBERED))
        return prompt, writer

    def _get(self, route: str, headers: Mapping[str, str]) -> Played:
        parts = route.strip("/").split("/")
        if route == "/models":
            listed = [{"id": m, "object": "model", "created": 1767225600, "owned_by": "sandbox"} for m in MODELS]
            return self._whole(orjson.dumps({"object": "list", "data": listed}), Controls(), "chat")
        if parts[0] == "images" and len(parts) == 2:
            shown = self._jobs.show(self._jobs.get(parts[1]), _address(headers))
            return self._whole(orjson.dumps(shown), Controls(), "chat")
        if parts[0] == "images" and len(parts) == 3 and parts[2].removesuffix(".png").isdecimal():
            pictures = self._jobs.get(parts[1]).pictures
            number = int(parts[2].removesuffix(".png"))
            if number < len(pictures):
                return 200, "image/png", partial(play_whole, pictures[number], Controls())
        raise Fault(404, f"Unknown request URL: GET {route}.", code="unknown_url")

    async def _before(self, controls: Controls, text: str) -> None:
        """What happens before the status line: waiting, failing."""
        if controls.delay:
            self.stats.running += 1
            try:
                await asyncio.sleep(controls.delay)
            except asyncio.CancelledError:
                self.stats.aborted += 1
                raise
            finally:
                self.stats.running -= 1
        if controls.error and self._still_fails(controls.error, text):
            failure = controls.error
            raise Fault(
                failure.status,
                failure.message or "",
                code=failure.code,
                kind=failure.kind,
                headers={"retry-after": failure.retry_after} if failure.retry_after else {},
            )

    def _still_fails(self, failure: Failure, text: str) -> bool:
        """Whether an error with `times=N` still applies to this text."""
        if failure.times is None:
            return True
        key = failure.status, hash(text)
        seen = self._failed.find(key) or 0
        if seen >= failure.times:
            return False
        self._failed.keep(key, seen + 1, 1)
        return True

    def _authorise(self, method: str, route: str, headers: Mapping[str, str]) -> None:
        if self._key is None or method == "GET" and route.startswith("/images/") and route.endswith(".png"):
            return  # a picture is downloaded by the gateway's client, who has no key of the provider
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if given != self._key:
            raise Fault(401, "Incorrect API key provided.")


def _parsed(raw: bytes) -> dict[str, object]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Fault(400, f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(body, dict):
        raise Fault(400, "The JSON body of your request must be an object.")
    return body


def _model(body: Mapping[str, object]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Fault(400, "you must provide a model parameter", param="model")
    return model


def _plain_text(route: str, body: Mapping[str, object]) -> str:
    """The text that may have markers, in requests that are not conversations."""
    given = body.get("input")
    if route == "/embeddings":
        text = given[0] if isinstance(given, list) and given else given
    else:
        text = given.get("prompt") if isinstance(given, Mapping) else body.get("prompt")
    return text if isinstance(text, str) and len(text) <= _MOST_MARKED else ""


def _address(headers: Mapping[str, str]) -> str | None:
    host = headers.get("host")
    return f"{headers.get('x-forwarded-proto', 'http')}://{host}/v1" if host else None


async def _bytes(data: bytes) -> AsyncGenerator[bytes]:
    yield data
