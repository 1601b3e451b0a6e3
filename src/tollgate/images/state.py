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
    from tollgate.images.billing import Terms
    from tollgate.images.calls import StepAnswer
    from tollgate.ledger import Generation
    from tollgate.ledger.usage_row import FailedAttempt
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.mapping.images.outcome import Outcome

_NOT_IN_STATE = frozenset({"status", "images", "error"})
_MOST_VALUES = 2000
"""Held against a schema, each takes some 15 µs of the event loop. Pictures are one value each,
and nobody sends hundreds."""
UNKNOWN_WORD = "unknown status"
"""Where a job keeps the last status word that its provider's file does not list: said once, not at every poll."""


class Watch:
    """When this process asks about a pending job next, how old the job is, and on which terms this process took it
    (None: an earlier one did). `now` is of a clock that nobody sets, so that no job seems old when the time is set."""

    __slots__ = ("account_id", "began", "due", "every", "looks", "terms")

    def __init__(self, job: Generation, every: tuple[float, ...], now: float, terms: Terms | None) -> None:
        self.account_id = job.account_id
        self.every = every
        self.terms = terms
        self.began = now - max(0.0, seconds_since(job.created_at))
        self.looks = 0
        self.due = now
        self.next(now)

    def next(self, now: float) -> None:
        """Set when the job is looked at next: each time later, as the provider's file says, but never sooner than in
        two seconds, because the client may be polling too."""
        self.due = now + max(2.0, self.every[min(self.looks, len(self.every) - 1)])
        self.looks += 1


def seconds_since(then: datetime) -> float:
    """How long ago this was, by the time of day."""
    return (datetime.now(UTC) - then).total_seconds()


def check_storable(job_input: object, max_nesting: int) -> None:
    """Refuse an input that could not be checked in a moment or kept with its job: of too many values, nested too deep,
    or holding what JSON as we write it has no form for."""
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
    """What `$job` reads: everything earlier results gave, the provider's id, our own id,
    and the pictures when there are any."""
    job = {**(generation.upstream_state or {}), "uuid": generation.id}
    if generation.upstream_id:
        job["id"] = generation.upstream_id
    if outcome is not None:
        job["images"] = [dict(image) for image in outcome.images]
    return job


def with_state(generation: Generation, answer: StepAnswer) -> Generation:
    """The job with what an answer told: its id at the provider, facts for later steps, and the answer itself."""
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


def changes(after: Generation, *, ended: bool) -> dict[str, Any]:
    """The fields a step changes, for the ledger's compare-and-set."""
    names = ["provider", "status", "upstream_id", "upstream_state", "answer", "row", "updated_at", "deadline_at"]
    if ended:
        names += ["images", "cost", "error"]
    return {name: getattr(after, name) for name in names}


def attempted(generation: Generation, offer: ImageOffer, failed: FailedAttempt | None) -> Generation:
    """The job with one more attempt, at the provider of `offer`, because of the one that `failed`."""
    earlier = [*generation.row.get("earlier", ()), failed] if failed else None
    return replace(
        generation,
        provider=offer.provider,
        deadline_at=generation.created_at + timedelta(seconds=offer.give_up),
        row={
            **generation.row,
            "attempts": generation.row["attempts"] + 1,
            **({"earlier": earlier} if earlier else {}),
        },
    )


def route_of(offer: ImageOffer) -> str:
    """The name of its route, as health and rows have it."""
    return f"{offer.provider}/{offer.model.upstream}"
