"""Recorded exchanges by the provider file that would have served them, with the usage in their bytes."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import dataclass
from typing import Any

from providers import facts
from replay.traffic import read_sse
from support.places import TRAFFIC

ABSENT = "no recorded traffic at shared/traffic beside the repository"

FILES = {
    "openai": "openai",
    "azure-openai": "azure-openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "vertexai": "vertex",
    "bedrock": "bedrock",
    "bedrock-mantle": "bedrock-mantle",
    "mistral": "mistral",
    "groq": "groq",
    "deepseek": "deepseek",
    "xai": "xai",
    "cohere": "cohere",
    "together": "together",
    "fireworks": "fireworks",
    "openrouter": "openrouter",
    "cerebras": "cerebras",
    "perplexity": "perplexity",
    "alibaba": "dashscope",
    "zai": "zai",
    "huggingface": "huggingface",
    "ollama": "ollama",
    "sambanova": "sambanova",
    "novita": "novita",
    "voyage": "voyage",
}
"""Maps recorded providers to files."""
ENDPOINTS = {
    "openai-chat": ("chat", "chat"),
    "openai-responses": ("responses", "responses"),
    "anthropic-messages": ("messages", "messages"),
    "gemini-generate": ("gemini", "gemini"),
    "bedrock-converse": ("bedrock", "bedrock"),
    "bedrock-invoke": ("messages", "messages"),
    "cohere-chat": ("cohere", "cohere"),
    "ollama-chat": ("ollama", "ollama"),
}
"""Maps recorded protocols to (endpoint, mapping)."""


@dataclass(frozen=True)
class Exchange:
    """An exchange. `events` are (name, data) for a stream, otherwise empty."""

    id: str
    file: str
    endpoint: str
    mapping: str
    model: str | None
    stream: bool
    status: int
    features: frozenset[str]
    request: Any
    headers: dict[str, str]
    body: Any
    events: tuple[tuple[str | None, Any], ...]
    beside: bool
    """Whether the upstream reports reasoning tokens beside the others (xAI)."""

    @property
    def usage(self) -> facts.Buckets | None:
        """The usage in the recorded bytes, or None."""
        reported = _last_usage(self.mapping, self.events) if self.stream else _usage(self.mapping, self.body)
        if not reported:
            return None
        return (
            facts.chat(reported, reasoning_beside=self.beside)
            if self.mapping == "chat"
            else getattr(facts, self.mapping)(reported)
        )

    @property
    def answered(self) -> bool:
        """Whether this is a whole, successful answer."""
        if self.stream or self.status >= 400 or not isinstance(self.body, dict) or self.body.get("error"):
            return False
        return self.mapping != "chat" or bool(self.body.get("choices"))


def _usage(mapping: str, body: Any) -> dict[str, Any] | None:
    if not isinstance(body, dict):
        return None
    if mapping == "gemini":
        return _with_searches(
            body.get("usageMetadata"),
            [
                q
                for c in body.get("candidates") or []
                for q in (c.get("groundingMetadata") or {}).get("webSearchQueries") or []
                if q
            ],
        )
    if mapping == "responses":
        ran = [
            i
            for i in body.get("output") or []
            if i["type"] == "web_search_call" and (i.get("action") or {}).get("type") in (None, "search")
        ]
        return _with_searches(body.get("usage"), ran)
    if mapping == "ollama":
        return body if "eval_count" in body else None
    return body.get("usage") or (body.get("x_groq") or {}).get("usage")


def _with_searches(usage: dict[str, Any] | None, ran: list[Any]) -> dict[str, Any] | None:
    """Adds the number of searches, which is outside the provider's usage."""
    return {**usage, "searches": len(ran)} if usage and ran else usage


def _last_usage(mapping: str, events: tuple[tuple[str | None, Any], ...]) -> dict[str, Any] | None:
    """The usage of a stream: the last value of each member, but for chat the last whole block, as these are never
    split."""
    merged: dict[str, Any] = {}
    for _, event in events:
        if not isinstance(event, dict):
            continue
        if mapping == "responses":
            reported = _usage(mapping, event.get("response"))
        elif mapping == "messages":
            reported = (event.get("message") or {}).get("usage") or event.get("usage")
        elif mapping == "cohere":
            reported = (event.get("delta") or {}).get("usage") if event.get("type") == "message-end" else None
        elif mapping == "chat":
            choices = event.get("choices") or [{}]
            reported = event.get("usage") or (event.get("x_groq") or {}).get("usage") or (choices[0] or {}).get("usage")
        else:
            reported = _usage(mapping, event)
        merged |= {name: value for name, value in (reported or {}).items() if value is not None}
    return merged or None


@functools.cache
def exchanges() -> tuple[Exchange, ...]:
    """Every exchange of a chat-like protocol whose provider has a file here."""
    if not (TRAFFIC / "index.json").is_file():
        return ()
    rows = json.loads((TRAFFIC / "index.json").read_text())["exchanges"]
    return tuple(
        _read(row)
        for row in rows
        if row["provider"] in FILES
        and row["protocol"] in ENDPOINTS
        and not (row["provider"] == "ollama" and row["protocol"] == "openai-chat")
        and not (row["provider"] == "gemini" and row["protocol"] == "openai-chat")
        and not (row["provider"] == "openrouter" and row["protocol"] == "openai-responses")
        and not (row["provider"] == "deepseek" and row["protocol"] == "openai-responses")
        and not (row["protocol"] == "bedrock-invoke" and "anthropic" not in (row["model"] or ""))
    )


def of(file: str) -> list[Exchange]:
    return [exchange for exchange in exchanges() if exchange.file == file]


def _read(row: dict[str, Any]) -> Exchange:
    raw = json.loads((TRAFFIC / row["file"]).read_text())
    answer, endpoint = raw["response"], ENDPOINTS[row["protocol"]]
    body, sse = answer.get("body"), answer.get("sse")
    events: list[tuple[str | None, Any]] = []
    if answer.get("events"):
        for frame in answer["events"]:
            name, payload = (
                frame["headers"].get(":event-type") or frame["headers"].get(":exception-type"),
                frame["payload"],
            )
            if row["protocol"] == "bedrock-invoke" and isinstance(payload, dict) and "bytes" in payload:
                payload = json.loads(base64.b64decode(payload["bytes"]))
            events.append((name, payload))
    elif sse is not None and endpoint[1] == "ollama":
        events = [(None, json.loads(line)) for line in sse.splitlines() if line.strip()]
    elif sse is not None:
        events = list(read_sse(sse))
    elif isinstance(body, list):
        events = [(None, item) for item in body]
    return Exchange(
        raw["id"],
        FILES[row["provider"]],
        *endpoint,
        raw.get("model"),
        bool(events),
        answer["status"],
        frozenset(raw["features"]),
        (raw["request"] or {}).get("body"),
        {name.lower(): value for name, value in answer.get("headers", {}).items()},
        body,
        tuple(events),
        row["provider"] == "xai",
    )
