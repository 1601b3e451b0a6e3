"""Turns facts about models on sale into the entries of a models file.

A facts file has `models`, one entry per offer (a model at a provider), and may have `canonical`, one entry per model,
whose names become aliases. A price stays the exact decimal; only its point is moved, so that all are per million. Facts
for which the configuration has no field are left out and reported (`Import.left_out`), never put into another field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tollgate.catalog_import.models_file import Flow, Quoted
from tollgate.config.model import names_match
from tollgate.config.pricing import PRICES, TOKEN_PRICES, VOLUME_CONDITIONS
from tollgate.config.schema import CANONICAL_ID, ENCODINGS
from tollgate.money import CONTEXT, decimal_of, decimal_text

UNIT = 1_000_000
_ADDED_PRICES = ("image_output_token", "why")
"""Fields of a price that a person may have added: facts seldom have the price of generated pictures."""

PROTOCOLS = {"chat/completions": "chat", "responses": "responses", "messages": "messages", "embeddings": "embeddings"}
"""The protocol by the path under which facts list it."""

_BY_WORD = "request_by_search_context"
"""Fees per call that depend on a word in the request."""
_NOT_PRICES = frozenset({"unit", "currency", "volumes", "service_tiers", "multipliers", "windows", _BY_WORD})
_TEXT_ONLY = {"input": ["text"], "output": ["text"]}
_SIMPLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[0-9][A-Za-z0-9-]*)*\Z")
"""A name that a client would type: without a path, a version mark, or a region in front."""
_REGIONS = ("global", None, "us", "eu")
"""The order in which one of several offers of a model is chosen: the one that runs anywhere, else the plain one."""


@dataclass(frozen=True, slots=True)
class Source:
    """The `from:` of a models file: the provider in the facts file, and which of its offers the models file has."""

    provider: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def takes(self, model: str, upstream: str) -> bool:
        """Whether an offer belongs in the file."""
        return names_match((*self.only, *(f"!{glob}" for glob in self.without)), model, upstream)


@dataclass(slots=True)
class Import:
    """Entries by canonical id, in the order of the file, and the offers that were left out, with the reason."""

    source: Source
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def offers_of(facts: Any) -> list[dict[str, Any]]:
    """The offers of a facts document. ValueError if it is none."""
    listed = facts.get("models") if isinstance(facts, dict) else facts
    if not isinstance(listed, list) or not all(
        isinstance(offer, dict) and offer.get("id") and offer.get("provider") for offer in listed
    ):
        raise ValueError("found no list `models` whose entries have `id` and `provider`")
    return listed


def import_models(
    facts: Any, source: Source, *, speaks: Collection[str] = (), kept: Mapping[str, Mapping[str, Any]] | None = None
) -> Import:
    """The entries of one provider. `speaks` has its protocols, to find models that only some of them serve. `kept`
    has the entries of the present file: their keys that are not made here are kept."""
    made = Import(source)
    names, slugs = aliases(facts), canonical_slugs(facts)
    best = _best_offers(facts, source, made.left_out)
    for name in sorted(best, key=lambda name: (best[name].get("type") == "embedding", name)):
        entry = _entry(best[name], names.get(name, ()), slugs.get(name), frozenset(speaks), made)
        if entry is None:
            continue
        before = (kept or {}).get(name, {})
        fields = {key: value for key, value in entry.items() if value not in (None, [], {}, "")}
        made.models[name] = fields | {key: value for key, value in before.items() if key not in entry}
        for key in _ADDED_PRICES:
            if isinstance(text := (before.get("price") or {}).get(key), str):
                entry["price"].setdefault(key, Quoted(text) if key in TOKEN_PRICES else text)
    return made


def _best_offers(facts: Any, source: Source, left_out: list[str]) -> dict[str, dict[str, Any]]:
    """The chosen offer of each model; the others are added to `left_out`."""
    best: dict[str, dict[str, Any]] = {}
    for offer in offers_of(facts):
        upstream = str(offer.get("upstream_model") or "")
        if (
            offer["provider"] != source.provider
            or offer.get("status", "current") != "current"
            or not source.takes(offer["id"], upstream)
        ):
            continue
        if not re.fullmatch(CANONICAL_ID, offer["id"]):
            left_out.append(f"{offer['id']}: no canonical id of the form vendor/model")
            continue
        if not offer.get("pricing"):
            left_out.append(f"{offer['id']}: no price known")
            continue
        known = best.get(offer["id"])
        if known is None:
            best[offer["id"]] = offer
            continue
        first, second = sorted((known, offer), key=_rank)
        best[offer["id"]] = first
        left_out.append(
            f"{offer['id']}: {second.get('upstream_model')} (the offer taken is {first.get('upstream_model')})"
        )
    return best


def canonical_slugs(facts: Any) -> dict[str, str]:
    """Canonical id -> stable slug, where the two differ."""
    slugs = {model["id"]: model.get("canonical_slug") for model in _canonical(facts)}
    return {name: slug for name, slug in slugs.items() if isinstance(slug, str) and slug and slug != name}


def _canonical(facts: Any) -> Sequence[dict[str, Any]]:
    """The models of a facts document; none if it has offers only."""
    return (facts.get("canonical") if isinstance(facts, dict) else None) or ()


def aliases(facts: Any) -> dict[str, tuple[str, ...]]:
    """Canonical id -> names that clients use for it. A name that could mean two models is no alias. A name that only
    one provider has counts if it can mean no other model."""
    offers = offers_of(facts)
    own = {(offer["provider"], offer.get("upstream_model")): offer for offer in offers}
    found: dict[str, list[str]] = {}
    candidates: dict[str, set[str]] = {}  # by name, the models that it could mean
    for model in _canonical(facts):
        found[model["id"]] = []
        provider, _, rest = (str(model["offers"][0]) if model.get("offers") else "").partition("|")
        upstream = rest.rpartition("|")[0]
        first = own.get((provider, upstream), {})
        for name in _simple((model.get("short_alias"), upstream, *first.get("aliases", ()))):
            candidates.setdefault(name, set()).add(model["id"])
    elsewhere = {name for offer in offers for name in _simple(offer.get("aliases") or ())} - candidates.keys()
    candidates |= {name: set() for name in sorted(elsewhere)}
    for offer in offers:
        for name in elsewhere.intersection((offer.get("upstream_model"), *(offer.get("aliases") or ()))):
            candidates[name].add(offer["id"])
    for name, models in candidates.items():
        if len(models) == 1 and name not in found:
            for only in models & found.keys():
                found[only].append(name)
    return {model: tuple(names) for model, names in found.items()}


def _simple(names: Iterable[Any]) -> list[str]:
    """Those of these names that a client would type."""
    return [name for name in names if isinstance(name, str) and _SIMPLE_NAME.match(name)]


def _rank(offer: Mapping[str, Any]) -> tuple[int, bool, int]:
    """The better of two offers of one model sorts first."""
    region = offer.get("inference_profile")
    return (
        _REGIONS.index(region) if region in _REGIONS else len(_REGIONS),
        bool(offer.get("moving_alias")),
        len(str(offer.get("upstream_model"))),
    )


def _entry(
    offer: Mapping[str, Any], names: Sequence[str], slug: str | None, speaks: frozenset[str], made: Import
) -> dict[str, Any] | None:
    """All keys that are made from facts, in the order of the file; without keys that the facts do not have or that
    would be the default. None, which is reported, if the offer cannot be served."""
    name = offer["id"]
    kind = offer.get("type", "chat")
    protocols = _protocols(offer, speaks)
    if protocols == []:
        made.left_out.append(f"{name}: served through {', '.join(offer.get('endpoints', ()))} only")
        return None
    shape = offer.get("architecture") or {}
    into, out = list(shape.get("input_modalities") or ["text"]), list(shape.get("output_modalities") or ["text"])
    encoding = str(offer.get("tiktoken_encoding") or "").rstrip("*")
    return {
        "upstream": _unless(offer.get("upstream_model"), name.partition("/")[2]),
        "aliases": list(names),
        "canonical_slug": slug,
        "name": offer.get("name"),
        "description": _description(offer),
        "type": _unless(kind, "chat"),
        "created": offer.get("created") or None,
        "context": offer.get("context_length"),
        "max_output": offer.get("max_output_tokens") or None,
        "modalities": None if kind == "embedding" else _unless(Flow(input=into, output=out), _TEXT_ONLY),
        "tokenizer": _unless(shape.get("tokenizer"), "Other"),
        "encoding": encoding if encoding in ENCODINGS else None,
        "instruct_type": shape.get("instruct_type"),
        "hugging_face_id": offer.get("hugging_face_id"),
        "parameters": list(offer.get("supported_parameters") or ()),
        "dimensions": sorted(set(offer.get("dimensions") or ())),
        "max_dimension": _unless(offer.get("max_dimension"), max(offer.get("dimensions") or [0])),
        "protocols": protocols,
        "retires": offer.get("retires"),
        "price": _price(name, offer["pricing"], made),
    }


def _unless(value: Any, default: object) -> Any:
    """The value; None if it is the default, which a file need not say."""
    return None if value == default else value


def _description(offer: Mapping[str, Any]) -> str:
    """One line for people, made of the facts alone."""
    shape = offer.get("architecture") or {}
    if offer.get("type") == "embedding":
        size = offer.get("max_dimension") or max(offer.get("dimensions") or [0])
        return f"Embeddings of up to {size:,} dimensions." if size else "Embeddings."
    words = ["Reasoning model" if offer.get("reasoning") else "Chat model"]
    media = [word for word in shape.get("input_modalities") or () if word != "text"]
    if media:
        words.append(f"that takes {_listed(media)} beside text")
    made = [word for word in shape.get("output_modalities") or () if word != "text"]
    if made:
        words.append(f"{'and' if media else 'that'} makes {_listed(made)}")
    if "tools" in (offer.get("supported_parameters") or ()):
        words.append("and calls tools" if media or made else "that calls tools")
    return " ".join(words) + "."


def _listed(words: list[str]) -> str:
    plural = [f"{word}s" if word in ("image", "file") else word for word in words]
    return plural[0] if len(plural) == 1 else f"{', '.join(plural[:-1])} and {plural[-1]}"


def _protocols(offer: Mapping[str, Any], speaks: frozenset[str]) -> list[str] | None:
    """The protocols that an offer is limited to; None: all; []: it cannot be served at all."""
    paths = [str(path) for path in offer.get("endpoints") or ()]
    if offer.get("native_endpoint") == "responses":
        paths = ["/v1/responses"]
    if not paths or offer.get("type") == "embedding":
        return None
    protocols = {protocol for path in paths for end, protocol in PROTOCOLS.items() if path.endswith("/" + end)}
    if not protocols:
        return []
    chatty = speaks & {"chat", "responses"}  # the paths distinguish only these two
    served = [protocol for protocol in sorted(chatty) if protocol in protocols]
    return served if set(served) != chatty else None


# -- prices


def _price(name: str, pricing: Mapping[str, Any], made: Import) -> dict[str, Any]:
    factor = Decimal(UNIT) / Decimal(int(pricing.get("unit", 1)))
    price: dict[str, Any] = {"unit": UNIT, **_row(name, pricing, factor, made, _NOT_PRICES)}
    if pricing.get("currency", "USD") != "USD":
        price["currency"] = pricing["currency"]
    volumes = []
    for row in pricing.get("volumes") or ():
        prices = _row(name, row, factor, made, frozenset(VOLUME_CONDITIONS))
        if prices:
            volumes.append(Flow({key: row[key] for key in VOLUME_CONDITIONS if row.get(key) is not None} | prices))
    for word, fee in sorted((pricing.get(_BY_WORD) or {}).items(), key=lambda each: decimal_of(str(each[1]))):
        if fee != pricing.get("request"):
            volumes.append(Flow(word=word, request=Quoted(digits(decimal_of(str(fee))))))
    tiers = {tier: Flow(_row(name, row, factor, made)) for tier, row in (pricing.get("service_tiers") or {}).items()}
    windows = [
        Flow(
            start=Quoted(start),
            end=Quoted(end),
            days=list(row.get("weekdays") or range(1, 8)),
            prices=Flow(_row(name, row, factor, made, frozenset({"hours_utc", "weekdays"}))),
        )
        for row in pricing.get("windows") or ()
        for start, _, end in (hours.partition("-") for hours in row.get("hours_utc") or ())
    ]
    blocks = {
        "volumes": volumes,
        "service_tiers": {tier: row for tier, row in tiers.items() if row},
        "windows": windows,
        "multipliers": Flow({key: Quoted(str(value)) for key, value in (pricing.get("multipliers") or {}).items()}),
    }
    return price | {key: block for key, block in blocks.items() if block}


def _row(
    name: str, row: Mapping[str, Any], factor: Decimal, made: Import, known: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The prices of one row: tokens per million, calls, pictures and searches as they are."""
    prices: dict[str, Any] = {}
    for key in PRICES:
        if row.get(key) is None or key == "image" and _per_token(row):
            continue
        amount = decimal_of(str(row[key]))
        prices[key] = Quoted(digits(CONTEXT.multiply(amount, factor) if key in TOKEN_PRICES else amount))
    dropped = sorted(set(row) - set(PRICES) - known) + (["image"] if "image" in row and _per_token(row) else [])
    if dropped:
        made.left_out.append(f"{name}: the price of {', '.join(dropped)}")
    return prices


def _per_token(row: Mapping[str, Any]) -> bool:
    """Whether `image` is the price of an image *token*, as in some lists: then it is close to that of a prompt
    token, while a whole picture costs far more."""
    image, prompt = decimal_of(str(row.get("image", "0"))), decimal_of(str(row.get("prompt", "0")))
    return bool(image) and image <= prompt * 10


def digits(amount: Decimal) -> str:
    """A price as a person writes it: no exponent, no zeros at the end after the cents."""
    whole, _, places = decimal_text(amount).partition(".")
    places = places.rstrip("0")
    return f"{whole}.{places.ljust(2, '0')}" if places or amount else whole


def changes(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What an import changes in a file, in lines of `+ model`, `- model` and `~ model: keys`."""
    lines = [f"+ {name}" for name in after if name not in before]
    lines += [f"- {name}" for name in before if name not in after]
    for name, entry in after.items():
        old = before.get(name, entry)
        if keys := [key for key in dict.fromkeys((*old, *entry)) if old.get(key) != entry.get(key)]:
            lines.append(f"~ {name}: {', '.join(keys)}")
    return lines
