"""The JSON Schema of `gateway.yaml`; see `schema.py` for how the schemas are used.

Every key has a default, taken from its dataclass in `settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import get_args

from tollgate.config import model, settings
from tollgate.config.files import MAPPING_GLOBS, PROVIDER_GLOBS
from tollgate.config.schema import (
    BIND,
    HTTP_BASE,
    INSTANCE,
    ORIGIN,
    Schema,
    boolean,
    decimal,
    integer,
    listed,
    one_or_many,
    record,
    seconds,
    table,
    text,
    texts,
    timeouts,
    whole_file,
)
from tollgate.json_bounds import MAX_DEPTH

_BYTES: Schema = {"minimum": 1, "wanted": "a whole number of bytes above 0"}
_DAYS: Schema = {"minimum": 0, "maximum": 36500, "wanted": "a number of days; 0 keeps all"}
_STATUS: Schema = {"type": "integer", "minimum": 100, "maximum": 599, "wanted": "an HTTP status"}


@cache
def gateway_schema() -> Schema:
    """The server's settings."""
    gateway = model.Gateway(root=Path())
    return whole_file(
        "Tollgate gateway settings",
        "The server. Every key may be left out; an empty file is valid.",
        {
            "server": _server(),
            "timeouts": _block(
                settings.Timeouts(),
                "Budgets of one attempt; providers and models may set their own.",
                timeouts("")["properties"],
            ),
            "retry": _retry(),
            "credits": _credits(),
            "store": _store(),
            "fetch": _fetch(),
            "dashboard": _dashboard(),
            "secrets_dir": text(
                "Folder with one file per secret, beside the environment.",
                minLength=1,
                default=str(gateway.secrets_dir),
            ),
            "aliases": table(
                "Names for models on this gateway: name -> canonical id or another alias.",
                {"type": "string", "minLength": 1},
                default={},
            ),
            "plugins": texts("Python modules with extra pure functions for mappings.", default=[]),
            "providers": texts(
                "Provider files: names, folders or patterns, relative to this file.", default=list(PROVIDER_GLOBS)
            ),
            "mappings": texts(
                "Mapping files, likewise; a protocol they leave out comes from the built-in set.",
                default=list(MAPPING_GLOBS),
            ),
        },
    )


def _server() -> Schema:
    return _block(
        settings.Server(),
        "Where the gateway listens and what it is called.",
        {
            "bind": one_or_many(
                text(
                    "`host:port`, `[v6]:port`, `:port` (every address) or `unix:/path`.",
                    pattern=BIND,
                    wanted="host:port, [v6]:port, :port or unix:/path",
                ),
                "Addresses to listen on.",
            ),
            "base_url": text(
                "The address clients are told, without /v1. Default: made from the first bind address.",
                pattern=HTTP_BASE,
                wanted="an address like https://gateway.example",
            ),
            "legacy_base_urls": listed(
                "Older addresses, each ending in /v1, on any host and prefix; they reach the same endpoints.",
                text("An address.", pattern=HTTP_BASE, wanted="an address like https://old.example/v1"),
            ),
            "engine": text(
                "The HTTP server; uvicorn needs the extra of that name.", enum=list(get_args(settings.EngineName))
            ),
            "max_body_bytes": integer("Largest request body of chat, responses, messages and embeddings.", **_BYTES),
            "max_small_body_bytes": integer("Largest request body of image and tool calls.", **_BYTES),
            "max_bodies_bytes": integer(
                "Bytes of all request bodies held at once, at least max_body_bytes. A body over 64 KiB without "
                "room waits unread for 20 seconds, then is refused with 503. 0: an eighth of the memory there is, "
                "less where it is little, at least max_body_bytes.",
                minimum=0,
                wanted="a whole number of bytes; 0 for an eighth of the memory",
            ),
            "max_nesting": integer(
                "Deepest JSON nesting taken from a client; deeper than the most, what was read could "
                "not be written again.",
                minimum=5,
                maximum=MAX_DEPTH,
            ),
            "max_values": integer(
                "Most values (numbers, texts, lists, objects) in a JSON body taken from a client; "
                "others wait while they are read.",
                minimum=1000,
                maximum=100_000_000,
            ),
            "drain_seconds": seconds("How long a stop waits for running requests."),
            "keepalive_comment_seconds": seconds(
                "A stream silent for this long gets a comment line, so that proxies keep it open."
            ),
            "trusted_proxies": texts(
                "The proxies in front, whose `X-Forwarded-For` is believed where tries to sign in are counted and "
                "where a key is held to addresses: addresses, networks (`10.0.0.0/8`), or `unix`: whoever connects "
                "at a unix socket."
            ),
            "cors_origins": listed(
                "Origins whose web pages may call the gateway from a browser.",
                text(
                    "An origin, or `*` for every one.",
                    pattern=ORIGIN,
                    wanted="an origin like https://app.example, or *",
                ),
            ),
        },
    )


