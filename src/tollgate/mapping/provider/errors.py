"""What an upstream's answer means: no error, or a `Verdict`. Everything that decides a retry is here.

Three verdicts: `later` (use another route now; this one may work again), `next` (only another route can help), `stop`
(the request itself is at fault: pass the error on). 401, 402 and 403 are about *our* key and balance: another route and
an alarm, never the caller's error (PITFALLS 18).

Order: the file's rules, the file's status lists, then the rules for all providers. A 200 may be an error too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tollgate.config.settings import DEFAULT_RETRY_STATUSES
from tollgate.errors import AlarmKind, UpstreamError, UpstreamFailed, UpstreamRejected
from tollgate.mapping.provider.error_details import (
    MAX_MESSAGE,
    ErrorDetails,
    coded_details,
    read_error,
    retry_after,
    seconds_of,
    showable,
    spent_until,
    status_words,
)
from tollgate.mapping.provider.pieces import Read

Kind = Literal["later", "next", "stop"]
_WORDS: Mapping[str, int] = {
    "overloaded_error": 529,
    "overloaded": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "billing_error": 402,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "invalid_request": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "bio_policy": 400,
    "cyber_policy": 400,
    "misalignment_policy_violation": 400,
    "image_content_policy_violation": 400,
    "content_filter": 400,
    "invalid_image": 400,
    "invalid_image_format": 400,
    "invalid_image_mode": 400,
    "invalid_image_url": 400,
    "invalid_base64_image": 400,
    "unsupported_image_media_type": 400,
    "image_parse_error": 400,
    "image_too_small": 400,
    "image_too_large": 400,
    "image_file_too_large": 400,
    "empty_image_file": 400,
    "image_file_not_found": 400,
    "failed_to_download_image": 400,
    "request_too_large": 413,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "timeout_error": 504,
    "server_error": 500,
    "api_error": 500,
}
"""The documented error words of the wire formats, with the status that they stand for where the real one is a 200."""

_SPENT = frozenset(word for word, status in _WORDS.items() if status == 402)
"""With one of these a 429 is not a rate limit, which waiting would help (FACTS 20), a 403 not about our key, and a 400
not the caller's fault. Mapping files list more (`spent`)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An error with its meaning. `status` is the one it counts as; `message` can be shown (no secrets, shortened)."""

    kind: Kind
    alarm: AlarmKind | None
    message: str
    type: str | None
    code: str | None
    param: str | None
    status: int
    retry_after: float | None
    overloaded: bool
    details: Mapping[str, Any] | None

    def error(self) -> UpstreamError:
        """The error to raise: a rejection if the caller is at fault, else a failure of the provider."""
        if self.kind == "stop":
            return UpstreamRejected(
                self.message,
                status=self.status,
                details=self.details,
                kind=self.type,
                param=self.param,
                upstream_code=self.code,
            )
        return UpstreamFailed(
            self.message,
            upstream_status=self.status,
            overloaded=self.overloaded,
            retry_after=self.retry_after,
            alarm=self.alarm,
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule of the file; `reads` has its own message, type, code, param and retry_after. These read an
    error body and `answer_headers` (for an event of a stream: none)."""

    verdict: Kind
    alarm: AlarmKind | None = None
    statuses: frozenset[int] | None = None
    when: Read | None = None
    counts_as: int | None = None
    reads: Mapping[str, Read] = field(default_factory=dict)
    marks: tuple[bytes, ...] | None = None
    """A 200 can only match if its bytes contain one of these; None: it must always be evaluated."""

    @property
    def judges_success(self) -> bool:
        """Whether it may apply to an answer whose status is no error."""
        return self.statuses is None or any(status < 400 for status in self.statuses)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that is an error, with the readers that the file has for it."""

    headers: Mapping[str, str]
    body: Any
    reads: Mapping[str, Read]

    def read(self, name: str) -> Any:
        """The value that the file reads under this name; None if it reads none."""
        read = self.reads.get(name)
        if read is None:
            return None
        now = {"now": int(time.time())} if name == "retry_after" else {}
        return read(self.body, answer_headers=self.headers, **now)


class ErrorRules:
    """All rules of one endpoint; immutable."""

    __slots__ = (
        "_by_status",
        "_format_reads",
        "_on_success",
        "_reads",
        "_retry_statuses",
        "_rules",
        "_spent",
        "_too_long",
        "event_marks",
        "redact",
    )

    def __init__(
        self,
        rules: tuple[Rule, ...] = (),
        by_status: Mapping[int, tuple[Kind, AlarmKind | None]] | None = None,
        reads: Mapping[str, Read] | None = None,
        redact: Callable[[str], str] = str,
        retry_statuses: frozenset[int] = DEFAULT_RETRY_STATUSES,
        too_long: tuple[str, ...] = (),
        spent: frozenset[str] = frozenset(),
        format_reads: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        self._rules = rules
        self._format_reads = format_reads
        self._retry_statuses = retry_statuses
        self._too_long = too_long
        self._spent = _SPENT | spent
        self._by_status = dict(by_status or {})
        self._reads = dict(reads or {})
        self.redact = redact
        """Removes our secrets from a text."""
        self._on_success = tuple(rule for rule in rules if rule.judges_success)
        marks = (mark for rule in self._on_success for mark in rule.marks or ())
        self.event_marks: tuple[bytes, ...] | None = (
            None if any(rule.marks is None for rule in self._on_success) else tuple(dict.fromkeys((b'"error"', *marks)))
        )
        """A stream event (or 200 body) can only be an error if its bytes contain one of these; None: every one must
        be judged."""

    def may_match(self, raw: bytes) -> bool:
        """Whether the bytes of one or several stream events could be an error at all; if not, they need not be
        judged."""
        if self.event_marks is None:
            return True
        for mark in self.event_marks:  # a loop, not any(): called for every block of every stream
            if raw.rfind(mark) >= 0:  # three times as fast as `in`, in CPython
                return True
        return False

    def judge(
        self, status: int, headers: Mapping[str, str], body: Any, *, chunk: bool = False, inside: bool = True
    ) -> Verdict | None:
        """What an answer means; None if it is no error. `headers` have lower-case names. `body` is the parsed JSON,
        or the text if it is not JSON. `chunk`: `body` is one stream event. `inside` False: a 200 is an error only by
        the file's own rules (the answer about an image job has an `error` of its own)."""
        for rule in self._on_success if status < 400 else self._rules:
            if (rule.statuses is None or status in rule.statuses) and (
                rule.when is None or rule.when(body, answer_headers=headers)
            ):
                return self._by_rule(rule, status, _Answer(headers, body, {**self._reads, **rule.reads}))
        answer = _Answer(headers, body, self._reads)
        if not 200 <= status < 300:
            return self._classified(status, self._details_of(answer), answer)
        return self._error_inside(answer, chunk) if inside else None

    def judge_reported(self, error: Mapping[str, Any]) -> Verdict:
        """What a failure means that an answer reports in itself; `error` is the hub error that its mapping reads."""
        answer = _Answer({}, {"error": error}, {})
        details = read_error(answer.body, self.redact)
        return self._classified(_reported_status(error, details), details, answer)

    def _by_rule(self, rule: Rule, status: int, answer: _Answer) -> Verdict:
        details = self._details_of(answer)
        if status < 400 and rule.verdict != "stop" and not details.message:  # its status does not explain the error
            details = replace(details, message=f"HTTP {status} with a body that a rule of its file calls an error")
        counts_as = rule.counts_as or (status if status >= 400 else _status_of(details))
        return self._verdict(rule.verdict, rule.alarm, counts_as, details, answer)

    def _error_inside(self, answer: _Answer, chunk: bool) -> Verdict | None:
        """An error in a 200: a top-level `error` that is not null, or a body that is marked as an error and has a
        message (`object: error`, as some servers of open models stream it). An object that reports its own failure
        (a response with `status: failed`) is an answer, whose mapping decides what it means."""
        body = answer.body
        if type(body) is not dict:
            return None
        error = body.get("error")
        if not error:
            if "error" not in (body.get("type"), body.get("object")) or "message" not in body:
                return None
        elif body.get("object") == "response" and not chunk:
            return None
        details = self._details_of(answer)
        status = _reported_status(error if isinstance(error, dict) else body, details)
        return self._classified(status, details, answer)

    def _classified(self, status: int, details: ErrorDetails, answer: _Answer) -> Verdict:
        kind: Kind
        alarm: AlarmKind | None = None
        listed = self._by_status.get(status)
        if listed is not None:
            kind, alarm = listed
        elif status in (401, 403):
            kind, alarm = "next", "key"
        elif status == 402:
            kind, alarm = "next", "balance"
        elif status in self._retry_statuses or status >= 500:
            kind = "later"
        elif status == 407 or 300 <= status < 400:
            # a redirect, or a proxy on the way that wants authorisation: our configuration is wrong
            kind = "next"
        else:
            # the caller's model is in our catalog; that this upstream does not have it is not the caller's fault
            kind = "next" if details.code == "model_not_found" else "stop"
        spent = not self._spent.isdisjoint((details.code.lower(), details.type.lower()))
        if spent and (listed is None or alarm is None and kind != "stop"):
            kind, alarm = "next", "balance"
        return self._verdict(kind, alarm, status, details, answer)

    def _verdict(
        self, kind: Kind, alarm: AlarmKind | None, status: int, details: ErrorDetails, answer: _Answer
    ) -> Verdict:
        """What applies whoever decided: what the answer itself says about retries and waiting; error codes that
        clients know."""
        should_retry = answer.headers.get("x-should-retry")
        if should_retry == "false" and kind == "later":
            kind = "next"  # not this route again, but another may work
        elif should_retry == "true" and kind == "stop" and status >= 408:
            kind = "later"
        code = None if not details.code or _STATUS.fullmatch(details.code) else details.code
        if kind == "stop" and status in _REFUSALS and any(words in details.message.lower() for words in self._too_long):
            code = "context_length_exceeded"  # the only code on which agents shorten a conversation
        return Verdict(
            kind,
            alarm,
            details.message or status_words(status),
            details.type or None,
            code,
            details.param or None,
            status,
            _wait(status, answer) if kind != "stop" else None,
            overloaded=status in (503, 529) or "overloaded_error" in (details.type, details.code),
            details=coded_details(answer.body, self.redact) if kind == "stop" else None,
        )

    def _details_of(self, answer: _Answer) -> ErrorDetails:
        """The details that the file reads; else those that the format's mapping reads; else those of common shapes."""
        details = read_error(answer.body, self.redact)
        own = self._format_reads(answer.body) if self._format_reads is not None else {}
        for name in ("message", "type", "code", "param"):
            for found in (own.get(name), answer.read(name)):
                if isinstance(found, (str, int)) and not isinstance(found, bool) and found != "":
                    details = replace(details, **{name: showable(str(found), MAX_MESSAGE, self.redact)})
        return details


def _reported_status(error: Mapping[str, Any], details: ErrorDetails) -> int:
    """The status of an error in a 200: its code, if that is one; else the one that its words stand for."""
    code = error.get("code")
    number = int(code) if type(code) is int or isinstance(code, str) and code.isdecimal() and len(code) == 3 else 0
    return number if 400 <= number <= 599 else _status_of(details)


def _status_of(details: ErrorDetails) -> int:
    """The status that an error's words stand for."""
    return _WORDS.get(details.type) or _WORDS.get(details.code) or 500


def _wait(status: int, answer: _Answer) -> float | None:
    """Seconds after which a route may work again, if the answer says so."""
    wait = retry_after(answer.headers)
    if wait is None:
        wait = seconds_of(answer.read("retry_after"))
    return spent_until(answer.headers) if wait is None and status == 429 else wait


_REFUSALS = frozenset({400, 413, 422})
"""The statuses of an invalid request, which may be too long."""
_STATUS = re.compile("[1-5][0-9][0-9]")
"""A code that only repeats the status, as some providers send it: clients expect a word."""
