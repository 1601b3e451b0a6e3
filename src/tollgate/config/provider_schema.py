"""The JSON Schemas of a provider file (`providers/<name>.yaml`) and of the files it may name; see `schema.py` for how
the schemas are used. Its models and their prices are in `model_schema.py`, its endpoints in `endpoint_schema.py`, its
image jobs in `image_schema.py`."""

from __future__ import annotations

from functools import cache
from typing import Any

from tollgate.config import image_schema
from tollgate.config.authorisation import AUTH_OPTIONS
from tollgate.config.endpoint_schema import endpoint, speaks
from tollgate.config.model_schema import model, price, price_fields
from tollgate.config.schema import (
    CANONICAL_ID,
    PROVIDER_NAME,
    Schema,
    address,
    boolean,
    can,
    condition,
    edits,
    headers,
    in_text,
    integer,
    listed,
    one_or_many,
    parameters,
    record,
    seconds,
    structure,
    table,
    template,
    text,
    texts,
    timeouts,
    whole_file,
)

OWN = frozenset({"provider", "shared", "models_from", "ca_file", "client_certificate"})
"""Keys that only the provider's own file may have: its name, and names of other files, which are relative to it."""
DISCOVER_EVERY = 3600
"""Seconds between two requests of a list of models, unless its file says others (SPEC: hourly)."""

ERROR_FIELDS = {
    "message": "The error's text.",
    "type": "Its type.",
    "code": "Its code.",
    "param": "The field at fault.",
    "retry_after": "Seconds to wait; it may read `$now`, the Unix time, for the moment of the next try.",
}
"""Keys of `errors:` and of its rules: what is read in the body of an error."""
ERROR_LISTS = {
    "retry": "Another route; this one may be used again later.",
    "next": "Only another route will do.",
    "stop": "The caller's fault: passed on.",
    "credit": "Our balance is empty: another route, and an alarm.",
    "key": "Our key is bad: another route, and an alarm.",
}
"""Keys of `errors:` with lists of statuses, in the order in which they apply."""


@cache
def provider_schema() -> Schema:
    """One upstream service: address, authorisation, protocols, models, prices, edits, error rules."""
    return whole_file(
        "Tollgate provider",
        "One upstream service.",
        {
            "provider": text(
                "Its name: that of the file.",
                pattern=PROVIDER_NAME,
                wanted="a name of small letters, digits, - _ and .",
            ),
            "about": text("One line for people."),
            "shared": one_or_many(
                text("A file, relative to this one.", minLength=1),
                "Files with what several providers have in common; what stands here wins, lists of edits, "
                "policies, rules and examples are joined.",
            ),
            "vars": table(
                "Values read as `$vars.name` in addresses, headers and auth: text or `$secret.NAME`.",
                {
                    "type": ["string", "integer", "boolean"],
                    "description": "Text, or $secret.NAME (with ? at the end: may be unset).",
                },
            ),
            "url": address("The base address, or the complete one when `speaks` is one word."),
            "speaks": speaks(),
            "headers": headers("Headers of every call."),
            "query": parameters("Query parameters of every call, except to an address out of an answer."),
            "auth": _auth(),
            **edits("every protocol of this provider"),
            "policies": _policies(),
            "can": can(),
            "in_text": in_text(),
            "usage": {"$ref": "#/$defs/usage"},
            "errors": {"$ref": "#/$defs/errors"},
            "timeouts": timeouts("Budgets of this provider."),
            "proxy": text(
                "An HTTP proxy for this provider.",
                pattern=r"^http://([^\s/@]*@)?(\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+)(:[0-9]{1,5})?/?$",
                wanted="an HTTP proxy like http://proxy.example:3128",
                hidden=True,
            ),
            "verify_tls": boolean("Whether certificates are checked.", default=True),
            "ca_file": text(
                "A file with extra certificate authorities; relative to the file this stands in.", minLength=1
            ),
            "client_certificate": text(
                "A file with the certificate that a provider with mutual TLS asks for, and its private key, both as "
                "PEM; relative to the file this stands in.",
                minLength=1,
            ),
            "priority": integer("Which provider of a model is tried first: the lower.", default=0),
            "weight": integer("Share among providers of equal priority.", minimum=0, maximum=1000, default=1),
            "models": _models(),
            "models_from": one_or_many(
                text("A file, relative to this one.", minLength=1), "Files with more models; `models` here wins."
            ),
            "images": image_schema.images(),
            "discover": _discover(),
            "define": structure("Functions of the mapping language."),
            "examples": listed("Examples: documents to convert and what must come out.", {"type": "object"}),
        },
        required=["provider"],
        defs={
            "endpoint": endpoint(),
            "model": model(),
            "price": price(),
            "prices": record("Prices that replace the base ones.", price_fields(), minProperties=1),
            "errors": _errors(),
            "usage": _usage(),
        },
    )


