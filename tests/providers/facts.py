"""Computes the cost of a request from the facts file alone, with fractions, independently of the product.

The rules are those documented beside the facts: every price is per `unit` tokens; all matching `volumes` rows apply in
order to the whole request, and `min_prompt_tokens` is exclusive; windows are hours in UTC on ISO weekdays; an absent
price falls back to that of the prompt (cache, audio), of cached tokens (cached audio) or of the completion (reasoning,
audio, images). Prices of generated image tokens are in the facts of the image services.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Any

from support.places import ROOT, SHARED

FACTS = SHARED / "catalog" / "models.json"
ABSENT = "no facts about models at shared/catalog/models.json beside the repository"
CNY = Fraction("0.14")
"""USD for one CNY, the gateway's default."""


@dataclass
class Buckets:
    """Disjoint counts."""

    input: int = 0
    read: int = 0
    write: int = 0
    write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    audio_in: int = 0
    audio_out: int = 0
    searches: int = 0
    audio_read: int = 0
    image_out: int = 0

    def __add__(self, other: Buckets) -> Buckets:
        return Buckets(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@functools.cache
def rows() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Offers by provider, id and upstream name."""
    return {(row["provider"], row["id"], row["upstream_model"]): row for row in json.loads(FACTS.read_text())["models"]}


def slugs() -> dict[str, str]:
    """Canonical slugs by model id."""
    return {model["id"]: model["canonical_slug"] for model in json.loads(FACTS.read_text())["canonical"]}


@functools.cache
def sources() -> dict[str, str]:
    """Maps our names of providers to those in the facts, as recorded in the models files."""
    found = {}
    for path in sorted((ROOT / "providers" / "models").glob("*.yaml")):
        head = next(line for line in path.read_text("utf-8").splitlines() if line.startswith("from:"))
        found[path.stem] = head.split("provider:")[1].strip(" {}").split(",")[0].strip()
    return found


def row_of(provider: str, model: Any) -> dict[str, Any] | None:
    """The facts of one of our models."""
    return rows().get((sources().get(provider, provider), model.id, model.upstream))


@functools.cache
def image_prices() -> dict[str, str]:
    """USD per million tokens of generated images by upstream name, from the image services' facts; one price is from
    its vendor's page ($0.039 for 1290 tokens)."""
    apis = json.loads(FACTS.with_name("images.json").read_text())["apis"]
    return {"gemini-2.5-flash-image": "30"} | {
        model["id"].partition("/")[2]: model["pricing"]["image_output"]
        for api in apis
        for model in api["models"]
        if model["id"].startswith("google/") and "image_output" in model["pricing"]
    }


def cost(pricing: dict[str, Any], used: Buckets, at: datetime) -> Decimal:
    """The cost in USD, rounded half-even to twelve places."""
    prices = {name: Fraction(value) for name, value in pricing.items() if isinstance(value, str) and name != "currency"}
    for window in pricing.get("windows") or ():
        if at.isoweekday() in window["weekdays"] and any(_inside(hours, at) for hours in window["hours_utc"]):
            prices |= {name: Fraction(value) for name, value in window.items() if isinstance(value, str)}
    prompt = used.input + used.read + used.write + used.write_1h + used.audio_in + used.audio_read
    answer = used.output + used.reasoning + used.audio_out + used.image_out
    for row in pricing.get("volumes") or ():
        if prompt <= row.get("min_prompt_tokens", -1) or prompt > row.get("max_prompt_tokens", 10**12):
            continue
        if answer < row.get("min_completion_tokens", 0) or row.get("thinking", used.reasoning > 0) != (
            used.reasoning > 0
        ):
            continue
        prices |= {name: Fraction(value) for name, value in row.items() if isinstance(value, str)}

    def price(*names: str) -> Fraction:
        return next((prices[name] for name in names if name in prices), Fraction(0))

    tokens = (
        used.input * price("prompt")
        + used.read * price("input_cache_read", "prompt")
        + used.write * price("input_cache_write", "prompt")
        + used.write_1h * price("input_cache_write_1h", "input_cache_write", "prompt")
        + used.output * price("completion")
        + used.reasoning * price("internal_reasoning", "completion")
        + used.audio_in * price("audio", "prompt")
        + used.audio_out * price("audio_output", "completion")
        + used.audio_read * price("input_audio_cache", "input_cache_read", "prompt")
        + used.image_out * price("image_output_token", "completion")
    )
    due = tokens / pricing.get("unit", 1) + price("request") + used.searches * price("web_search")
    due *= CNY if pricing.get("currency") == "CNY" else 1
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(due.numerator) / Decimal(due.denominator)
        return exact.quantize(Decimal(1).scaleb(-12), rounding=ROUND_HALF_EVEN)


def _inside(hours: str, at: datetime) -> bool:
    start, end = (int(text[:2]) * 60 + int(text[3:]) for text in hours.split("-"))
    minute = at.hour * 60 + at.minute
    return start <= minute < (end or 1440)


# -- how each format counts, read from the recorded JSON


def _n(value: Any) -> int:
    return value if isinstance(value, int) else int(value) if isinstance(value, float) else 0


def chat(usage: dict[str, Any], *, reasoning_beside: bool = False) -> Buckets:
    prompt, made = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    read = next(
        (
            _n(value)
            for value in (
                prompt.get("cached_tokens"),
                usage.get("prompt_cache_hit_tokens"),
                usage.get("cached_tokens"),
                usage.get("num_cached_tokens"),
            )
            if value is not None
        ),
        0,
    )
    write = _n(prompt.get("cache_write_tokens")) or _n(usage.get("cache_creation_input_tokens"))
    # one reseller writes a cache and reads it in the same request: both counts cover the same tokens, both are billed
    inside = 0 if read + write > _n(usage.get("prompt_tokens")) else write
    reasoning = _n(made.get("reasoning_tokens")) or _n(usage.get("reasoning_tokens"))
    audio_in, audio_out = _n(prompt.get("audio_tokens")), _n(made.get("audio_tokens"))
    answer = _n(usage.get("completion_tokens"))
    if reasoning_beside:
        # a model may count either way; the total decides
        total = usage.get("total_tokens")
        spare = _n(total) - _n(usage.get("prompt_tokens")) - answer if total is not None else None
        if spare == 0 and reasoning <= answer and reasoning:
            answer -= reasoning
    else:
        reasoning = min(reasoning, answer)
        answer -= reasoning
    return Buckets(
        _n(usage.get("prompt_tokens")) - read - inside - audio_in,
        read,
        write,
        0,
        answer - audio_out,
        reasoning,
        audio_in,
        audio_out,
        _n((usage.get("server_tool_use_details") or {}).get("web_search_requests")),
    )


def responses(usage: dict[str, Any]) -> Buckets:
    inside, made = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    read, write, reasoning = (
        _n(inside.get("cached_tokens")),
        _n(inside.get("cache_write_tokens")),
        _n(made.get("reasoning_tokens")),
    )
    return Buckets(
        _n(usage["input_tokens"]) - read - write,
        read,
        write,
        0,
        _n(usage["output_tokens"]) - reasoning,
        reasoning,
        searches=usage.get("searches", 0),
    )


def messages(usage: dict[str, Any]) -> Buckets:
    passes = [messages({**step, "iterations": None}) for step in usage.get("iterations") or ()]
    if passes:  # each iteration is billed; compactions and other models' advice are in no other counter
        rest = messages(
            {
                "output_tokens_details": usage.get("output_tokens_details"),
                "server_tool_use": usage.get("server_tool_use"),
            }
        )
        return sum(passes, rest)
    write, hour = (
        _n(usage.get("cache_creation_input_tokens")),
        _n((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens")),
    )
    reasoning = _n((usage.get("output_tokens_details") or {}).get("thinking_tokens"))
    return Buckets(
        _n(usage.get("input_tokens")),
        _n(usage.get("cache_read_input_tokens")),
        write - hour,
        hour,
        _n(usage.get("output_tokens")) - reasoning,
        reasoning,
        searches=_n((usage.get("server_tool_use") or {}).get("web_search_requests")),
    )


def _of_kind(details: Any, modality: str) -> int:
    """The tokens of one modality in Gemini's list of counts."""
    return sum(_n(part.get("tokenCount")) for part in details or () if part.get("modality") == modality)


def gemini(usage: dict[str, Any]) -> Buckets:
    read = _n(usage.get("cachedContentTokenCount"))
    audio = _of_kind(usage.get("promptTokensDetails"), "AUDIO")
    cached_audio = _of_kind(usage.get("cacheTokensDetails"), "AUDIO")
    drawn = _of_kind(usage.get("candidatesTokensDetails"), "IMAGE")
    audio_out = _of_kind(usage.get("candidatesTokensDetails"), "AUDIO")
    return Buckets(
        _n(usage.get("promptTokenCount")) + _n(usage.get("toolUsePromptTokenCount")) - read - audio + cached_audio,
        read - cached_audio,
        0,
        0,
        _n(usage.get("candidatesTokenCount")) - audio_out - drawn,
        _n(usage.get("thoughtsTokenCount")),
        audio - cached_audio,
        audio_out,
        usage.get("searches", 0),
        cached_audio,
        drawn,
    )


def bedrock(usage: dict[str, Any]) -> Buckets:
    hour = sum(_n(entry.get("inputTokens")) for entry in usage.get("cacheDetails") or () if entry.get("ttl") == "1h")
    return Buckets(
        _n(usage.get("inputTokens")),
        _n(usage.get("cacheReadInputTokens")),
        _n(usage.get("cacheWriteInputTokens")) - hour,
        hour,
        _n(usage.get("outputTokens")),
    )


def cohere(usage: dict[str, Any]) -> Buckets:
    billed = usage.get("billed_units") or usage.get("tokens") or {}
    return Buckets(_n(billed.get("input_tokens")), output=_n(billed.get("output_tokens")))


def ollama(usage: dict[str, Any]) -> Buckets:
    return Buckets(_n(usage.get("prompt_eval_count")), output=_n(usage.get("eval_count")))
