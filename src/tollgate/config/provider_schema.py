"""The JSON Schema of a provider file (`providers/<name>.yaml`); see `schema.py` for how the schemas are used."""

from __future__ import annotations

from functools import cache
from typing import get_args

from tollgate.config import image_schema
from tollgate.config.authorisation import AUTH_OPTIONS
from tollgate.config.model import PRICES, TOKEN_PRICES, VOLUME_BOUNDS, Framing, InnerFraming, ModelType
from tollgate.config.schema import (
    CANONICAL_ID,
    DIALECT,
    ENCODINGS,
    PROTOCOL_NAME,
    PROVIDER_NAME,
    Schema,
    boolean,
    decimal,
    integer,
    one_or_many,
    record,
    seconds,
    table,
    template,
    text,
    texts,
    timeouts,
)

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
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"


@cache
def provider_schema() -> Schema:
    """One upstream service: address, authorisation, protocols, models, prices, deviations, error rules."""
    return {
        "$schema": DIALECT,
        "title": "Tollgate provider",
        **record(
            "One upstream service.",
            {
                "provider": text(
                    "Its name: that of the file.",
                    pattern=PROVIDER_NAME,
                    wanted="a name of small letters, digits, - _ and .",
                ),
                "about": text("One line for people."),
                "vars": table(
                    "Values read as `$vars.name` in addresses, headers and auth: text or `$secret.NAME`.",
                    {
                        "type": ["string", "integer", "boolean"],
                        "description": "Text, or $secret.NAME (with ? at the end: may be unset).",
                    },
                ),
                "url": template("The base address, or the complete one when `speaks` is one word."),
                "speaks": {
                    "description": "The protocols, each with its path.",
                    "wanted": "a protocol name, or a map of protocol to path",
                    "anyOf": [
                        {
                            "type": "string",
                            "pattern": PROTOCOL_NAME,
                            "description": "The one protocol; `url` is its complete address.",
                            "wanted": "a protocol name such as chat",
                        },
                        table(
                            "Protocol to path, or to everything its endpoint says.",
                            {
                                "description": "A path appended to `url`, or a map.",
                                "wanted": "a path starting with /, or a map",
                                "anyOf": [
                                    {"type": "string", "description": "A path appended to `url`."},
                                    {"$ref": "#/$defs/endpoint"},
                                ],
                            },
                            minProperties=1,
                            propertyNames={"pattern": PROTOCOL_NAME, "wanted": "a protocol name such as chat"},
                        ),
                    ],
                },
                "headers": _headers("Headers of every call."),
                "query": _headers("Query parameters of every call."),
                "auth": record(
                    "Authorisation beyond headers. Other keys are options of the kind and may name secrets.",
                    {
                        "kind": text("How calls are authorised.", enum=list(AUTH_OPTIONS)),
                        "form": _headers("All fields of the token request, instead of a client's id and secret."),
                        "headers": _headers("Headers of the token request."),
                        "query": text("The query parameter the token is sent in, instead of a header.", minLength=1),
                    },
                    additionalProperties=template("An option of this kind of authorisation."),
                    required=["kind"],
                ),
                **_edits("every protocol of this provider"),
                "policies": _policies(),
                "policies_from": one_or_many(
                    text("A file, relative to this one.", minLength=1),
                    "Files with more policies; they come after these.",
                ),
                "can": _can(),
                "usage": {"$ref": "#/$defs/usage"},
                "errors": {"$ref": "#/$defs/errors"},
                "timeouts": timeouts("Budgets of this provider."),
                "proxy": text(
                    "An HTTP proxy for this provider.",
                    pattern=r"^(https?|socks5h?)://\S+$",
                    wanted="an address like http://proxy.example:3128",
                    hidden=True,
                ),
                "verify_tls": boolean("Whether certificates are checked.", default=True),
                "ca_file": text(
                    "A file with extra certificate authorities; relative to the file this stands in.", minLength=1
                ),
                "priority": integer("Which provider of a model is tried first: the lower.", default=0),
                "weight": integer("Share among providers of equal priority.", minimum=0, maximum=1000, default=1),
                "models": _models(),
                "models_from": one_or_many(
                    text("A file, relative to this one.", minLength=1), "Files with more models; `models` here wins."
                ),
                "images": image_schema.images(),
                "discover": record(
                    "The provider's own list of models, read while running.",
                    {
                        "url": template("The address of the list."),
                        "headers": _headers("Headers of that call, when they differ."),
                        "every": {**seconds("How often.", default=3600), "maximum": 2_592_000},
                        "list": {
                            **template("Where the entries are."),
                            "type": ["string", "object"],
                            "pattern": r"^\s*(\$|\{\{)",
                            "wanted": "where the entries are, such as $.data",
                        },
                        "model": {
                            "type": "object",
                            "description": "How an entry's fields become a model's; `id` is its canonical id.",
                            "required": ["id"],
                        },
                        "when": {"description": "Which entries count: an expression over `$`."},
                    },
                    required=["url", "list", "model"],
                ),
                "define": {"type": "object", "description": "Functions of the mapping language."},
                "examples": {
                    "type": "array",
                    "items": {"type": "object"},
                    "description": "Examples: documents to convert and what must come out.",
                },
            },
            required=["provider"],
        ),
        "$defs": {
            "endpoint": _endpoint(), "model": _model(), "price": _price(),
            "prices": record("Prices that replace the base ones.", _price_fields(), minProperties=1),
            "errors": _errors(),
            "usage": record(
                "How this provider counts.",
                {
                    "excludes": {
                        "type": "array",
                        "uniqueItems": True,
                        "items": {"type": "string", "enum": ["cache_read", "cache_write", "reasoning"]},
                        "description": "Counts that are not inside their parent (input for the caches, output for "
                                       "reasoning).",
                    },
                    "read": template("Hub usage from an answer or event, instead of the mapping's."),
                },
            ),
        },
    }


