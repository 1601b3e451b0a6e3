"""The part of an error that a caller may see, and the events that report it in a stream.

`replies.py` formats whole replies. Error events are here because the pipelines send them.
"""

from __future__ import annotations

import time
from typing import Any

import orjson

from tollgate.errors import (
    AnswerLost,
    RateLimited,
    ShuttingDown,
    TollgateError,
    Unavailable,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)

UNAVAILABLE = "Service temporarily unavailable"
"""The message when the gateway cannot take requests (SPEC, errors of all endpoints)."""
_TOO_LONG = "context_length_exceeded"
"""The code for a prompt that is too long, in formats that have codes."""
_TOO_LONG_MESSAGE = "prompt is too long"
_REPEAT = "Please try again later."
"""Ends the message of each failure of a provider."""

_MESSAGES_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""The messages format's error types for errors of the caller, by status."""


def stream_error_events(
    dialect: str, error: TollgateError, *, sequence: int = 0, response: dict[str, Any] | None = None
) -> bytes:
    """The error event(s) of `dialect`, which end a stream that has begun. In a chat stream no `[DONE]` follows.

    `sequence` is the next `sequence_number` and `response` the response object so far, for the responses dialect.
    """
    message = public_message(error)
    if dialect == "messages":
        return _event("error", {"type": "error", "error": {"type": messages_error_type(error), "message": message}})
    if dialect == "responses":
        code = "rate_limit_exceeded" if isinstance(error, RateLimited) else "server_error"
        if isinstance(error, UpstreamRejected):
            code = error.upstream_code or error.kind or "invalid_prompt"
        out = _event(
            "error", {"type": "error", "code": code, "message": message, "param": None, "sequence_number": sequence}
        )
        if response is not None:
            failed = {**response, "status": "failed", "error": {"code": code, "message": message}}
            out += _event(
                "response.failed", {"type": "response.failed", "response": failed, "sequence_number": sequence + 1}
            )
        return out
    return b"data: " + orjson.dumps({"error": {"message": message}}) + b"\n\n"


def early_error_events(dialect: str, error: TollgateError, request_id: str) -> bytes:
    """As `stream_error_events`, for a stream of which only keep-alive comments were sent. The responses format
    requires a `response.created` event before the failure (CLIENTS 3a)."""
    if dialect != "responses":
        return stream_error_events(dialect, error)
    response = {**_NO_RESPONSE, "id": "resp_" + request_id.removeprefix("req_"), "created_at": int(time.time())}
    created = _event("response.created", {"type": "response.created", "response": response, "sequence_number": 0})
    return created + stream_error_events(dialect, error, sequence=1, response={**response, "usage": _NO_USAGE})


_NO_RESPONSE = {
    "id": "",
    "object": "response",
    "created_at": 0,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "unknown",
    "output": [],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "truncation": "disabled",
    "usage": None,
    "metadata": {},
}
"""A response with every field that the published schema requires, at its default (CLIENTS 3f)."""
_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def public_status(dialect: str, error: TollgateError) -> int:
    """The HTTP status that a caller of this dialect gets for a provider's error; for the usage row of a failure."""
    if isinstance(error, UpstreamRejected):
        return error.status if dialect in ("responses", "messages") else 400
    if isinstance(error, UpstreamTimeout):
        return 504 if dialect in ("responses", "messages") else 500
    if isinstance(error, UpstreamFailed):
        return 529 if dialect == "messages" and error.overloaded else 500
    return error.status


def messages_error_type(error: TollgateError) -> str:
    """The messages error type for a provider's error. Providers of other formats have one type for all requests that
    they reject, so the type follows from the status."""
    if isinstance(error, UpstreamFailed) and error.overloaded:
        return "overloaded_error"
    if not isinstance(error, UpstreamRejected):
        return "timeout_error" if isinstance(error, UpstreamTimeout) else "api_error"
    if error.kind is not None and error.kind in _MESSAGES_TYPES.values() and error.kind != "invalid_request_error":
        return error.kind
    return _MESSAGES_TYPES.get(error.status, "invalid_request_error")


def messages_error_message(error: UpstreamRejected) -> str:
    """The provider's message. For a prompt that is too long it gets the prefix of the messages API, whose clients
    recognise this error by its message only: Claude Code then compacts the conversation."""
    if error.upstream_code != _TOO_LONG or _TOO_LONG_MESSAGE in error.message.lower():
        return error.message
    return f"{_TOO_LONG_MESSAGE}: {error.message}"


def responses_error_type(error: UpstreamRejected) -> tuple[str, str | None]:
    """The responses format's type and code for a rejected request. All errors of a caller have one type there, and only
    the code distinguishes them."""
    kind, code = error.kind, error.upstream_code
    if error.status == 413 or kind == "request_too_large":
        code = "request_too_large"
    # some providers send a class name or a constant instead (BadRequestError, INVALID_ARGUMENT)
    if not kind or not kind.islower() or kind in _MESSAGES_TYPES.values():
        kind = "invalid_request_error"
    return kind, code


def public_message(error: TollgateError) -> str:
    """The message that a caller may see: an error of their own in full, a general message for a provider's failure.

    In a stream there is no status: opencode repeats a request only if the message has words that it knows, one of which
    is "try again later".
    """
    if isinstance(error, UpstreamTimeout):
        budget = f"{error.budget.replace('_', '-')} budget of {error.seconds:g} s"
        return f"The model service did not answer in time ({budget} exceeded). {_REPEAT}"
    if isinstance(error, (AnswerLost, UpstreamUnreachable)):
        return f"The connection to the model service was lost. {_REPEAT}"
    if isinstance(error, UpstreamFailed):
        if error.upstream_status == 429 or error.overloaded:
            return f"The model service is overloaded or rate limited. {_REPEAT}"
        return f"The model service failed to answer. {_REPEAT}"
    if isinstance(error, Unavailable) and not isinstance(error, ShuttingDown):
        return UNAVAILABLE  # its message may contain text of the operating system or the database
    return error.message


def _event(name: str, body: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"
