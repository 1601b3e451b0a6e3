"""One step of a job over HTTP: build the call from its templates, send it, judge the answer, read its outcome.

Only makes the exchange; `runner.py` decides what an outcome means for a job.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.addresses import with_query
from tollgate.errors import BadRequest, TollgateError, UpstreamFailed, UpstreamRejected
from tollgate.forms import FORM, encode_fields
from tollgate.images.answers import MOST_BYTES, is_text, read_body
from tollgate.images.state import UNKNOWN_WORD, job_facts
from tollgate.json_bounds import too_many
from tollgate.mapping import MappingFailure
from tollgate.mapping.hosts import is_admitted, origin
from tollgate.mapping.images.outcome import NO_IMAGE, Outcome
from tollgate.mapping.values import text_of
from tollgate.multipart import encode_file, encode_form
from tollgate.upstream import Call, call_to, error_body
from tollgate.wire import PENDING

if TYPE_CHECKING:
    from tollgate.ledger import Generation
    from tollgate.mapping.images.offer import ImageOffer, Step
    from tollgate.upstream import Answer, Client

log = logging.getLogger("tollgate.images")

_MOST_VALUES = 100_000
"""In one answer; pictures count as one value each. All other requests wait while it is parsed."""
_GONE = (404, 410)


class JobGone(Exception):
    """The provider no longer knows the job (404 or 410 to a poll)."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """A provider's answer to a step: its body as it came, its outcome, and status and headers (`$http`)."""

    body: Any
    outcome: Outcome
    http: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls to one provider for one job. `input` is the job's, as the offer admits it. The `job` of the methods is
    what templates read as `$job`."""

    client: Client
    offer: ImageOffer
    input: dict[str, Any]

    async def run(self, step: Step, job: dict[str, Any]) -> StepAnswer:
        """Make one call.

        Raises `UpstreamRejected` when the request is at fault, `JobGone`, and other `UpstreamError`s when the provider
        is: then another route or a later attempt may work.
        """
        offer = self.offer
        result, content, http = await self._result(step, job)
        outcome = offer.outcome(step, result)
        if outcome.status == "failed" and outcome.error == NO_IMAGE:
            # no picture, and the file does not say why: perhaps the 200 contains an error, for which there is a rule
            verdict = offer.errors.judge(http["status"], http["headers"], content)
            if verdict is not None:
                raise verdict.error()
            found = ", ".join(list(content)[:20]) if isinstance(content, dict) else "a list"
            words = "provider %s: `images` of its %s step finds no picture in the answer, which has %r"
            log.warning(words, offer.provider, step.name, found[:200])
        if outcome.unknown_word not in (None, job.get(UNKNOWN_WORD)):
            if outcome.unknown_word:
                words = "provider %s: job status %r is not in its file; taken as processing"
                log.warning(words, offer.provider, outcome.unknown_word[:80])
            else:
                words = "provider %s: `status` of its %s step finds nothing in the answer; taken as processing"
                log.warning(words, offer.provider, step.name)
        if outcome.error:
            outcome = replace(outcome, error=offer.errors.redact(outcome.error))  # which may repeat our key
        return StepAnswer(content, outcome, http)

    async def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the calls that a job needs before it is submitted, where their `when` holds. Returns their results
        together, for `$job`.

        Raises what `run` does, except `JobGone`."""
        found: dict[str, Any] = {}
        for step in self.offer.before:
            facts = {**job, **found}
            if step.when is None or step.when(self._call_values(facts)):
                result, _, _ = await self._result(step, facts)
                found |= result if isinstance(result, dict) else {}
        return found

    def kept_answer(self, generation: Generation) -> StepAnswer | None:
        """The stored answer to the submit step, if no poll follows it; None if the job is polled.

        No poll follows where the provider has none and the pictures were not ready to be fetched, or where polling
        needs an id and the answer had none: such a job ends at once, so its process was stopped just before. The
        answer's headers were not stored.
        """
        offer = self.offer
        goes_on = generation.upstream_id or not offer.needs_id if offer.poll is not None else offer.fetch is None
        if goes_on or generation.answer is None:
            return None
        http: dict[str, Any] = {"status": 200, "headers": {}}
        facts = job_facts(generation)
        try:
            result = offer.submit.result(offer.values(answer=generation.answer, input=self.input, job=facts, http=http))
        except MappingFailure:
            return None
        outcome = offer.outcome(offer.submit, result)
        return None if outcome.status in PENDING else StepAnswer(generation.answer, outcome, http)

    async def _result(self, step: Step, job: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Make the call of a step: its `result`, the JSON of the answer, and the answer's status and headers as
        templates read them (`$http`). Raises what `run` does."""
        offer = self.offer
        content, answer = await self._send(step, job)
        http = {"status": answer.status, "headers": dict(answer.headers)}
        try:
            return step.result(offer.values(answer=content, input=self.input, job=job, http=http)), content, http
        except MappingFailure as failure:
            log.error("provider %s: an answer does not fit its %s step: %s", offer.provider, step.name, failure)
            raise _failed("the answer does not fit its file", answer) from None

    async def _send(self, step: Step, job: dict[str, Any]) -> tuple[Any, Answer]:
        """Make the call of a step: the JSON of the answer, and the answer itself. Raises what `run` does."""
        offer = self.offer
        try:
            call = _call(offer, step, self._call_values(job))
        except MappingFailure as failure:
            log.error("provider %s: a request does not fit its %s step: %s", offer.provider, step.name, failure)
            raise UpstreamFailed("the request does not fit its file") from None
        answer = await self.client.open(call)
        async with answer:
            failed = answer.status >= 400 and answer.status not in step.answers
            raw = await error_body(answer) if failed else await answer.read(MOST_BYTES)
        content = await _content(raw, step, answer)
        if answer.status in step.answers:
            return content if isinstance(content, (dict, list)) else {}, answer
        if step.name in ("poll", "fetch") and answer.status in _GONE:
            raise JobGone
        if step.name == "upload" and not step.auth and answer.status >= 400:  # no error about our key: it was not sent
            raise _failed(f"the upload was answered with {answer.status}", answer)
        verdict = offer.errors.judge(answer.status, answer.headers, content, inside=False)
        if verdict is not None:
            raise verdict.error()
        if not isinstance(content, (dict, list)):
            if step.name == "upload":  # storage answers with nothing, or in XML
                return {}, answer
            raise _failed("the answer is not JSON", answer)
        return content, answer

    def _call_values(self, job: dict[str, Any]) -> Any:
        """The values for the templates of a call, before there is an answer: `$` is {input, model}."""
        model = self.offer.model.upstream
        return self.offer.values(answer={"input": self.input, "model": model}, input=self.input, job=job)


async def _content(raw: bytes, step: Step, answer: Answer) -> Any:
    """The body as the provider's file reads it. The body of an error is never read as a stream."""
    kind = answer.headers.get("content-type", "")
    if len(raw) > _MOST_VALUES and is_text(raw, kind) and too_many(raw, _MOST_VALUES):
        raise _failed(f"the answer holds more than {_MOST_VALUES} values", answer)
    try:
        content = await read_body(raw, kind, step.framing if answer.status < 400 else None)
    except ValueError as error:
        raise _failed(str(error), answer) from None
    # an empty 200 is an error, and another route may work; in an empty 202 the headers are the answer
    return content if content or answer.status != 200 or raw.strip() else ""


def _failed(message: str, answer: Answer) -> UpstreamFailed:
    return UpstreamFailed(message, upstream_status=answer.status)


def _call(offer: ImageOffer, step: Step, values: Any) -> Call:
    """The call of a step, its templates filled with `values`. Raises `BadRequest`, `MappingFailure`,
    `UpstreamFailed`."""
    url = _address(offer, step, values)
    headers = offer.headers()
    for name, read in step.headers.items():
        value = read(values)
        if value is not None:
            headers[name] = text_of(value)
        else:
            headers.pop(name, None)
    body = b""
    if step.body is not None:
        body, kind = _encode(step, step.body(values))
        if step.encoding != "file" or "content-type" not in step.headers:
            headers["content-type"] = kind
    headers.setdefault("accept", "text/event-stream" if step.framing == "sse" else "application/json")
    call = call_to(offer, step.method, url, headers, body)
    return call if step.auth else replace(call, auth=None)


def _address(offer: ImageOffer, step: Step, values: Any) -> str:
    url = step.url(values)
    if not isinstance(url, str) or not url:
        raise UpstreamFailed(f"the provider's answer holds no address for the {step.name} step")
    if step.hosts is None:
        return with_query(url, offer.query)
    if not is_admitted(url, step.hosts):
        log.error(
            "provider %s: the %s address leads to %s, which is under no host of its file, so it is not called; "
            "`hosts` has %s",
            offer.provider,
            step.name,
            origin(url),
            ", ".join(str(host) for host in step.hosts),
        )
        raise UpstreamFailed(f"the {step.name} address is under no declared host")
    return url


def _encode(step: Step, document: object) -> tuple[bytes, str]:
    if step.encoding in ("multipart", "file"):
        try:
            return encode_form(_fields(document, step)) if step.encoding == "multipart" else encode_file(document)
        except ValueError as error:
            raise BadRequest(f"input: {error}", "input") from None
    if step.encoding == "form":
        return encode_fields(_fields(document, step)), FORM
    return orjson.dumps(document), "application/json"


def _fields(document: object, step: Step) -> dict[str, Any]:
    if document is not None and not isinstance(document, dict):
        raise MappingFailure(f"a form has fields, and `body` of {step.name} came to a {type(document).__name__}")
    return document or {}


def job_error(error: TollgateError) -> str:
    """A job's `error` for a failure: in full where the caller is at fault, in our own words where the provider is."""
    if isinstance(error, (UpstreamRejected, BadRequest)):
        return error.message[:2000]
    return "the provider failed to produce the image"
