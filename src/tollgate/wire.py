"""Facts of the published wire formats: the fields for token limit, end user and turns, the events that end a stream,
how an answer says that it failed, the states and pictures of an image job, the syntax of header names, the length that
a head declares. Nothing here is specific to a vendor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

GenerationStatus = Literal["starting", "processing", "succeeded", "failed", "canceled"]
"""The states of an image job (SPEC, states and transitions)."""
GENERATION_STATUSES: tuple[GenerationStatus, ...] = get_args(GenerationStatus)
PENDING: tuple[GenerationStatus, ...] = ("starting", "processing")
"""The states that are not final."""
PICTURE_FIELDS = ("url", "data", "context_type", "width", "height")
"""The fields of a picture in an image job's answer (SPEC, image generation)."""


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The fields of a client-facing format that limit the answer's length, name the end user and hold the turns."""

    limit_fields: tuple[str, ...]
    user_fields: tuple[tuple[str | None, str], ...]
    """Fields for the end user, by priority: the object in the body (None: the body itself) and the field in it."""
    turns_field: str = "messages"
    names_model_once: bool = False
    """Whether only the first event of a stream has the model."""


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
"""The types of the events that end a stream; the upstream may keep the connection open after them."""

END_EVENTS = {"messages": ("message_stop", b'{"type":"message_stop"}')}
"""Name and data of the event that ends every stream of a format, if it is constant: it can be sent in place of the
upstream's."""


def is_last(event_type: object) -> bool:
    """Whether an event of this type ends its stream. The type comes from an upstream and may be any value."""
    return type(event_type) is str and event_type in LAST_EVENTS


FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""The finish reasons of the published chat format. A mapping interprets any other."""


def index_of(choice: dict[str, Any]) -> int | str | None:
    """The `index` of a choice; None if it has no usable one."""
    index = choice.get("index")
    return index if isinstance(index, int | str) else None


def may_have_failed(body: dict[str, Any]) -> bool:
    """Whether an answer may report a failure: a response by its status, a chat answer (or a chunk of one) by a finish
    reason outside the published format."""
    choices = body.get("choices")
    if type(choices) is not list:
        return body.get("status") == "failed"
    for choice in choices:  # a loop is faster than any(), and this runs for every answer
        if type(choice) is dict:
            reason = choice.get("finish_reason")
            if reason and type(reason) is str and reason not in FINISH_REASONS:
                return True
    return False


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: a token (RFC 9110, 5.6.2)."""


def declared_length(headers: Mapping[str, str]) -> int | None:
    """The bytes of a body by its `content-length` (RFC 9110, 8.6), whose first 20 digits decide: more than any limit.
    None without one, and for one that is no number."""
    length = headers.get("content-length", "")
    return int(length[:20]) if length.isascii() and length.isdigit() else None