def _retry() -> Schema:
    return _block(
        settings.Retry(),
        "Attempts over different routes before the first byte.",
        {
            "attempts": integer("Most attempts of one request.", minimum=1, maximum=3),
            "statuses": listed(
                "Upstream statuses worth another attempt where a provider says nothing else. Those from 500 on always "
                "are; 401, 402 and 403 are about the gateway's own key.",
                _STATUS,
            ),
            "cooldown_failures": integer("Consecutive failures after which a route rests.", minimum=1, maximum=1000),
            "cooldown_seconds": seconds("How long it rests."),
            "max_retry_after_seconds": seconds(
                "The longest `Retry-After` that is sent to a client, or obeyed when a provider sends it."
            ),
        },
    )


def _credits() -> Schema:
    return _block(
        settings.Credits(),
        "Money. Credits are USD.",
        {
            "minimum": decimal("An account with less is refused."),
            "hold_cap": decimal("The most one running request reserves."),
            "rates": table(
                "USD for one unit of a currency; added to the built-in ones.",
                decimal("USD for one unit."),
                propertyNames={"pattern": "^[A-Z]{3}$", "wanted": "a currency code of three capital letters"},
            ),
        },
    )


def _store() -> Schema:
    """Where accounts, keys and usage are stored: a map, or only the address of a shared database."""
    return {
        "description": "Where accounts, keys and usage live.",
        "wanted": "a map, or a postgresql:// address",
        "anyOf": [
            _store_url(),
            _block(
                settings.Store(),
                "Where accounts, keys and usage live.",
                {
                    "url": _store_url(),
                    "directory": text("Folder of the embedded database and its journal.", minLength=1),
                    "usage_directory": text("Folder of the published usage files.", minLength=1),
                    "publish_seconds": seconds("How often the current hour's usage file is rewritten."),
                    "apply_seconds": seconds(
                        "How long journalled rows wait at most to be put into the database; 2,000 are put in at once."
                    ),
                    "instance": text(
                        "This gateway's name; where several share a store, each needs its own. Usage "
                        "files carry it too.",
                        pattern=INSTANCE,
                        wanted="a name of letters, digits, - and _",
                    ),
                    "keep_rows_days": integer(
                        "How many days rows stay in the store once a usage file has them; balances stay as "
                        "they are. 0: for ever.",
                        **_DAYS,
                    ),
                    "keep_files_days": integer(
                        "How many days usage files stay, at least as many as rows. 0: for ever.", **_DAYS
                    ),
                    "keep_jobs_days": integer(
                        "How many days image jobs stay once they have ended, counted from when they were made; "
                        "what they cost stays. 0: for ever.",
                        **_DAYS,
                    ),
                },
            ),
        ],
    }


def _fetch() -> Schema:
    return _block(
        settings.Fetch(),
        "The guarded download of a client's image URL, when an upstream wants inline data.",
        {
            "max_bytes": integer("Largest download.", **_BYTES),
            "seconds": seconds("Longest download."),
            "allow_private": boolean("Also from private and loopback addresses: for tests only."),
        },
    )


def _dashboard() -> Schema:
    return _block(
        settings.Dashboard(),
        "The web pages.",
        {
            "enabled": boolean("Whether /dashboard is served."),
            "session_hours": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 8760,
                "description": "How long a sign-in lasts.",
                "wanted": "a number of hours above 0",
            },
        },
    )


def _store_url() -> Schema:
    return {
        "type": "string",
        "description": "Empty: the embedded database of this one gateway. `postgresql://user:password@host/database`, "
        "or better a `$secret.NAME` that holds it: a database that several gateways share.",
        "pattern": r"^($|postgres(ql)?://\S+$|\$secret\.[A-Za-z_][A-Za-z0-9_]*$)",
        "hidden": True,
        "wanted": "nothing, postgresql://... or $secret.NAME",
    }


def _block(defaults: object, about: str, properties: dict[str, Schema]) -> Schema:
    """A block of settings, with the defaults of its dataclass."""
    for name, schema in properties.items():
        schema["default"] = _plain(getattr(defaults, name))
    return record(about, properties)


def _plain(value: object) -> object:
    if isinstance(value, (Decimal, Path)):
        return str(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
