"""The parts of a provider file's schema that describe one model and its prices."""

from __future__ import annotations

from typing import get_args

from tollgate.config import image_schema
from tollgate.config.model import ModelType
from tollgate.config.pricing import PRICES, TOKEN_PRICES
from tollgate.config.schema import (
    ENCODINGS,
    Schema,
    boolean,
    can,
    decimal,
    edits,
    in_text,
    integer,
    listed,
    record,
    structure,
    table,
    text,
    texts,
    timeouts,
)

_DATE = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"
_PRICE_WORDS = {
    "prompt": "Prompt tokens.",
    "completion": "Generated tokens.",
    "input_cache_read": "Prompt tokens served by a cache; left out: the prompt price.",
    "input_cache_write": "Prompt tokens stored in a cache; left out: the prompt price.",
    "input_cache_write_1h": "Prompt tokens stored for an hour.",
    "internal_reasoning": "Reasoning tokens; left out: the completion price.",
    "audio": "Audio tokens of the prompt.",
    "input_audio_cache": "Audio tokens of the prompt served by a cache; left out: the price of other cached tokens.",
    "audio_output": "Generated audio tokens.",
    "image_output_token": "Tokens of generated pictures; left out: the completion price.",
    "request": "Each call.",
    "image": "Each picture of the prompt.",
    "web_search": "Each hosted search.",
}
_TIME = {"pattern": r"^([01][0-9]|2[0-3]):[0-5][0-9]$", "wanted": 'a time like "16:30"'}
_WEEKDAY: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": 7,
    "wanted": "a day of the week, from 1 (Monday) to 7 (Sunday)",
}


def model() -> Schema:
    """One model of a provider: its facts, its price, and its differences from the provider's other models."""
    return record(
        "One model of this provider.",
        {
            "upstream": text("Its name there. Default: the canonical id without its vendor.", minLength=1),
            "aliases": listed(
                "Other names clients may use.",
                {"type": "string", "pattern": r"^\S+$", "wanted": "a name without blanks"},
            ),
            "name": text("Display name."),
            "description": text("Markdown."),
            "type": text(
                "What it is. Default: image with an `input_schema`, embedding when the provider speaks only that, "
                "else chat.",
                enum=list(get_args(ModelType)),
            ),
            "created": integer("Unix seconds of publication; 0 unknown.", minimum=0, default=0, wanted="Unix seconds"),
            "canonical_slug": text("Default: the canonical id."),
            "hugging_face_id": text("Where the weights are public."),
            "context": integer("Most prompt tokens.", minimum=0, default=0),
            "max_output": integer("Most generated tokens.", minimum=1),
            "modalities": record(
                "What goes in and comes out.",
                {"input": texts("text, image, file, audio, ..."), "output": texts("text, ...")},
            ),
            "tokenizer": text("Tokenizer family.", default="Other"),
            "encoding": text("Encoding for counting here when the upstream does not say.", enum=list(ENCODINGS)),
            "instruct_type": text("Prompt format of base models."),
            "parameters": texts("Request parameters the provider acts on."),
            "dimensions": listed("Embedding sizes a request may ask for.", {"type": "integer", "minimum": 1}),
            "max_dimension": integer("Largest embedding size. Default: the largest of `dimensions`.", minimum=1),
            "max_inputs": integer("Most inputs of one embeddings request.", minimum=1, maximum=1_000_000, default=2048),
            "protocols": texts("Only through these protocols of the provider."),
            "price": {"$ref": "#/$defs/price"},
            **edits("this model"),
            "can": can(),
            "in_text": in_text(),
            "timeouts": timeouts("Budgets of this model."),
            "priority": integer("Instead of the provider's."),
            "weight": integer("Instead of the provider's.", minimum=0, maximum=1000),
            "public": boolean("Shown in the catalog without a key.", default=True),
            "tags": texts("Labels, as text-to-image."),
            "retires": text("Date of withdrawal.", pattern=_DATE, wanted="a date like 2027-01-31"),
            "input_schema": structure("Image models: JSON Schema of `input`."),
            **image_schema.model_keys(),
        },
        type=["object", "null"],
    )


def price() -> Schema:
    """A price block: base prices and their unit, and the tiers, windows and factors that change them."""
    return record(
        "Prices as exact decimals in quotes.",
        {
            **price_fields(),
            **image_schema.price_keys(),
            "unit": integer(
                "How many tokens (or pictures) a price is for.", minimum=1, maximum=1_000_000_000, default=1
            ),
            "currency": text(
                "ISO code.", pattern="^[A-Z]{3}$", wanted="a currency code of three capital letters", default="USD"
            ),
            "volumes": listed(
                "Tiers: rows that replace prices when all their bounds hold; all matching rows apply, in order.",
                record(
                    "One tier.",
                    {
                        "min_prompt_tokens": integer("Prompts of more than this many.", minimum=0),
                        "max_prompt_tokens": integer("Prompts of at most this many.", minimum=0),
                        "min_completion_tokens": integer("Answers of at least this many.", minimum=0),
                        "max_completion_tokens": integer("Answers of at most this many.", minimum=0),
                        "thinking": boolean("Only with thinking on (or off)."),
                        "word": text("Only where the request or its usage says this word (`usage.words`)."),
                        **price_fields(),
                    },
                ),
            ),
            "service_tiers": table("Prices by the request's service_tier.", {"$ref": "#/$defs/prices"}),
            "windows": listed(
                "Prices by time of day.",
                record(
                    "One window.",
                    {
                        "start": text("UTC, inclusive.", **_TIME),
                        "end": text(
                            "UTC, exclusive; may be past midnight. The same as start is a whole day.",
                            **_TIME,
                        ),
                        "days": listed(
                            "ISO weekdays, 1 is Monday.",
                            _WEEKDAY,
                            minItems=1,
                            uniqueItems=True,
                        ),
                        "prices": {"$ref": "#/$defs/prices"},
                    },
                    required=["start", "end", "prices"],
                ),
            ),
            "multipliers": table("Named factors, as residency.", decimal("The factor.")),
            "why": text("What is unusual about these prices: said here, they are no longer warned of."),
        },
    )


def price_fields() -> dict[str, Schema]:
    """Every price by its name, for the base block and for rows that replace some of its prices."""
    return {
        name: decimal(_PRICE_WORDS[name] + (" Per `unit` tokens." if name in TOKEN_PRICES else "")) for name in PRICES
    }
