"""Usage when the upstream tells none: counted once from the prompt and from what was received (DESIGN section 5)."""

from __future__ import annotations

import logging
from typing import Any

from tollgate import tokens
from tollgate.completions.exchange import Exchange
from tollgate.mapping import Tap
from tollgate.usage import beyond_belief

log = logging.getLogger("tollgate.completions")


def counts(usage: dict[str, Any] | None) -> bool:
    """Whether a hub usage says anything: every answer had a prompt, so one of nothing but zeros is no report, unless no model ran."""
    return bool(usage) and (usage.get("idle") is True or any(isinstance(count := usage.get(name), int | float) and count > 0 for name in ("input", "output")))  # type: ignore[union-attr]


def believed(exchange: Exchange, usage: dict[str, Any] | None) -> dict[str, Any]:
    """The hub usage an upstream told; nothing of it where it counts more tokens than any request has, which nobody is to pay for."""
    if not usage:
        return {}
    if wrong := beyond_belief(usage):
        log.warning("request %s: provider %s counts what cannot be, so it is counted here: %s", exchange.inbound.request_id,
                    exchange.offer.provider if exchange.offer else "", "; ".join(wrong))
        return {}
    return usage


async def estimate_usage(exchange: Exchange, received: list[str], *, scale: float = 1.0) -> dict[str, Any]:
    """Hub usage counted locally: the prompt's tokens, and those of the texts received times `scale`."""
    encoding = exchange.offer.model.encoding if exchange.offer else None
    prompt = await tokens.count_request(exchange.inbound.dialect, exchange.body, encoding)
    output = await tokens.count(received, encoding) if received else 0
    return {"input": prompt, "output": round(output * scale)}


def texts_of_events(exchange: Exchange, events: list[Any]) -> list[str]:
    """The text of native stream events, read through the protocol's own mapping."""
    assert exchange.offer is not None
    tap = Tap(exchange.offer.mapping)
    for event in events:
        tap.feed(event)
    return texts_of_parts(tap.parts())


def texts_of_parts(parts: list[dict[str, Any]]) -> list[str]:
    """What counts as output in hub parts: text, reasoning, and the name and arguments of calls."""
    found: list[str] = []
    for part in parts:
        found.extend(value for name in ("text", "name", "args") if isinstance(value := part.get(name), str))
    return found