@cache
def models_schema() -> Schema:
    """A file of models that a provider names under `models_from`."""
    return {
        "$schema": DIALECT,
        "title": "Tollgate models of a provider",
        **record("Models of one provider.", {
            "from": record("What `tollgate catalog import` wrote this file from.", {
                "provider": text("The provider's name in the facts file.", minLength=1),
                "only": texts("Globs: only these models."),
                "without": texts("Globs: all but these models."),
            }, required=["provider"]),
            "models": _models(),
        }, required=["models"]),
        "$defs": {name: provider_schema()["$defs"][name] for name in ("model", "price", "prices")},
    }


def _models() -> Schema:
    return table("Canonical id to what this provider offers under it.", {"$ref": "#/$defs/model"},
                 propertyNames={"pattern": CANONICAL_ID, "wanted": "a canonical id vendor/model"})


def _headers(about: str) -> Schema:
    return table(
        about, {"type": ["string", "integer", "number", "object"], "description": "A template; may hold $secret.NAME."}
    )


def _edits(scope: str) -> dict[str, Schema]:
    def edits(what: str) -> Schema:
        return {
            "type": "array",
            "items": {"type": "object", "minProperties": 1},
            "description": f"Edits over {what} of {scope}.",
        }

    return {"request": edits("requests"), "response": edits("answers"), "stream": edits("stream events")}


def _can() -> Schema:
    return {
        "type": "object",
        "description": "What this upstream takes beyond its protocol; read as `$can` in mappings.",
    }


@cache
def policies_schema() -> Schema:
    """A file of policies that providers name under `policies_from`."""
    return {
        "$schema": DIALECT,
        "title": "Tollgate policies of several providers",
        **record("Policies.", {"policies": _policies()}, required=["policies"]),
    }


