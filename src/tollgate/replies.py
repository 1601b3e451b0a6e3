"""Error replies: the status, headers and body of an error for each dialect (SPEC errors, CLIENTS 3b). No other module
formats errors, except inside a stream (`public_errors.py`).

A dialect is chat, responses, messages, embeddings, images, tools or catalog. Chat has most errors in plain text,
responses and messages in their API's JSON, the others in the `{success, code, message}` envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from tollgate.config.settings import Retry
from tollgate.errors import (
    NO_QUOTA,
    BadRequest,
    BodyTooLarge,
    InternalError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    PermissionDenied,
    QuotaExhausted,
    RateLimited,
    TollgateError,
    Unauthorized,
    Unavailable,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
    whole_seconds,
)
from tollgate.public_errors import (
    UNAVAILABLE,
    messages_error_message,
    messages_error_type,
    public_message,
    public_status,
    responses_error_type,
)
from tollgate.services import Headers, Reply

StatusAndBody = tuple[int, dict[str, Any] | str]
"""The body is an object or plain text."""

TEXT = b"text/plain; charset=utf-8"
_MOST_WAIT_SECONDS = Retry().max_retry_after_seconds
"""Client libraries do not retry at all if `retry-after` is longer (CLIENTS 3c)."""
_UNREACHABLE = orjson.dumps({"message": UNAVAILABLE})

_NO_KEY = (
    "You didn't provide an API key. Send it in an Authorization header using Bearer auth "
    "(Authorization: Bearer YOUR_KEY) or in an X-Api-Key header."
)
_ENDPOINTS = {
    "chat": "/v1/chat/completions, /v1/responses and /v1/messages",
    "embedding": "/v1/embeddings",
    "image": "/v1/images/generations",
}
"""The endpoints for each type of model."""


def error_reply(dialect: str, error: TollgateError, request_id: str, *, most_wait: float = _MOST_WAIT_SECONDS) -> Reply:
    """The reply for `error` in the format of `dialect`. It never contains an upstream's 5xx text or a secret.
    `most_wait` is the gateway's `retry.max_retry_after_seconds`."""
    headers: Headers = [(b"x-tollgate-error", error.code.encode())]
    after = getattr(error, "retry_after", None)
    if after is not None and isinstance(error, (RateLimited, UpstreamError, Unavailable)):
        headers.append((b"retry-after", b"%d" % whole_seconds(min(after, most_wait))))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, UpstreamTimeout):
        headers.append((b"x-tollgate-timeout", error.budget.encode()))
    headers += error.headers
    # without this header, Claude Code retries a wrong key for three minutes
    if error.billed or isinstance(error, Unauthorized):
        headers.append((b"x-should-retry", b"false"))
    if isinstance(error, (UpstreamUnreachable, Unavailable)):
        return Reply(error.status, headers, _UNREACHABLE)
    status, body = _BODIES[dialect](error)
    if isinstance(body, str):
        return Reply(status, headers, body.encode(), media_type=TEXT)
    if dialect == "messages":
        body["request_id"] = request_id
    return Reply(status, headers, orjson.dumps(body))


def _failure_message(error: TollgateError) -> str:
    """The message for a failure that is not the caller's: a general one for a provider's, no details for ours."""
    return public_message(error) if isinstance(error, UpstreamError) else InternalError.public_message


def _endpoint_hint(error: ModelNotFound) -> str:
    return f" (it is for {_ENDPOINTS[error.kind]})" if error.kind in _ENDPOINTS else ""


def _request_message(error: TollgateError) -> str:
    """The message for an invalid request; for a model of another endpoint, it names that endpoint."""
    return f"{error.message}{_endpoint_hint(error)}" if isinstance(error, ModelNotFound) else error.message


