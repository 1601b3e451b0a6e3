"""What is fixed about the published formats: where a request says its token limit and end user, what ends a stream, the
states of an image job, what a header's name is.

The engine knows wire formats, never vendors: everything here is a property of a published format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

GenerationStatus = Literal["starting", "processing", "succeeded", "failed", "canceled"]
"""The states of an image job (SPEC, states and transitions)."""
GENERATION_STATUSES: tuple[GenerationStatus, ...] = get_args(GenerationStatus)
PENDING: tuple[GenerationStatus, ...] = ("starting", "processing")
"""Those that a job can still leave."""
PICTURE_FIELDS = ("url", "data", "context_type", "width", "height")
"""Of a picture in an image job's answer (SPEC, image generation)."""


@dataclass(frozen=True, slots=True)
class WireFormat:
    """What is fixed about a client-facing format: where the caller bounds the answer's length,
    names its end user and puts its turns."""

    limit_fields: tuple[str, ...]
    user_places: tuple[tuple[str | None, str], ...]
    """Where an end user may be named, in the order in which they count: the object of the body that holds the member
    (None: the body itself), and the member."""
    turns_field: str = "messages"
    names_model_once: bool = False
    """Whether a stream says its model in its first event alone."""


_USER = ((None, "user"), (None, "safety_identifier"))
"""The second is the newer name of the first."""
CLIENT_FORMATS = {
    "chat": WireFormat(("max_completion_tokens", "max_tokens"), _USER),
    "responses": WireFormat(("max_output_tokens",), _USER, "input"),
    "messages": WireFormat(("max_tokens",), (("metadata", "user_id"),), names_model_once=True),
    "embeddings": WireFormat((), ((None, "user"),), "input"),
}
"""By the name of the format's mapping file."""

LAST_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
"""The types of the events after which nothing more comes, though the connection may stay open."""

ENDS = {"messages": ("message_stop", b'{"type":"message_stop"}')}
"""By format, the name and the JSON of the event that ends every stream, where that says nothing else: so it can be told
in the upstream's stead."""


def is_last(event_type: object) -> bool:
    """Whether an event of this type ends its stream; an upstream may say anything there."""
    return type(event_type) is str and event_type in LAST_EVENTS


USUAL_FINISHES = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""Why a choice may have ended, by the published chat format. What any other word means, a mapping says."""


def index_of(choice: dict[str, Any]) -> int | str | None:
    """Which choice of an answer this is; None where its `index` says none."""
    index = choice.get("index")
    return index if isinstance(index, int | str) else None


def ends_unusually(body: dict[str, Any]) -> bool:
    """Whether an answer may tell that it failed: a response by its status, a chat answer (or a chunk of one) by a
    choice that ended for a reason which the format does not know."""
    choices = body.get("choices")
    if type(choices) is not list:
        return body.get("status") == "failed"
    for choice in choices:  # a loop, not any(): asked of every answer
        if type(choice) is dict:
            reason = choice.get("finish_reason")
            if reason and type(reason) is str and reason not in USUAL_FINISHES:
                return True
    return False


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: a token of RFC 9110, 5.6.2. No HTTP client sends another."""
