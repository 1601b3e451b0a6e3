"""The error tree: every failure that a caller or an operator can see. An error raised by one module only is defined in
that module, as a subclass of one of these.

    TollgateError
    ├── ConfigErrors              all problems of a set of files at once (start, check, reload)
    ├── RequestError              the caller's request is at fault; repeating it will not help
    │   ├── BadRequest            400  malformed JSON, a wrong field, a refused conversion
    │   ├── Unauthorized          401  key missing, malformed, unknown, expired, revoked
    │   ├── QuotaExhausted        403  fewer than 0.01 credits, or a spend cap reached
    │   ├── PermissionDenied      403  the key is restricted to other endpoints or addresses
    │   ├── ModelNotFound         400/404 by endpoint; unknown and not-permitted look the same
    │   ├── NotFound              404  an id this account does not own
    │   ├── MethodNotAllowed      405
    │   ├── BodyTooLarge          413
    │   └── RateLimited           429  a limit of the key: a rate, or concurrent requests
    ├── UpstreamError             a provider failed
    │   ├── UpstreamRejected      4xx that is the caller's fault: passed on in our format
    │   ├── UpstreamFailed        an error answer (5xx, 429, an error in a 200, our key or balance rejected)
    │   │   └── AnswerLost            the answer broke off, or cannot be decompressed
    │   ├── UpstreamUnreachable   no connection, or reset before an answer
    │   │   └── OutOfSockets      503  no connection, because the gateway has no descriptors, ports or memory left
    │   └── UpstreamTimeout       one of the four budgets ran out
    ├── Unavailable               503  the gateway cannot take work (ledger not writable)
    │   ├── NotDurable            503  the operation was done but is not durable yet
    │   ├── BodyMemoryFull        503  the request bodies in memory leave no room for another
    │   └── ShuttingDown          503  the gateway is shutting down
    └── InternalError             500  a bug in the gateway

A class has its HTTP status and a stable word (`code`, sent in `x-tollgate-error` and stored in usage rows). Only
`replies.py` turns an error into a body, because each endpoint has its own error format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tollgate.config.load import Problem

Budget = Literal["connect", "first_byte", "idle", "total"]
AlarmKind = Literal["balance", "key", "proxy"]


def whole_seconds(wait: float) -> int:
    """A wait in whole seconds for `retry-after`, at least 1. Rounded up, because a client that retries a moment too
    early is rejected again.

    7.5 -> 8, but 7.0001 -> 7: a millisecond is ignored.
    """
    return max(1, math.ceil(wait - 0.001))


BILLED = "billed"
"""The note on the cancellation of a request whose provider was paid, as `TollgateError.billed`."""


class TollgateError(Exception):
    """Base of all errors; `status` is the HTTP status, `code` a stable word for the error."""

    status: int = 500
    code: str = "internal_error"
    billed: bool = False
    """True if a provider was paid despite the error: the reply asks the client not to retry."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Further headers of the reply: the state of the key's rate limits."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def copy(self) -> Self:
        """The same error as another object: one for each caller that waited for the same work, since each adds what its
        own reply needs (`headers`)."""
        other = self.__class__.__new__(self.__class__, *self.args)
        other.__dict__.update(self.__dict__)
        return other


class ConfigErrors(TollgateError):
    """Every problem found in the configuration files, in file and line order. `files`: those of the configuration, also
    the ones that it names and that are not there; empty if they are not known."""

    code = "config_invalid"

    def __init__(self, problems: Sequence[Problem], files: Iterable[Path] = ()) -> None:
        self.problems = tuple(problems)
        self.files = tuple(files)
        super().__init__("\n".join(problem.render() for problem in self.problems))


class RequestError(TollgateError):
    """The caller's request is at fault."""

    status = 400
    code = "invalid_request"


class BadRequest(RequestError):
    """The body is malformed, a field is invalid, or a part cannot be converted for the upstream (`param` names it)."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        if code:
            self.code = code


class Unauthorized(RequestError):
    """No usable key. `reason` is missing, malformed, unknown, expired or revoked; `shown` is the key, masked."""

    status = 401
    code = "invalid_api_key"

    def __init__(self, reason: str, shown: str = "") -> None:
        super().__init__(f"key {reason}")
        self.reason = reason
        self.shown = shown


NO_QUOTA = "insufficient quota"
"""The message for accounts and keys without credits (SPEC)."""


class QuotaExhausted(RequestError):
    """The account has fewer than 0.01 credits left, or the key's spend cap is reached."""

    status = 403
    code = "insufficient_quota"

    def __init__(self, message: str = NO_QUOTA) -> None:
        super().__init__(message)


