"""Recorded exchanges replayed by upstreams of an in-process gateway, split at random places.

One model per wire format (`rec/chat`, `rec/responses`, ...), each served by a provider that only speaks that format.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.traffic import Exchange, index
from support.places import TRAFFIC

SPOKEN = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages", "gemini": None}
CALLED = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

_PRICE = (
    '{prompt: "0.10", completion: "0.40", input_cache_read: "0.01", input_cache_write: "0.12", unit: 1000000, '
    "currency: USD}"
)
_MODEL = f"""
models:
  rec/%s:
    upstream: recorded-model
    context: 1000000
    max_output: 64000
    encoding: o200k_base
    modalities: {{input: [text, image, file, audio, video], output: [text, image, audio]}}
    price: {_PRICE}
"""


def provider_of(protocol: str, *, app: str = "", model: str = "", more: str = "") -> str:
    """The YAML of a provider that speaks one protocol only, with an upstream app and a model named after it."""
    app = app or protocol
    if protocol == "gemini":
        speaks = f"""
speaks:
  gemini:
    url: "app://{app}/models/{{{{ $model.upstream }}}}:generateContent"
    stream_url: "app://{app}/models/{{{{ $model.upstream }}}}:streamGenerateContent?alt=sse"
"""
    else:
        speaks = f"\nspeaks: {{{protocol}: {SPOKEN[protocol]}}}\nurl: app://{app}/v1\n"
    return f"provider: {app}\n{speaks}{more}{_MODEL % (model or protocol)}"


@functools.cache
def headers_of(exchange_id: str) -> dict[str, str]:
    """The recorded headers of an answer."""
    row = next(row for row in index() if row["id"] == exchange_id)
    return json.loads((TRAFFIC / row["file"]).read_text())["response"].get("headers") or {}


@dataclass
class Player:
    """An upstream app that answers with the exchange in `playing`, its stream split at random places; `seen` are the
    requests, `sent` is the last answer."""

    seed: int = 1
    playing: Exchange | None = None
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    sent: bytes = b""

    async def __call__(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        x = self.playing
        assert x is not None
        self.seen.append((path, dict(headers), json.loads(body) if body else None))
        kept = {name: value for name, value in headers_of(x.id).items() if name != "content-type"}
        if x.sse is not None:
            self.sent = x.sse.encode()
            return x.status, {**kept, "content-type": "text/event-stream"}, self._pieces()
        if isinstance(x.body, str):
            self.sent, kind = x.body.encode(), "text/plain"
        # recorded without alt=sse, which the gateway requests
        elif isinstance(x.body, list) and x.protocol == "gemini":
            self.sent, kind = (
                b"".join(b"data: " + json.dumps(item).encode() + b"\r\n\r\n" for item in x.body),
                "text/event-stream",
            )
        else:
            self.sent, kind = json.dumps(x.body, indent=1).encode(), "application/json"
        return x.status, {**kept, "content-type": kind}, self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        rest = self.sent
        if len(rest) < 2:
            yield rest
            return
        rng = random.Random(f"{self.seed} {self.playing.id if self.playing else ''}")
        cuts = sorted(rng.sample(range(1, len(rest)), min(len(rest) - 1, rng.choice((0, 1, 3, 10, 40)))))
        for start, end in zip([0, *cuts], [*cuts, len(rest)], strict=True):
            yield rest[start:end]


HELLO: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hello"}]},
    "responses": {"input": "hello"},
    "messages": {"max_tokens": 1000, "messages": [{"role": "user", "content": "hello"}]},
}


def request_of(x: Exchange, model: str) -> dict[str, Any]:
    """The recorded request, for `model`, or a simple one if only the answer was recorded."""
    body = copy.deepcopy(x.request) if isinstance(x.request, dict) else {}
    if not any(body.get(name) for name in (("input", "prompt") if x.protocol == "responses" else ("messages",))):
        body = copy.deepcopy(HELLO[x.protocol])
    body["model"] = model
    if x.stream:
        body["stream"] = True
    return body