def _policies() -> Schema:
    return {
        "type": "array",
        "description": "Edits and abilities for models by pattern, top to bottom.",
        "items": record(
            "One policy.",
            {
                "match": one_or_many(
                    text("A glob over canonical or upstream ids.", minLength=1),
                    "Which models; with a ! in front: which not.",
                ),
                "priority": integer("Instead of the provider's."),
                "protocols": texts("Only under these upstream protocols."),
                **_edits("these models"),
                "can": _can(),
            },
            required=["match"],
        ),
    }


def _endpoint() -> Schema:
    return record(
        "One protocol's endpoint.",
        {
            "path": text("Appended to the provider's `url`.", pattern="^/", wanted="a path starting with /"),
            "models": one_or_many(
                text("A glob over canonical or upstream ids.", minLength=1),
                "Only these models are served here; with a ! in front: all but these.",
            ),
            "url": template("The complete address instead of `url` and `path`."),
            "stream_url": template("The address of streamed calls when it differs; a path is appended to `url`."),
            "mapping": text(
                "The mapping file when it is not the protocol's own.",
                pattern=PROTOCOL_NAME,
                wanted="the name of a mapping",
            ),
            "framing": text(
                "How events are cut out of a stream. The events of `sse-text` are plain text.",
                enum=list(get_args(Framing)),
                default="sse",
            ),
            "inner": text(
                "Of `aws-eventstream`: how events are cut out of what its frames carry, where that is a stream cut "
                "anywhere.",
                enum=list(get_args(InnerFraming)),
            ),
            "unwrap": text("An expression: the event inside a frame."),
            "headers": _headers("Headers of this endpoint."),
            "query": _headers("Query parameters of this endpoint."),
            **_edits("this endpoint"),
            "can": _can(),
            "usage": {"$ref": "#/$defs/usage"},
            "errors": {"$ref": "#/$defs/errors"},
            "batch": integer("Embeddings: most inputs in one call.", minimum=1, maximum=100_000),
            "count_tokens": template("Where tokens are counted: a path or an address."),
        },
    )


def _model() -> Schema:
    words = texts
    return record(
        "One model of this provider.",
        {
            "upstream": text("Its name there. Default: the canonical id without its vendor.", minLength=1),
            "aliases": {
                "type": "array",
                "items": {"type": "string", "pattern": r"^\S+$", "wanted": "a name without blanks"},
                "description": "Other names clients may use.",
            },
            "name": text("Display name."),
            "description": text("Markdown."),
            "type": text(
                "What it is. Default: image with an `input_schema`, embedding when the provider speaks only that, "
                "else chat.",
                enum=list(get_args(ModelType)),
            ),
            "created": integer("Unix seconds of publication; 0 unknown.", minimum=0, default=0),
            "canonical_slug": text("Default: the canonical id."),
            "hugging_face_id": text("Where the weights are public."),
            "context": integer("Most prompt tokens.", minimum=0, default=0),
            "max_output": integer("Most generated tokens.", minimum=1),
            "modalities": record(
                "What goes in and comes out.",
                {"input": words("text, image, file, audio, ..."), "output": words("text, ...")},
            ),
            "tokenizer": text("Tokenizer family.", default="Other"),
            "encoding": text("Encoding for counting here when the upstream does not say.", enum=list(ENCODINGS)),
            "instruct_type": text("Prompt format of base models."),
            "parameters": words("Request parameters the provider acts on."),
            "dimensions": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1},
                "description": "Embedding sizes a request may ask for.",
            },
            "max_dimension": integer("Largest embedding size. Default: the largest of `dimensions`.", minimum=1),
            "max_inputs": integer("Most inputs of one embeddings request.", minimum=1, maximum=1_000_000, default=2048),
            "protocols": words("Only through these protocols of the provider."),
            "price": {"$ref": "#/$defs/price"},
            **_edits("this model"),
            "can": _can(),
            "timeouts": timeouts("Budgets of this model."),
            "priority": integer("Instead of the provider's."),
            "weight": integer("Instead of the provider's.", minimum=0, maximum=1000),
            "public": boolean("Shown in the catalog without a key.", default=True),
            "tags": words("Labels, as text-to-image."),
            "retires": text("Date of withdrawal.", pattern=r"^\d{4}-\d{2}-\d{2}$", wanted="a date like 2027-01-31"),
            "input_schema": {"type": "object", "description": "Image models: JSON Schema of `input`."},
            **image_schema.model_keys(),
        },
        type=["object", "null"],
    )


