"""The examples of a provider's image part: `of: images.submit.body`, `images.poll.result`, `images.submit.call`,
`images.price`.

`given` is what `$` reads, `with: {input, job, http, vars, model}` the other names, `model: <canonical id>` picks the
steps and price of one model. They are the tests of the file, and `check` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tollgate.config.load import Map, Problem, plain
from tollgate.config.model import Provider
from tollgate.errors import TollgateError
from tollgate.mapping.images.offer import ImageOffer
from tollgate.mapping.images.price import PriceMissing
from tollgate.money import show
from tollgate.wording import clipped, nearest

_WITH = ("input", "job", "http", "vars", "model")
PARTS = ("call", "body", "headers", "result")


def is_image_example(of: object) -> bool:
    """Whether an example is about image jobs."""
    return isinstance(of, str) and of.startswith("images.")


def run_examples(provider: Provider, offers: Iterable[ImageOffer]) -> list[Problem]:
    """Run a provider's image examples; each that differs is a problem that shows what came out."""
    by_model = {offer.model.id: offer for offer in offers}
    problems = []
    for node in provider.examples.items if provider.examples else ():
        if isinstance(node, Map) and (named := node.get("of")) is not None and is_image_example(of := plain(named)):
            problem = _run(provider, node, str(of), by_model)
            if problem is not None:
                problems.append(problem)
    return problems


def _run(provider: Provider, node: Map, of: str, by_model: dict[str, ImageOffer]) -> Problem | None:
    document = provider.document
    example: dict[str, Any] = plain(node, floats=True)  # type: ignore[assignment]
    name = str(example.get("name") or of)
    more = node.get("with")
    for key, mark in more.keys.items() if isinstance(more, Map) else ():
        if key not in _WITH:
            hint = nearest(key, _WITH) or f"one of {', '.join(_WITH)}"
            return document.problem(mark, f"example `{name}`: unknown key `{key}` in `with`", hint=hint)
    offer = by_model.get(example["model"]) if "model" in example else next(iter(by_model.values()), None)
    if offer is None:
        return document.problem(
            node,
            f"example `{name}`: no such image model"
            if "model" in example
            else f"example `{name}`: this file has no image model",
        )
    try:
        got = _got(offer, of, example, named="model" in example)
    except LookupError as error:
        return document.problem(node.get("of") or node, f"example `{name}`: {error.args[0]}")
    except TollgateError as error:
        return document.problem(node, f"example `{name}` failed: {error}")
    wanted = example.get("expect")
    if got == wanted:
        return None
    return document.problem(node.get("expect") or node, f"example `{name}` differs: got {clipped(repr(got), 600)}")


def _got(offer: ImageOffer, of: str, example: dict[str, Any], *, named: bool) -> Any:
    more = example.get("with") or {}
    job = {"uuid": "00000000-0000-4000-8000-000000000000", **more.get("job", {})}
    given = example.get("given")
    known = more.get("input", given.get("input") if isinstance(given, dict) else None)
    values = dict(offer.values(answer=given, input=known, job=job, http=more.get("http", {})))
    if not named:
        values["$model"] = {"id": "acme/model", "upstream": "up", **more.get("model", {})}
    if "vars" in more:
        values["$vars"] = more["vars"]
    if of == "images.price":
        images = [dict(image) for image in job.get("images", [{}])]
        values["$job"] = {**job, "images": images}
        try:
            return show(offer.price.charge(values, tuple(images)))
        except PriceMissing:
            return "refused"
    _, _, rest = of.partition(".")
    step_name, _, part = rest.partition(".")
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
    if part not in PARTS:
        raise LookupError(f"`{part}` is no part of a step, wanted {', '.join(PARTS)} or outcome")
    if part == "call":
        return f"{step.method} {step.url(values)}"
    if part == "headers":
        return {key: read(values) for key, read in step.headers.items()}
    read = step.body if part == "body" else step.result
    return read(values) if read is not None else None