@cache
def own_schema() -> Schema:
    """A provider file alone, for editors: required keys may be in the files it names under `shared`."""
    return {**_in_parts(provider_schema()), "required": ["provider"]}


@cache
def models_schema() -> Schema:
    """A file of models that a provider names under `models_from`."""
    return whole_file(
        "Tollgate models of a provider",
        "Models of one provider.",
        {
            "from": record(
                "What `tollgate catalog import` wrote this file from.",
                {
                    "provider": text("The provider's name in the facts file.", minLength=1),
                    "only": texts("Globs: only these models."),
                    "without": texts("Globs: all but these models."),
                },
                required=["provider"],
            ),
            "models": _models(),
        },
        required=["models"],
        defs={name: provider_schema()["$defs"][name] for name in ("model", "price", "prices")},
    )


def _auth() -> Schema:
    """The kind of authorisation and its options."""
    return record(
        "Authorisation beyond headers. Other keys are options of the kind and may name secrets.",
        {
            "kind": text("How calls are authorised.", enum=list(AUTH_OPTIONS)),
            "method": text(
                "How the token is requested; a GET has the fields of the form in its query.",
                default="POST",
                enum=["POST", "GET"],
            ),
            "form": parameters("All fields of the token request, instead of a client's id and secret."),
            "body": structure("The token request as JSON, instead of a client's id and secret; a template."),
            "token": _read(
                "Where the answer holds the token, if not `access_token`: over `$`, `$answer_headers`.",
                wanted="where the token is, such as $.data.token",
            ),
            "expires_in": template("How many seconds the token lives, likewise."),
            "headers": headers("Headers of the token request."),
            "query": text("The query parameter the token is sent in, instead of a header.", minLength=1),
            "adds": template(
                "Of `signed`: `headers` and `query` of a call, computed from `$call` (method, url, host, path, query, "
                "headers, body, nonce), `$now`, `$secret` and `$vars` when it is sent."
            ),
        },
        additionalProperties=template("An option of this kind of authorisation."),
        required=["kind"],
        editor={
            "properties": {name: template(f"Of {kinds}.") for name, kinds in _auth_options().items()},
            "additionalProperties": False,
        },
    )


def _read(about: str, *, wanted: str) -> Schema:
    """A template that reads an answer: a text without data would be the same for every answer."""
    return {**template(about), "type": ["string", "object"], "pattern": r"^\s*(\$|\{\{)", "wanted": wanted}


def _auth_options() -> dict[str, str]:
    """Every option, with the kinds of authorisation that take it."""
    kinds: dict[str, list[str]] = {}
    for kind, options in AUTH_OPTIONS.items():
        for name in (*options[0], *options[1]):
            kinds.setdefault(name, []).append(f"`{kind}`")
    return {name: " and ".join(found) for name, found in kinds.items()}


