"""`tollgate convert --from images`: what an image model's file makes of an input, or of a provider's answer.

An input (`{"prompt": ...}`) gives the calls for it. With `--answer`, FILE is the provider's answer to a step (`--to
submit`, `poll` or `fetch`), and the resulting job is shown, with its price if it is done.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from tollgate.cli.books import compiled, fail, print_json
from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.mapping.images.offer import ImageOffer
from tollgate.mapping.images.price import PriceMissing
from tollgate.money import decimal_text
from tollgate.wording import did_you_mean

if TYPE_CHECKING:
    from tollgate.cli.convert_job import Options


def convert_image(raw: bytes, name: str, options: Options) -> None:
    """Print what the content of the file `name` becomes, as JSON. Raises `TollgateError` when the input is refused or
    does not fit."""
    step = options.target
    if options.model is None:
        raise click.UsageError("--from images needs --model")
    if step is not None and step not in IMAGE_STEPS:
        raise click.UsageError(f"--to is a step of the job: {', '.join(IMAGE_STEPS)}")
    if step is not None and options.what is None:
        raise click.UsageError(f"--to {step} says which step's answer FILE is: add --answer")
    offer = _offer(options.path, options.model, options.provider)
    try:
        given = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        fail(f"{name}: found no JSON: {error}")
    print_json(_answer(offer, step, given) if options.what == "response" else _request(offer, given))


def _request(offer: ImageOffer, given: Any) -> dict[str, Any]:
    """The input with its defaults, the call that submits it (without headers, which have the key), and the amount
    held for it."""
    filled = offer.schema.admit(
        given["input"] if isinstance(given, dict) and isinstance(given.get("input"), dict) else given
    )
    job = {"uuid": "00000000-0000-4000-8000-000000000000"}
    values = offer.values(answer={"input": filled, "model": offer.model.upstream}, input=filled, job=job)
    step = offer.submit
    before = [each.name for each in offer.before if each.when is None or each.when(values)]
    try:
        price = decimal_text(offer.price.expected(values))
    except PriceMissing as missing:
        price = f"refused: no price is set for {missing}"
    return {
        "provider": offer.provider,
        "input": filled,
        **({"before": before} if before else {}),
        "call": f"{step.method} {step.url(values)}",
        "encoding": step.encoding,
        "body": step.body(values) if step.body else None,
        "price": price,
        "currency": offer.price.currency,
    }


def _answer(offer: ImageOffer, name: str | None, given: Any) -> dict[str, Any]:
    """What a provider's answer to a step means: the step's result, and the state of the job."""
    name = name or ("submit" if offer.synchronous else "poll")
    step = offer.step(name)
    if step is None:
        fail(f"{offer.provider} has no {name} step")
    values = offer.values(answer=given, input={}, job={}, http={"status": 200, "headers": {}})
    result = step.result(values)
    outcome = offer.outcome(step, result)
    shown = {
        "provider": offer.provider,
        "step": name,
        "result": result,
        "status": outcome.status,
        "images": list(outcome.images),
        "error": outcome.error or None,
    }
    if outcome.unknown_word is not None:
        shown["unknown_word"] = outcome.unknown_word
    if outcome.status == "succeeded" and outcome.images:
        job = {**(result if isinstance(result, dict) else {}), "images": list(outcome.images)}
        shown |= {
            "price": decimal_text(offer.price.charge(offer.values(answer=given, input={}, job=job), outcome.images)),
            "currency": offer.price.currency,
        }
    return shown


def _offer(path: Path | None, model: str, provider: str | None) -> ImageOffer:
    """The image offer of a model, also of a provider that is off: converting needs no key."""
    providers = compiled(path, everything=True).providers
    offers = [offer for name, each in providers.items() if provider in (None, name) for offer in each.images]
    found = [offer for offer in offers if model in (offer.model.id, *offer.model.aliases)]
    if not found:
        hint = did_you_mean(model, [offer.model.id for offer in offers])
        fail(f"no image model {model}{f' at {provider}' if provider else ''}{f' ({hint})' if hint else ''}")
    return min(found, key=lambda offer: offer.model.priority)