class PermissionDenied(RequestError):
    """The key is valid, but not for this endpoint or from this address. The message does not reveal where it may be
    used, in case the key was stolen."""

    status = 403
    code = "permission_denied"


class ModelNotFound(RequestError):
    """This key can use no such model; a forbidden model gives the same error as an unknown one. If the key may use the
    model at another endpoint, `kind` is the model's type."""

    code = "model_not_found"

    def __init__(self, model: str, message: str | None = None, *, kind: str | None = None) -> None:
        super().__init__(message or f"model not found: {model}")
        self.model = model
        self.param = "model"
        self.kind = kind


class NotFound(RequestError):
    """An id that does not exist for this account."""

    status = 404
    code = "not_found"


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"method not allowed; use {allowed}")
        self.allowed = allowed


class BodyTooLarge(RequestError):
    """The request body is over the configured limit."""

    status = 413
    code = "request_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body exceeds {limit} bytes")


class RateLimited(RequestError):
    """A limit of the key was reached. `retry_after` is in seconds, `kind` is requests, tokens or concurrent requests,
    `limits` the state of the key's rates (`ledger.limits`)."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, retry_after: float, kind: str = "requests", limits: Any = None) -> None:
        super().__init__(f"Rate limit reached for {kind}. Please try again in {whole_seconds(retry_after)}s.")
        self.retry_after = retry_after
        self.limits = limits


class UpstreamError(TollgateError):
    """A provider failed. `retry_after` is in seconds, if the provider sent one. `alarm` is "balance" or "key" if our
    account there is at fault, "proxy" if our credentials for the proxy to it are."""

    status = 500
    code = "upstream_error"

    def __init__(self, message: str, *, retry_after: float | None = None, alarm: AlarmKind | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.alarm = alarm


class UpstreamRejected(UpstreamError):
    """The provider rejected the request itself (a 4xx caused by the caller). `kind`, `upstream_code` and
    `param` are the type, code and param in its answer (agents act on `context_length_exceeded`); `details` are those of
    a messages error, if they have a code."""

    status = 400
    code = "upstream_rejected"

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        details: Mapping[str, Any] | None = None,
        kind: str | None = None,
        param: str | None = None,
        upstream_code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.details = details
        self.kind = kind
        self.upstream_code = upstream_code
        self.param = param


class UpstreamFailed(UpstreamError):
    """The provider answered with an error. `upstream_status` is the status of its answer; `overloaded` is set if the
    answer reports overload."""

    code = "upstream_failed"

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int = 500,
        overloaded: bool = False,
        retry_after: float | None = None,
        alarm: AlarmKind | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after, alarm=alarm)
        self.upstream_status = upstream_status
        self.overloaded = overloaded


class AnswerLost(UpstreamFailed):
    """The provider's answer began but is incomplete. Not a 502, because the provider was reached (DESIGN section 4)."""

    def __init__(self, message: str, *, upstream_status: int = 200) -> None:
        super().__init__(message, upstream_status=upstream_status)


class UpstreamUnreachable(UpstreamError):
    """No connection could be made, or it was lost before an answer began."""

    status = 502
    code = "upstream_unreachable"


class OutOfSockets(UpstreamUnreachable):
    """No connection could be made because this process or machine has no file descriptor, local port or memory left.
    No provider is at fault, so no route cools down for it."""

    status = 503
    code = "out_of_sockets"

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=5.0)


class UpstreamTimeout(UpstreamError):
    """One of the four budgets ran out: connect, first_byte, idle or total."""

    status = 504
    code = "upstream_timeout"

    def __init__(self, budget: Budget, seconds: float) -> None:
        super().__init__(f"upstream exceeded its {budget.replace('_', '-')} budget of {seconds:g} s")
        self.budget = budget
        self.seconds = seconds


class Unavailable(TollgateError):
    """The gateway itself cannot take work now: the ledger is not writable, or it is shutting down."""

    status = 503
    code = "unavailable"


class NotDurable(Unavailable):
    """The requested operation was done but could not be made durable yet."""


class BodyMemoryFull(Unavailable):
    """The bodies of running requests left no room for one of `size` bytes within `seconds`."""

    code = "too_much_at_once"
    retry_after = 10.0

    def __init__(self, size: int, held: int, most: int, seconds: float) -> None:
        super().__init__(
            f"no room for {size} bytes of a request body within {seconds:g} s: {held} of at most {most} are held"
        )


class ShuttingDown(Unavailable):
    """The gateway takes no more requests, or ends running ones because the drain time is over."""

    def __init__(self) -> None:
        super().__init__("the gateway is shutting down; try again later")


class InternalError(TollgateError):
    """A bug in the gateway. The details are only in the log."""

    public_message = "internal server error"

    def __init__(self) -> None:
        super().__init__(self.public_message)
