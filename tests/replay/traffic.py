"""The recordings: which there are, and how to read one. Nothing here knows the mappings.

Without their folder (`support.places.TRAFFIC`) every replay test is skipped.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from support.places import TRAFFIC

ABSENT = f"no recorded traffic at {TRAFFIC.parent.name}/{TRAFFIC.name} beside the repository"

PROTOCOLS = {
    "openai-chat": "chat",
    "openai-responses": "responses",
    "anthropic-messages": "messages",
    "gemini-generate": "gemini",
}
"""Recorded protocol -> mapping name."""


@dataclass(frozen=True)
class Exchange:
    """One recorded exchange: request and answer, with the tags of the index."""

    id: str
    protocol: str
    provider: str
    stream: bool
    status: int
    features: frozenset[str]
    request: Any
    body: Any
    sse: str | None
    framing: str | None

    @property
    def events(self) -> list[tuple[str | None, Any]]:
        """The events of a streamed answer as (name, parsed data); `[DONE]` stays a string."""
        if self.sse is not None:
            return list(read_sse(self.sse))
        if isinstance(self.body, list):
            return [(None, item) for item in self.body]
        return []


def read_sse(text: str) -> list[tuple[str | None, Any]]:
    """A plain reader of event-stream text, independent of the product's own."""
    found: list[tuple[str | None, Any]] = []
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        name: str | None = None
        data: list[str] = []
        for line in block.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        if data:
            joined = "\n".join(data)
            try:
                found.append((name, json.loads(joined)))
            except ValueError:
                found.append((name, joined.strip()))
    return found


@functools.cache
def index() -> list[dict[str, Any]]:
    """The lines of the index for the four protocols of conversational models."""
    rows = json.loads((TRAFFIC / "index.json").read_text())["exchanges"]
    return [row for row in rows if row["protocol"] in PROTOCOLS]


@functools.cache
def exchange(exchange_id: str) -> Exchange:
    """One exchange by id."""
    row = next(row for row in index() if row["id"] == exchange_id)
    raw = json.loads((TRAFFIC / row["file"]).read_text())
    answer = raw["response"]
    return Exchange(
        id=raw["id"],
        protocol=PROTOCOLS[raw["protocol"]],
        provider=raw["provider"],
        stream=bool(raw["stream"]),
        status=answer["status"],
        features=frozenset(raw["features"]),
        request=(raw["request"] or {}).get("body"),
        body=answer.get("body"),
        sse=answer.get("sse"),
        framing=answer.get("framing"),
    )


def present() -> bool:
    """Whether the recordings are there."""
    return (TRAFFIC / "index.json").is_file()


def ids(protocol: str) -> list[str]:
    """The exchanges of one mapping's protocol."""
    return [row["id"] for row in index() if PROTOCOLS[row["protocol"]] == protocol]


def pairs() -> dict[str, dict[str, str]]:
    """The same conversation recorded natively in several formats: case -> recorded protocol -> exchange id."""
    return json.loads((TRAFFIC / "pairs.json").read_text())["cases"]
