"""Runs the examples of a provider's image part: `of: images.submit.body`, `images.poll.result`, `images.submit.call`,
`images.price`.

`given` is what `$` reads, `with: {input, job, http, vars, model}` the other names; `model: <canonical id>` uses the
steps and price of one model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.mapping.example import Example
from tollgate.mapping.images.offer import ImageOffer
from tollgate.mapping.images.price import PriceMissing
from tollgate.money import decimal_text

_PARTS = ("call", "body", "headers", "result", "outcome")
IMAGE_EXAMPLES = ("images.price", *(f"images.{step}.{part}" for step in IMAGE_STEPS for part in _PARTS))
"""The values of `of` for examples about image jobs."""
IMAGE_EXAMPLES_BRING = ("input", "job", "http", "vars", "model")


def image_example(example: Example, offers: Iterable[ImageOffer]) -> Any:
    """The result of an example, with the first of these offers if it names no model. LookupError if the file does
    not have what it names."""
    by_model = {offer.model.id: offer for offer in offers}
    named = example.fields.get("model")
    offer = by_model.get(named) if named is not None else next(iter(by_model.values()), None)
    if offer is None:
        raise LookupError("this file has no image model" if named is None else "no such image model")
    more, given = example.brought, example.given
    job = {"uuid": "00000000-0000-4000-8000-000000000000", **more.get("job", {})}
    known = more.get("input", given.get("input") if isinstance(given, dict) else None)
    values = dict(offer.values(answer=given, input=known, job=job, http=more.get("http", {})))
    if named is None:
        values["$model"] = {"id": "acme/model", "upstream": "up", **more.get("model", {})}
    if "vars" in more:
        values["$vars"] = more["vars"]
    if example.of == "images.price":
        images = [dict(image) for image in job.get("images", [{}])]
        values["$job"] = {**job, "images": images}
        try:
            return decimal_text(offer.price.charge(values, tuple(images)))
        except PriceMissing:
            return "refused"
    _, step_name, part = example.of.split(".")
    step = offer.step(step_name)
    if step is None:
        raise LookupError(f"`{step_name}` is no step of this file")
    if part == "outcome":
        outcome = offer.outcome(step, step.result(values))
        return {
            key: value
            for key, value in (("status", outcome.status), ("images", list(outcome.images)), ("error", outcome.error))
            if value
        }
    if part == "call":
        return f"{step.method} {step.url(values)}"
    if part == "headers":
        return {key: read(values) for key, read in step.headers.items()}
    read = step.body if part == "body" else step.result
    return read(values) if read is not None else None
