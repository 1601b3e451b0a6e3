"""Reads a provider's answer to an embeddings request: its errors, its vectors and its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tollgate.completions.judging import AttemptFailed, unfit_answer, unusable
from tollgate.embeddings.request import Item
from tollgate.embeddings.vectors import Native
from tollgate.mapping import Context, MappingFailure
from tollgate.mapping.failures import clean
from tollgate.routing import Offer
from tollgate.upstream import Answer
from tollgate.usage import MAX_TOKENS

_YIELD_EVERY = 32
"""Vectors converted before other requests get a turn; one of 1,536 floats takes about 0.1 ms."""


@dataclass(slots=True)
class Embedded:
    """A provider's answer to these inputs: the native answer as received, or the vectors as JSON text."""

    items: list[Item]
    native: Native | None = None
    vectors: list[bytes] = field(default_factory=list)
    tokens: int = 0
    estimated: bool = False
    """Whether some of the tokens were counted locally."""
    model: str = ""
    rest: dict[str, Any] = field(default_factory=dict)
    """Further fields of a native answer, which are passed to the client."""


async def parsed(
    offer: Offer, part: Embedded, raw: bytes, answer: Answer, written: Callable[[object], bytes]
) -> Embedded:
    """Parse an answer: check it for errors, edit and convert it, and write its vectors as text with `written`. Raises
    `AttemptFailed`."""
    body = _judged(offer, raw, answer)
    del raw
    if offer.response_edits is not None:
        try:
            body = offer.response_edits(body, Context(model=offer.model_facts, can=offer.can))
        except MappingFailure as failure:
            raise AttemptFailed(unfit_answer(offer, failure)) from None
    reported = offer.usage.read(body, answer_headers=dict(answer.headers)) if offer.usage.read is not None else None
    data = body.get("data") if isinstance(body, dict) else None
    if isinstance(data, list) and all(isinstance(item, dict) and isinstance(item.get("index"), int) for item in data):
        data.sort(key=lambda item: item["index"])
    hub = hub_of(offer, body)
    vectors = hub.get("vectors")
    if not isinstance(vectors, list) or len(vectors) != len(part.items):
        raise unusable(
            f"got {len(vectors) if isinstance(vectors, list) else 'no'} vectors for {len(part.items)} inputs", 200
        )
    await _write(part, vectors, data, written)
    part.tokens = input_tokens(reported if isinstance(reported, Mapping) else hub.get("usage"))
    part.model = hub["model"] if isinstance(hub.get("model"), str) else ""
    if offer.protocol == "embeddings":
        part.rest = {name: value for name, value in body.items() if name not in ("object", "data", "model", "usage")}
    return part


def _judged(offer: Offer, raw: bytes, answer: Answer) -> Any:
    """The parsed JSON of an answer. Raises `AttemptFailed` if it is an error, or not an answer in this format."""
    body: Any
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = raw[:4096].decode("utf-8", "replace")
    verdict = offer.errors.judge(answer.status, answer.headers, body)
    if verdict is not None:
        raise AttemptFailed(verdict.error())
    if not isinstance(body, dict) and (offer.protocol == "embeddings" or not isinstance(body, list)):
        raise unusable("the answer is not a JSON object", 200)
    return body


async def _write(part: Embedded, vectors: list[Any], data: object, written: Callable[[object], bytes]) -> None:
    """Add the vectors to the part as text. Other tasks run in between. Raises `AttemptFailed` for an invalid vector."""
    vectors.reverse()  # taken from the end, so that the numbers of each vector are freed after its text is written
    while vectors:
        try:
            part.vectors.append(written(vectors.pop()))
        except ValueError as error:
            raise unusable(str(error), 200) from None
        if len(part.vectors) % _YIELD_EVERY == 0:
            if isinstance(data, list):
                data[: len(part.vectors)] = [None] * len(part.vectors)
            await asyncio.sleep(0)


def hub_of(offer: Offer, body: object) -> dict[str, Any]:
    """An answer in the hub. Raises `AttemptFailed` if the mapping of its format cannot read it."""
    context = Context(model=offer.model_facts, can=offer.can, lenient=True)
    try:
        with clean((offer.mapping.file,), request=False):
            return offer.mapping.sections["response.to_hub"](body, context) or {}
    except MappingFailure as failure:
        raise AttemptFailed(unfit_answer(offer, failure)) from None


def input_tokens(usage: object) -> int:
    """The input tokens in a provider's usage; 0 if there are none or the number is implausible."""
    found = usage.get("input") if isinstance(usage, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= MAX_TOKENS else 0