def _discover() -> Schema:
    """The address of the provider's own list of models, and how an entry of it is read."""
    return record(
        "The provider's own list of models, read while running.",
        {
            "url": address("The address of the list."),
            "headers": headers("Headers of that call, when they differ."),
            "every": {**seconds("How often.", default=DISCOVER_EVERY), "maximum": 2_592_000},
            "list": _read("Where the entries are.", wanted="where the entries are, such as $.data"),
            "model": structure("How an entry's fields become a model's; `id` is its canonical id.", required=["id"]),
            "when": {"description": "Which entries count: an expression over `$`."},
            "next": template(
                "Where a list in pages goes on: an address, or `?` and what follows, from a page; absent at its end."
            ),
        },
        required=["url", "list", "model"],
    )


def _usage() -> Schema:
    """How token counts are read."""
    return record(
        "How this provider counts.",
        {
            "excludes": listed(
                "Counts that are not inside their parent (input for the caches, output for reasoning).",
                {"type": "string", "enum": ["cache_read", "cache_write", "reasoning"]},
                uniqueItems=True,
            ),
            "when": {
                "description": "For which requests `read` is used: an expression over the client's request (`$`). "
                "Without it, for all."
            },
            "read": template(
                "Hub usage from an answer or event after all edits (`$`, and `$answer_headers`), instead of the "
                "mapping's. `$before` is what it read from earlier events of a stream."
            ),
            "words": template(
                "Words of a request as it is sent (`$`) that prices may ask for: `word` of a row of `volumes`, names "
                "of `multipliers`. One text or a list."
            ),
        },
    )


def _models() -> Schema:
    return table(
        "Canonical id to what this provider offers under it.",
        {"$ref": "#/$defs/model"},
        propertyNames={"pattern": CANONICAL_ID, "wanted": "a canonical id vendor/model"},
    )


@cache
def shared_schema() -> Schema:
    """A file that providers name under `shared`, for editors: a provider file in which no key is required."""
    whole = provider_schema()
    properties = {name: _in_parts(schema) for name, schema in whole["properties"].items() if name not in OWN}
    defs = {name: _in_parts(schema) for name, schema in whole["$defs"].items()}
    return whole_file("Parts of Tollgate providers", "What several providers have in common.", properties, defs)


def _in_parts(schema: Any) -> Any:
    """A schema without required keys, except in the items of lists, which are never merged from two files."""
    if isinstance(schema, list):
        return [_in_parts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for word, value in schema.items():
        if word == "properties":
            made[word] = {name: _in_parts(inner) for name, inner in value.items()}
        elif word not in ("required", "minProperties"):
            made[word] = value if word == "items" else _in_parts(value)
    return made


def _policies() -> Schema:
    return listed(
        "Edits and abilities for models by pattern, top to bottom.",
        record(
            "One policy.",
            {
                "match": one_or_many(
                    text("A glob over canonical or upstream ids.", minLength=1),
                    "Which models; with a ! in front: which not.",
                ),
                "priority": integer("Instead of the provider's."),
                "protocols": texts("Only under these upstream protocols."),
                **edits("these models"),
                "can": can(),
                "in_text": in_text(),
            },
            required=["match"],
        ),
    )


def _errors() -> Schema:
    status: Schema = {"type": "integer", "minimum": 100, "maximum": 599, "wanted": "an HTTP status from 100 to 599"}
    counted: Schema = {**status, "minimum": 400, "wanted": "the status of an error, from 400 to 599"}
    fields = {name: template(about) for name, about in ERROR_FIELDS.items()}
    return record(
        "What the provider's errors mean.",
        {
            **fields,
            # what is passed on to the caller has to be an error there, too
            **{name: listed(about, counted if name == "stop" else status) for name, about in ERROR_LISTS.items()},
            "rules": listed(
                "Tried in order, before the lists; also on a 200 body and on stream events.",
                record(
                    "One rule.",
                    {
                        "when": condition("An expression over the body (`$`) and `$answer_headers`."),
                        "status": one_or_many(status, "Only these statuses."),
                        "verdict": text("What follows.", enum=["later", "next", "stop"]),
                        "alarm": text("What the operator is told.", enum=["balance", "key"]),
                        "as": {**counted, "description": "The status it counts as."},
                        **fields,
                    },
                    required=["verdict"],
                ),
            ),
        },
    )
