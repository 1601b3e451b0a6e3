"""Judging what a route returned: whether it is an answer, and which error it reports.

Whether an error is retriable is decided in `mapping/provider/errors.py`.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import orjson

from tollgate.completions.exchange import Exchange
from tollgate.completions.native import parsed_answer
from tollgate.errors import TollgateError, UpstreamError, UpstreamFailed
from tollgate.json_bounds import too_many
from tollgate.mapping import MappingFailure
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.routing import Offer
from tollgate.upstream import MAX_ERROR_BYTES, Answer, error_body

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Most bytes of a whole answer, which may hold pictures and sound as base64. A larger one is refused instead of being
held in memory."""
_MOST_VALUES = 3_000_000
"""Most JSON values in a whole answer: twice what ten thousand tokens with twenty log probabilities each have, the most
that providers send."""
_JSON_FRAMINGS = ("ndjson", "json-array")
Failure = TypeVar("Failure", bound=TollgateError)


class AttemptFailed(Exception):
    """This route gave no answer. `error` is the client's error if no other route answers."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def check_head(answer: Answer, offer: Offer, *, stream: bool) -> None:
    """Raises `AttemptFailed` for an error status, or for an answer that is not the stream that was asked for."""
    try:
        if not 200 <= answer.status < 300:
            raise AttemptFailed(await reported_error(answer, offer.errors))
        if stream and not _is_stream(answer, offer):
            raise await _not_a_stream(answer, offer)
    except BaseException:  # also when the client leaves while the error body is read
        answer.abort()
        raise


async def read_answer(exchange: Exchange, answer: Answer) -> bytes:
    """The bytes of a whole answer. Raises `AttemptFailed` when it breaks off."""
    began = time.perf_counter()
    try:
        return await answer.read(MAX_ANSWER_BYTES)
    except UpstreamError as error:
        raise AttemptFailed(error) from None
    finally:
        exchange.upstream_ms += (time.perf_counter() - began) * 1000


def judged_answer(exchange: Exchange, offer: Offer, answer: Answer, raw: bytes) -> tuple[bytes, Any]:
    """A whole answer, raw and parsed. Raises `AttemptFailed` when it is no answer."""
    if holds_too_much(raw):
        raise unusable(f"the answer holds more than {_MOST_VALUES} values", answer.status)
    try:
        body, raw = parsed_answer(raw)
    except orjson.JSONDecodeError:
        raise unusable(_why_not_json(answer), answer.status) from None
    verdict = offer.errors.judge(answer.status, answer.headers, body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    if not isinstance(body, dict) and (not exchange.attempt.converts or not isinstance(body, list)):
        raise unusable("the answer is not a JSON object", answer.status)
    return raw, body


def _why_not_json(answer: Answer) -> str:
    """What to tell of a whole answer that is not JSON. Some upstreams stream unless they are told not to (the responses
    of `transformers serve`), others always."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return (
            "no stream was asked for and one came (`request: [{default: {stream: false}}]` is for an upstream that "
            "streams unless told not to, `can: {whole: false}` for one that only streams)"
        )
    return "the answer is not JSON"


def holds_too_much(raw: bytes) -> bool:
    """Whether an answer has more JSON values than are parsed, since parsing blocks the interpreter."""
    return len(raw) > _MOST_VALUES and too_many(raw, _MOST_VALUES)


def judge_chunk(offer: Offer, chunk: dict[str, Any]) -> UpstreamError | None:
    """The error a stream event reports, or None."""
    verdict = offer.errors.judge(200, {}, chunk, chunk=True)
    return verdict.error() if verdict is not None else None


def reported_failure(offer: Offer, hub_error: dict[str, Any] | None) -> UpstreamError:
    """The error for a failure that an answer reports: as a hub error, or None where it has the stop reason "error" and
    no details. It is a rejection where the provider blames the request: a blocked prompt, an unreadable picture."""
    if hub_error is None:
        return UpstreamFailed("the upstream could not finish the answer")
    return offer.errors.judge_reported({"message": "the upstream reported an error", **hub_error}).error()


def unfit_answer(offer: Offer, failure: MappingFailure) -> UpstreamFailed:
    """The error for an answer that the route's mapping or edits cannot be applied to. Another route may be tried as
    long as nothing was sent (DESIGN section 4). The message, for the log, names the YAML line."""
    message = offer.errors.redact(f"the answer does not fit its mapping: {failure}")
    return UpstreamFailed(message, upstream_status=200)


def without_frames(error: Failure) -> Failure:
    """The error without its traceback, cause and context.

    The traceback's frames refer to the answer, which refers to the error. Such a cycle, with the request's body in it,
    would stay in memory until the garbage collector runs, which may be many requests later.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def without_secrets(raw: bytes, offer: Offer) -> bytes:
    """A provider's own bytes that report a failure, with our secrets removed, which it may quote."""
    return offer.errors.redact(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def unusable(why: str, status: int) -> AttemptFailed:
    """The failed attempt of an answer with this status that cannot be used."""
    return AttemptFailed(UpstreamFailed(why, upstream_status=status))


async def reported_error(answer: Answer, rules: ErrorRules) -> UpstreamError:
    """The error of an answer whose status is no success."""
    body: Any
    raw = await error_body(answer)
    try:
        body, _ = parsed_answer(raw)
    except orjson.JSONDecodeError:
        body = raw.decode("utf-8", "replace")
    verdict = rules.judge(answer.status, answer.headers, body)
    assert verdict is not None
    return verdict.error()


async def _not_a_stream(answer: Answer, offer: Offer) -> AttemptFailed:
    """The failure of a 200 that is no event stream: an error in a JSON body, or an HTML page of some proxy."""
    try:
        raw = await answer.read(MAX_ERROR_BYTES)
        body = orjson.loads(raw)
    except (TollgateError, orjson.JSONDecodeError):
        body = None
    if isinstance(body, (dict, list)):
        verdict = offer.errors.judge(answer.status, answer.headers, body)
        if verdict is not None:
            return AttemptFailed(verdict.error())
    kind = answer.headers.get("content-type", "")[:100]
    return unusable(
        f"a stream was asked for and none came: with `framing: {offer.framing}` {kind!r} is none "
        "(`can: {streams: false}` is for an upstream that does not stream)",
        answer.status,
    )


def _is_stream(answer: Answer, offer: Offer) -> bool:
    """Whether a 200 is the stream that was asked for. A JSON content type is accepted where the stream's framing
    consists of JSON documents: an error is an event there, and judged as one."""
    kind = answer.headers.get("content-type", "")
    return not kind.startswith("text/html" if offer.framing in _JSON_FRAMINGS else ("text/html", "application/json"))