def _price_fields() -> dict[str, Schema]:
    return {
        name: decimal(_PRICE_WORDS[name] + (" Per `unit` tokens." if name in TOKEN_PRICES else "")) for name in PRICES
    }


def _price() -> Schema:
    counts = {
        name: integer(f"{about} this many.", minimum=0)
        for name, about in zip(
            VOLUME_BOUNDS,
            ("Prompts of more than", "Prompts of at most", "Answers of more than", "Answers of at most"),
            strict=True,
        )
    }
    return record(
        "Prices as exact decimals in quotes.",
        {
            **_price_fields(),
            **image_schema.price_keys(),
            "unit": integer(
                "How many tokens (or pictures) a price is for.", minimum=1, maximum=1_000_000_000, default=1
            ),
            "currency": text(
                "ISO code.", pattern="^[A-Z]{3}$", wanted="a currency code of three capital letters", default="USD"
            ),
            "volumes": {
                "type": "array",
                "description": "Tiers: rows that replace prices when all their bounds hold; all matching rows apply, "
                               "in order.",
                "items": record(
                    "One tier.", {**counts, "thinking": boolean("Only with thinking on (or off)."), **_price_fields()}
                ),
            },
            "service_tiers": table("Prices by the request's service_tier.", {"$ref": "#/$defs/prices"}),
            "windows": {
                "type": "array",
                "description": "Prices by time of day.",
                "items": record(
                    "One window.",
                    {
                        "start": text("UTC, inclusive.", pattern=_TIME, wanted='a time like "16:30"'),
                        "end": text(
                            "UTC, exclusive; may be past midnight.", pattern=_TIME, wanted='a time like "16:30"'
                        ),
                        "days": {
                            "type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7}, "minItems": 1,
                            "uniqueItems": True, "description": "ISO weekdays, 1 is Monday.",
                        },
                        "prices": {"$ref": "#/$defs/prices"},
                    },
                    required=["start", "end", "prices"],
                ),
            },
            "multipliers": table("Named factors, as residency.", decimal("The factor.")),
            "why": text("What is unusual about these prices: said here, they are no longer warned of."),
        },
    )


def _errors() -> Schema:
    status: Schema = {"type": "integer", "minimum": 100, "maximum": 599, "wanted": "an HTTP status from 100 to 599"}

    def statuses(about: str) -> Schema:
        return {"type": "array", "items": status, "description": about}

    fields = {
        name: template(about)
        for name, about in (
            ("message", "The error's text."),
            ("type", "Its type."),
            ("code", "Its code."),
            ("param", "The field at fault."),
            ("retry_after", "Seconds to wait."),
        )
    }
    return record(
        "What the provider's errors mean.",
        {
            **fields,
            "retry": statuses("Another route; this one may be used again later."),
            "next": statuses("Only another route will do."),
            "stop": statuses("The caller's fault: passed on."),
            "credit": statuses("Our balance is empty: another route, and an alarm."),
            "key": statuses("Our key is bad: another route, and an alarm."),
            "rules": {
                "type": "array",
                "description": "Tried in order, before the lists; also on a 200 body and on stream events.",
                "items": record(
                    "One rule.",
                    {
                        "when": {"type": ["string", "boolean"], "description": "An expression over the body."},
                        "status": one_or_many(status, "Only these statuses."),
                        "verdict": text("What follows.", enum=["later", "next", "stop"]),
                        "alarm": text("What the operator is told.", enum=["balance", "key"]),
                        "as": {**status, "description": "The status it counts as."},
                        **fields,
                    },
                    required=["verdict"],
                ),
            },
        },
    )
