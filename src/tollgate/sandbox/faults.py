"""Refusals of the sandbox: one exception, and its body in the dialect of the endpoint that raised it."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

_CHAT_KINDS = {
    **dict.fromkeys((400, 401, 404, 413, 422), "invalid_request_error"),
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_CHAT_CODES = {401: "invalid_api_key", 402: "insufficient_quota", 404: "model_not_found", 429: "rate_limit_exceeded"}
_MESSAGES_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TEXTS = {
    400: "The request was not understood.",
    401: "Incorrect API key provided: sandbox.",
    402: "The sandbox account has no money left.",
    403: "This key may not do that.",
    404: "The model does not exist or you do not have access to it.",
    408: "The request took too long.",
    413: "The request is too large.",
    429: "Rate limit reached for requests. Please slow down.",
    500: "The server had an error while processing your request.",
    502: "Bad gateway.",
    503: "The engine is overloaded, please try again later.",
    504: "The model took too long.",
    529: "Overloaded",
}


@dataclass(slots=True)
class Fault(Exception):
    """A refusal: `status`, the message, and the fields of the dialect; raised anywhere, rendered once."""

    status: int
    message: str = ""
    messages_text: str = ""
    """The message in the messages dialect, if it differs."""
    param: str | None = None
    code: str | None = None
    kind: str | None = None
    details_code: str | None = None
    """The code of the messages dialect that a client acts on."""
    headers: dict[str, str] = field(default_factory=dict)

    def detail(self, dialect: str) -> dict[str, object]:
        """The `error` object of the dialect."""
        text = self.message or _TEXTS.get(self.status, f"The sandbox was asked to fail with {self.status}.")
        if dialect == "messages":
            kind = self.kind or _MESSAGES_KINDS.get(self.status, "api_error")
            details = {"details": {"error_code": self.details_code}} if self.details_code else {}
            return {"type": kind, "message": self.messages_text or text, **details}
        kind = self.kind or _CHAT_KINDS.get(self.status, "server_error")
        code = self.code or _CHAT_CODES.get(self.status)
        return {"message": text, "type": kind, "param": self.param, "code": code}

    def body(self, dialect: str, request_id: str) -> bytes:
        """The whole response body: `messages` has an envelope, all others one `error` object."""
        if dialect == "messages":
            return orjson.dumps({"type": "error", "error": self.detail(dialect), "request_id": request_id})
        return orjson.dumps({"error": self.detail(dialect)})


_KINDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array", dict: "an object"}


def missing(param: str) -> Fault:
    """A required field is missing."""
    text = f"Missing required parameter: '{param}'."
    return Fault(400, text, f"{param}: Field required", param=param, code="missing_required_parameter")


def chosen(found: object, known: tuple[str, ...], param: str) -> None:
    """Raise unless a required field has one of the allowed values."""
    if found is None:
        raise missing(param)
    if not isinstance(found, str):
        raise wrong(param, found, "a string")
    if found not in known:
        *others, last = (repr(word) for word in known)
        raise Fault(
            400,
            f"Invalid value: '{found}'. Supported values are: {', '.join(others)}, and {last}.",
            param=param,
            code="invalid_value",
        )


def wrong(param: str, found: object, wanted: str) -> Fault:
    """A field has the wrong type."""
    return Fault(
        400,
        f"Invalid type for '{param}': expected {wanted}, but got {_kind_of(found)} instead.",
        f"{param}: Input should be {wanted}",
        param=param,
        code="invalid_type",
    )


def _kind_of(value: object) -> str:
    """A value's type by its JSON name, not `NoneType` or `dict`."""
    return _KINDS.get(type(value), "null")
