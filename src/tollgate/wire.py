"""The wire formats by name, and where each says its model, stream switch, token limit and end user; what a header's name is.

The engine knows wire formats, never vendors: everything here is a property of a published format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Protocol = str
"""A protocol is named by its mapping file: chat, responses, messages, gemini, embeddings, ..."""

GenerationStatus = Literal["starting", "processing", "succeeded", "failed", "canceled"]
"""The states of an image job (SPEC, states and transitions)."""
GENERATION_STATUSES: tuple[GenerationStatus, ...] = get_args(GenerationStatus)
PENDING: tuple[GenerationStatus, ...] = ("starting", "processing")
"""Those that a job can still leave."""

ClientProtocol = Literal["chat", "responses", "messages", "embeddings", "images"]


@dataclass(frozen=True, slots=True)
class WireFormat:
    """What is fixed about a client-facing format. `limit_fields`: where the caller bounds the answer's length."""

    name: ClientProtocol
    limit_fields: tuple[str, ...]
    user_path: tuple[str, ...]
    done: bytes | None
    """The terminating event of a stream beyond the mapping's own events, or None."""


CHAT = WireFormat("chat", ("max_completion_tokens", "max_tokens"), ("user",), b"data: [DONE]\n\n")
RESPONSES = WireFormat("responses", ("max_output_tokens",), ("user",), None)
MESSAGES = WireFormat("messages", ("max_tokens",), ("metadata", "user_id"), None)
EMBEDDINGS = WireFormat("embeddings", (), ("user",), None)

LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
"""The types of the events after which nothing more comes, though the connection may stay open."""


def is_last(event_type: object) -> bool:
    """Whether an event of this type ends its stream; an upstream may say anything there."""
    return type(event_type) is str and event_type in LAST_EVENTS


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: a token of RFC 9110, 5.6.2. No HTTP client sends another."""


CLIENT_FORMATS: dict[str, WireFormat] = {f.name: f for f in (CHAT, RESPONSES, MESSAGES, EMBEDDINGS)}