def _error_object(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _account_error(error: TollgateError) -> StatusAndBody | None:
    """401, 403 and 429, which are the same for chat and responses."""
    if isinstance(error, Unauthorized):
        if error.reason == "missing":
            return 401, _error_object(_NO_KEY, "invalid_request_error")
        return 401, _error_object(
            f"Incorrect API key provided: {error.shown}", "invalid_request_error", "invalid_api_key"
        )
    if isinstance(error, QuotaExhausted):
        body = _error_object(error.message, "insufficient_quota", "insufficient_quota")
        return 403, {"message": NO_QUOTA, **body}
    if isinstance(error, PermissionDenied):
        return 403, _error_object(error.message, "invalid_request_error", error.code)
    if isinstance(error, RateLimited):
        return 429, _error_object(error.message, "rate_limit_error", "rate_limit_exceeded")
    return None


def _chat(error: TollgateError) -> StatusAndBody:
    if isinstance(error, (BodyTooLarge, NotFound, MethodNotAllowed)):
        return error.status, error.message
    if isinstance(error, (BadRequest, ModelNotFound, UpstreamRejected)):
        return 400, _request_message(error)
    return 500, _failure_message(error)


def _responses(error: TollgateError) -> StatusAndBody:
    if isinstance(error, BodyTooLarge):
        return 413, _error_object(error.message, "invalid_request_error", "request_too_large")
    if isinstance(error, ModelNotFound):
        return 400, _error_object(
            f"The requested model '{error.model}' does not exist{_endpoint_hint(error)}.",
            "invalid_request_error",
            "model_not_found",
            "model",
        )
    if isinstance(error, UpstreamRejected):
        return error.status, _error_object(error.message, *responses_error_type(error), error.param)
    if isinstance(error, (BadRequest, NotFound, MethodNotAllowed)):
        code = error.code if error.code != BadRequest.code else None
        return error.status, _error_object(error.message, "invalid_request_error", code, getattr(error, "param", None))
    return public_status("responses", error), _error_object(_failure_message(error), "server_error", "server_error")


_ACTED_ON = frozenset({"thread_not_found", "thread_unsupported_request"})
"""Error codes that messages clients act on: they start a new thread, or send the whole conversation."""


def _messages(error: TollgateError) -> StatusAndBody:
    def reply(status: int, kind: str, message: str, details: Mapping[str, Any] | None = None) -> StatusAndBody:
        detailed = {"details": details} if details else {}
        return status, {"type": "error", "error": {"type": kind, "message": message, **detailed}}

    if isinstance(error, Unauthorized):
        return reply(
            401,
            "authentication_error",
            "x-api-key header is required" if error.reason == "missing" else "invalid x-api-key",
        )
    if isinstance(error, QuotaExhausted):
        return reply(403, "billing_error", error.message)
    if isinstance(error, PermissionDenied):
        return reply(403, "permission_error", error.message)
    if isinstance(error, RateLimited):
        return reply(429, "rate_limit_error", error.message)
    if isinstance(error, BodyTooLarge):
        return reply(413, "request_too_large", "Request exceeds the maximum size")
    if isinstance(error, ModelNotFound):
        return reply(404, "not_found_error", f"model: {error.model}{_endpoint_hint(error)}")
    if isinstance(error, UpstreamRejected):
        return reply(error.status, messages_error_type(error), messages_error_message(error), error.details)
    if isinstance(error, (BadRequest, NotFound, MethodNotAllowed)):
        details = {"error_code": error.code} if error.code in _ACTED_ON else None
        return reply(
            error.status, "not_found_error" if error.status == 404 else "invalid_request_error", error.message, details
        )
    return reply(public_status("messages", error), messages_error_type(error), _failure_message(error))


def _envelope(status: int, message: str) -> StatusAndBody:
    return status, {"success": False, "code": status, "message": message}


def _envelope_common(error: TollgateError) -> StatusAndBody | None:
    if isinstance(error, Unauthorized):
        return _envelope(401, "API key is required" if error.reason == "missing" else "invalid API key")
    if isinstance(error, RateLimited):
        return _envelope(429, "rate limit exceeded")
    if isinstance(error, (BodyTooLarge, MethodNotAllowed, PermissionDenied)):
        return _envelope(error.status, error.message)
    return None


def _embeddings(error: TollgateError) -> StatusAndBody:
    if isinstance(error, QuotaExhausted):
        return _envelope(403, "user quota exceeded")
    if isinstance(error, (BadRequest, ModelNotFound, NotFound, UpstreamRejected)):
        return _envelope(400, f"failed to bind request: {_request_message(error)}")
    return _envelope(500, "internal error, please try again later")


def _images(error: TollgateError) -> StatusAndBody:
    if isinstance(error, QuotaExhausted):
        return _envelope(403, NO_QUOTA)
    if isinstance(error, NotFound):
        return _envelope(404, "missing ID parameter")
    if isinstance(error, (BadRequest, ModelNotFound, UpstreamRejected)):
        message = _request_message(error)
        if not message.startswith("input validation failed"):
            message = f"input validation failed: {message}"
        return _envelope(400, message)
    return _envelope(500, InternalError.public_message)


def _catalog(error: TollgateError) -> StatusAndBody:
    if isinstance(error, ModelNotFound):
        return 404, _error_object(
            f"The model '{error.model}' does not exist", "invalid_request_error", "model_not_found", "model"
        )
    if error.status >= 500:
        return error.status, _error_object(InternalError.public_message, "server_error", error.code)
    return error.status, _error_object(error.message, "invalid_request_error", error.code)


_BODIES: dict[str, Callable[[TollgateError], StatusAndBody]] = {
    "chat": lambda error: _account_error(error) or _chat(error),
    "responses": lambda error: _account_error(error) or _responses(error),
    "messages": _messages,
    "embeddings": lambda error: _envelope_common(error) or _embeddings(error),
    "images": lambda error: _envelope_common(error) or _images(error),
    "tools": lambda error: _envelope_common(error) or _images(error),
    "catalog": lambda error: _account_error(error) or _catalog(error),
}
