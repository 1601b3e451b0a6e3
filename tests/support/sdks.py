"""The official clients, connected to an in-process gateway: answers as an SDK parses them, in the shape the readers of
`replay` take."""

from __future__ import annotations

import functools
import json
from typing import Any

import anthropic
import httpx2
import openai
from anthropic.types import RawMessageStreamEvent
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter


@functools.cache
def response_events() -> TypeAdapter[Any]:
    """The SDK's type of a responses event, cached: building it takes longer than reading most streams."""
    return TypeAdapter(ResponseStreamEvent)


@functools.cache
def message_events() -> TypeAdapter[Any]:
    """The SDK's type of a messages event."""
    return TypeAdapter(RawMessageStreamEvent)


def client_of(here: Any, protocol: str) -> Any:
    """An SDK client whose requests reach the gateway without a socket."""
    wire = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=here.opened.app))
    if protocol == "messages":
        return anthropic.AsyncAnthropic(
            base_url="http://127.0.0.1:8787", api_key=here.key, max_retries=0, http_client=wire
        )
    return openai.AsyncOpenAI(base_url="http://127.0.0.1:8787/v1", api_key=here.key, max_retries=0, http_client=wire)


def create_of(client: Any, protocol: str) -> Any:
    """The method that sends a request of this protocol."""
    return {
        "chat": lambda: client.chat.completions,
        "responses": lambda: client.responses,
        "messages": lambda: client.messages,
    }[protocol]().create


async def whole(client: Any, protocol: str, body: dict[str, Any]) -> dict[str, Any]:
    """A whole answer as the SDK parsed it. Raises the SDK's error."""
    return json.loads((await create_of(client, protocol)(**split(body))).to_json(indent=None))


async def events(client: Any, protocol: str, body: dict[str, Any]) -> list[tuple[str | None, Any]]:
    """A stream's events as the SDK parsed them; an error raised during the stream is the last. Raises an error that
    comes before the first event."""
    found: list[tuple[str | None, Any]] = []
    stream = await create_of(client, protocol)(**split({**body, "stream": True}))
    try:
        async for event in stream:
            parsed = json.loads(event.to_json(indent=None))
            found.append((None if protocol == "chat" else parsed["type"], parsed))
    except (openai.APIError, anthropic.APIError) as error:
        if not found:
            raise
        details = {"message": getattr(error, "message", str(error)), "type": "api_error"}
        found.append(
            ("error", {"type": "error", "error": details}) if protocol != "chat" else (None, {"error": details})
        )
    else:
        if protocol == "chat":
            found.append((None, "[DONE]"))  # the SDK does not return it
    return found


def split(body: dict[str, Any]) -> dict[str, Any]:
    """A body as keyword arguments: fields that the SDK may not know go into `extra_body`."""
    known = {name: body[name] for name in ("model", "messages", "input", "max_tokens", "stream") if name in body}
    return {**known, "extra_body": {name: value for name, value in body.items() if name not in known}}
