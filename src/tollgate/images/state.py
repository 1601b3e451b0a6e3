"""What a stored job holds for its next step, and how a step's answer changes it. Pure: values in, values out."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from tollgate.errors import BadRequest
from tollgate.json_bounds import holds_more, too_deep

if TYPE_CHECKING:
    from tollgate.images.calls import StepAnswer
    from tollgate.ledger import Generation
    from tollgate.ledger.usage_row import FailedAttempt
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.mapping.images.outcome import Outcome

_NOT_IN_STATE = frozenset({"status", "images", "error"})
_MOST_VALUES = 2000
"""In one input: to check a value against its schema takes the event loop some 15 µs. Pictures count as one value each,
and nobody sends hundreds."""
UNKNOWN_WORD = "unknown status"
"""The name under which a job's state has the last status word that is not in its provider's file, so that it is logged
once and not at every poll."""


def seconds_since(then: datetime) -> float:
    """Seconds since this time, by the time of day; 0 for a time that is still to come because the clock was set
    back."""
    return max(0.0, (datetime.now(UTC) - then).total_seconds())


def check_storable(job_input: object, max_nesting: int) -> None:
    """Raise `BadRequest` for an input that takes too long to check or cannot be stored: too many values, nested too
    deep, or with values that our JSON cannot express."""
    if holds_more([job_input], _MOST_VALUES):
        raise BadRequest(f"input holds more than {_MOST_VALUES} values", "input")
    most = max_nesting - 1  # a body is a level around its input
    if too_deep([job_input], most + 1):
        raise BadRequest(f"input is nested more than {most} levels deep", "input")
    try:
        orjson.dumps(job_input)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"input cannot be read: {error}", "input") from None


def is_job_id(text: object) -> bool:
    """Whether this is a UUID in its usual notation."""
    if not isinstance(text, str) or len(text) != 36:
        return False
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def job_facts(generation: Generation, outcome: Outcome | None = None) -> dict[str, Any]:
    """What templates read as `$job`: the results of earlier steps, the provider's id, our own id (`uuid`), and the
    pictures if there is an outcome."""
    job = {**(generation.upstream_state or {}), "uuid": generation.id}
    if generation.upstream_id:
        job["id"] = generation.upstream_id
    if outcome is not None:
        job["images"] = [dict(image) for image in outcome.images]
    return job


def with_state(generation: Generation, answer: StepAnswer) -> Generation:
    """The job with what is in an answer: its id at the provider, values for later steps, and the answer itself."""
    facts = {
        name: value for name, value in answer.outcome.facts.items() if name not in _NOT_IN_STATE and value is not None
    }
    found = facts.pop("id", None)
    state = {**(generation.upstream_state or {}), **facts}
    if answer.outcome.unknown_word is not None:
        state[UNKNOWN_WORD] = answer.outcome.unknown_word
    return replace(
        generation,
        upstream_id=str(found) if found not in (None, "") else generation.upstream_id,
        upstream_state=state or None,
        answer=answer.body,
        updated_at=datetime.now(UTC),
    )


def was_submitted(generation: Generation) -> bool:
    """Whether a provider has accepted the job. If not, its call is running, or its process ended meanwhile."""
    return generation.answer is not None


def changes(after: Generation, *, ended: bool) -> dict[str, Any]:
    """The fields that a step may change, for the ledger's compare-and-set."""
    names = ["provider", "status", "upstream_id", "upstream_state", "answer", "row", "updated_at", "deadline_at"]
    if ended:
        names += ["images", "cost", "error"]
    return {name: getattr(after, name) for name in names}


def attempted(generation: Generation, offer: ImageOffer, failed: FailedAttempt | None) -> Generation:
    """The job with one more attempt, at the provider of `offer`; `failed` is the attempt before it, if there was
    one."""
    row = generation.row
    earlier = (*row.earlier, failed) if failed else row.earlier
    return replace(
        generation,
        provider=offer.provider,
        deadline_at=generation.created_at + timedelta(seconds=offer.give_up),
        row=replace(row, attempts=row.attempts + 1, earlier=earlier),
    )


def route_of(offer: ImageOffer) -> str:
    """The name of an offer's route, as in health and usage rows."""
    return f"{offer.provider}/{offer.model.upstream}"
