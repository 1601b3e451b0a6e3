"""The parts of a provider file's schema about image jobs: steps, status words, and prices other than one per picture.

The mapping compiler checks the templates and expressions in them; the schema has their shape, for messages and editors.
"""

from __future__ import annotations

from typing import get_args

from tollgate.config.model import StepEncoding, StepFraming
from tollgate.config.schema import (
    Schema,
    boolean,
    condition,
    decimal,
    headers,
    integer,
    listed,
    made,
    record,
    seconds,
    structure,
    table,
    template,
    text,
    texts,
)
from tollgate.wire import GENERATION_STATUSES

_WHEN = condition("Only where this expression holds, as `$input.image`.")
UPLOAD_STEPS = ("prepare", "upload")
"""The calls that upload a picture to a provider before the job that uses it, in order."""
IMAGE_STEPS = (*UPLOAD_STEPS, "submit", "poll", "fetch")
"""The calls of an image job, in order."""
GIVE_UP = 600
"""Seconds after which an unfinished job counts as failed, unless its file says others."""


def images() -> Schema:
    """The `images:` block of a provider."""
    return record(
        "Image jobs: what submits one, what asks about it, what fetches its pictures.",
        {
            "prepare": step(
                "Before `upload`: asks where a picture of the input is to go.", {"when": _WHEN}, wanted=("call",)
            ),
            "upload": step("Before `submit`: sends a picture of the input there.", {"when": _WHEN}, wanted=("call",)),
            "submit": step(
                "The call that begins a job; the only one of a provider that answers with the pictures at once."
            ),
            "poll": step(
                "Asks how a job is doing.",
                {"every": pauses(), "give_up": seconds("When a job that has not ended is failed.", default=GIVE_UP)},
            ),
            "fetch": step("Gets the pictures of a succeeded job, where the poll does not bring them."),
            "statuses": table(
                "The provider's status words, matched exactly, and ours.",
                text("Ours.", enum=list(GENERATION_STATUSES)),
                minProperties=1,
            ),
            "give_up": seconds("When a job that has not ended is failed, for providers without poll.", default=GIVE_UP),
        },
        required=["submit"],
    )


def hosts() -> Schema:
    """The hosts that an address taken from an answer may have."""
    return texts(
        "Host suffixes under which an address out of an answer may be called; it gets our key. https on its usual "
        "port, or as http://127.0.0.1:9000."
    )


def pauses() -> Schema:
    """The seconds to wait between polls."""
    return listed("Pauses between polls in seconds; the last repeats.", seconds("One pause."), minItems=1)


def step(about: str, more: dict[str, Schema] | None = None, *, wanted: tuple[str, ...] = ("call", "result")) -> Schema:
    """One call of a job; `wanted` are its required keys."""
    keys = {
        "call": template(
            "Method and address. As `POST https://api.example/v1/jobs`; an address out of an answer needs `hosts`."
        ),
        "hosts": hosts(),
        "headers": headers("Headers of this call."),
        "auth": boolean(
            "Whether the provider's `auth` authorises this call; false for an address that is signed already.",
            default=True,
        ),
        "body": {
            **template("What is sent; `$` is {input, model}."),
            "type": ["object", "array", "string"],
            "wanted": "a template; a call without a body has no such key",
        },
        "encoding": text(
            "How the body is sent; file: as the bytes that base64 or a data address holds.",
            enum=list(get_args(StepEncoding)),
            default="json",
        ),
        "framing": text(
            "The answer is a stream: `$` is the list of its events, of sse as {event, data}.",
            enum=list(get_args(StepFraming)),
        ),
        "answers": listed(
            "Statuses that are answers to this step, as 303 with the address of a finished job, or 500 as a job's end.",
            integer("A status.", minimum=300, maximum=599),
            minItems=1,
        ),
        "result": made(
            "The job in our words: id, status, images, error, and facts for later steps; `$` is the answer."
        ),
        **(more or {}),
    }
    return record(about, keys, **({"required": list(wanted)} if wanted else {}))


def model_keys() -> dict[str, Schema]:
    """The keys of an image model, other than its price and schema."""
    return {
        "bill": template("Image models: how many units a finished job costs. Default: its pictures."),
        **{
            name: step(
                f"Image models: what differs from the provider's `images.{name}`.",
                {"when": _WHEN} if name in UPLOAD_STEPS else None,
                wanted=(),
            )
            for name in IMAGE_STEPS
        },
    }


def price_keys() -> dict[str, Schema]:
    """The keys in the price block of an image model; `price` is shown in the catalog, and charged when no other
    price is found."""
    unit = integer("Price of so many.", minimum=1, maximum=1_000_000_000, default=1)
    return {
        "price": decimal("Image models: one unit, usually a picture."),
        "cases": listed(
            "Image models: other prices under a condition, the first that holds.",
            record(
                "One case.",
                {
                    "when": text("An expression over $input, $job and the answer."),
                    "price": decimal("One unit."),
                },
                required=["when", "price"],
            ),
        ),
        "per": text("Image models: what a unit is.", enum=["image", "megapixel"], default="image"),
        "pixels": integer("Image models: pixels of a megapixel.", minimum=1000, maximum=10_000_000, default=1_000_000),
        "whole": boolean("Image models: megapixels of a picture are rounded up.", default=False),
        "further": decimal("Image models: each megapixel of a picture after the first, where that one is dearer."),
        "by": listed(
            "Image models: what the table is keyed by.", template("A key of the table."), minItems=1, maxItems=5
        ),
        "table": structure("Image models: prices by the values of `by`, nested in that order.", minProperties=1),
        "lines": listed(
            "Image models: counted lines of the bill, added up.",
            record(
                "One line.",
                {"count": template("How many."), "price": decimal("Per `unit`."), "unit": unit},
                required=["count", "price"],
            ),
            minItems=1,
        ),
        "told": record(
            "Image models: the cost as the answer tells it.",
            {
                "amount": template("The figure."),
                "unit": {
                    **unit,
                    "maximum": 10**12,
                    "description": "How many of it make one of the currency, as 100 for cents.",
                },
            },
            required=["amount"],
        ),
        "times": listed(
            "Image models: factors out of the request.",
            record(
                "One factor.",
                {"count": template("The figure."), "unit": {**unit, "description": "What counts as one."}},
                required=["count"],
            ),
            minItems=1,
        ),
        "asked": template("Image models: how many pictures a request asks for."),
        "size": listed(
            "Image models: width and height asked for, where pictures come without theirs.",
            template("Pixels."),
            minItems=2,
            maxItems=2,
        ),
        "miss": text(
            "Image models: what happens when cases and table have no price.", enum=["price", "refuse"], default="price"
        ),
    }


PRICE_KEYS = tuple(price_keys())
"""Keys of a price block that only image models have."""
