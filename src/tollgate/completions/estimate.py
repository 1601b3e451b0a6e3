"""Usage that the upstream did not report, or reported only in part: estimated once from the prompt and from what was
received (DESIGN section 5)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tollgate import tokens
from tollgate.completions.exchange import Exchange
from tollgate.mapping import CompiledMapping, Tap
from tollgate.usage import impossible_counts, is_plain, with_whole_counts
from tollgate.wire import index_of

log = logging.getLogger("tollgate.completions")

_SIDES = {"input": ("cache_read", "cache_write"), "output": ("reasoning",)}
"""The two sides of usage; for each, the buckets whose count shows that the side was reported."""


_LOST_TOOLS = frozenset({"tools", "tools[].function", "functions"})
"""Losses that say that no tool was sent."""


def missing_sides(usage: dict[str, Any]) -> list[str]:
    """The sides of a hub usage (`input`, `output`) that the provider did not report.

    Both if all counts are zero, since every answer had a prompt; none if no model ran (`idle`). A zero beside a real
    count is taken as reported: some providers charge nothing for that side. A part of a side (`cache_read`) counts as a
    report only if it is not zero. An `early` output count was sent before the output.

        {"input": 10} -> ["output"]; {"input": 10, "output": 0} -> []; {"cache_read": 0, "output": 5} -> ["input"]
    """
    if usage.get("early") is True and usage.get("idle") is not True:
        usage = {name: value for name, value in usage.items() if name != "output"}
    asked, answered = usage.get("input"), usage.get("output")
    if type(asked) is int and type(answered) is int and asked + answered > 0:  # nearly all of them
        return []
    if usage.get("idle") is True:
        return []
    if not any(isinstance(count := usage.get(side), int | float) and count > 0 for side in _SIDES):
        return list(_SIDES)
    return [
        side for side, parts in _SIDES.items() if usage.get(side) is None and not any(usage.get(part) for part in parts)
    ]


def completed(usage: dict[str, Any], lacking: list[str], counted: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """`usage` with the lacking sides as `counted` by us, and whether any of those counts is not zero (an answer may
    have no text)."""
    sides = {side: max(counted[side], usage.get(side) or 0) for side in lacking}
    return {**usage, **sides}, any(counted[side] for side in lacking)


def is_unanswered(lacking: list[str], counted: dict[str, Any]) -> bool:
    """Whether the provider reported neither side of the usage, and what was received has no tokens either (`counted`).
    A whole answer that failed like this costs nothing: a provider does not charge for a failure before any output."""
    return len(lacking) == 2 and not counted["output"]


def plausible_usage(exchange: Exchange, usage: dict[str, Any] | None) -> dict[str, Any]:
    """The reported hub usage with its counts as integers. {} (with a warning in the log) for more tokens than any
    request can have (`usage.impossible_counts`): they are estimated then, and not billed as reported."""
    if not usage:
        return {}
    if is_plain(usage):
        return usage
    if wrong := impossible_counts(usage):
        log.warning(
            "request %s: provider %s reports impossible usage, which is estimated instead: %s",
            exchange.inbound.request_id,
            exchange.attempt.provider,
            "; ".join(wrong),
        )
        return {}
    return with_whole_counts(usage)


async def estimate_usage(exchange: Exchange, received: list[str], *, scale: float = 1.0) -> dict[str, Any]:
    """Hub usage counted by our tokenizer: the prompt's tokens, and those of the received texts times `scale`."""
    offer = exchange.attempt.offer
    encoding, can = (offer.model.encoding, offer.can) if offer else (None, {})
    sent = _without_lost_tools(exchange)
    prompt = await tokens.count_request(exchange.inbound.dialect, sent, encoding, large=exchange.large)
    output = await tokens.count(received, encoding) if received else 0
    return {"input": own_tokens(prompt, can), "output": own_tokens(round(output * scale), can)}


def _without_lost_tools(exchange: Exchange) -> Mapping[str, Any]:
    """The client's request without its tools if none of them was sent: an agent's tools may be most of its tokens."""
    context = exchange.attempt.context
    if context is None or _LOST_TOOLS.isdisjoint(context.lost):
        return exchange.body
    return {name: value for name, value in exchange.body.items() if name not in ("tools", "functions")}


def own_tokens(counted: int, can: Mapping[str, Any]) -> int:
    """A count of our tokenizer, scaled to what the model's own tokenizer would count.

    200 with `can: {tokens_percent: 117}` -> 234
    """
    percent = can.get("tokens_percent")
    return -(-counted * percent // 100) if type(percent) is int else counted


def texts_of_events(mapping: CompiledMapping, events: list[Any]) -> list[str]:
    """The text of native stream events, read through the protocol's own mapping."""
    found: list[str] = []
    for each in choices_apart(events):
        tap = Tap(mapping)
        for event in each:
            tap.feed(event)
        found += texts_of_parts(tap.parts())
    return found


_MOST_CHOICES = 1000
"""Choices of one answer that are told apart; a request may ask for 128. Reading each takes 20 µs."""


def choices_apart(events: list[Any]) -> list[list[Any]]:
    """Chat events (or a whole answer) split by choice, where the request asked for several (`n`): a mapping reads only
    one choice, and all are billed. Events with one choice, or of another format, are returned unchanged.

    [{"choices": [{"index": 0, ...}, {"index": 1, ...}]}] -> [[{"choices": [{"index": 0, ...}]}], [{"choices": [...]}]]
    """
    apart: dict[int | str | None, list[Any]] = {}
    for event in events:
        choices = event.get("choices") if isinstance(event, dict) else None
        within: dict[int | str | None, list[dict[str, Any]]] = {}
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                within.setdefault(index_of(choice), []).append({**choice, "index": 0})
        for place, own in within.items():
            apart.setdefault(place, []).append({**event, "choices": own})
    if not 2 <= len(apart) <= _MOST_CHOICES or not all(type(place) is int for place in apart):
        return [events]
    return list(apart.values())


def texts_of_parts(parts: list[dict[str, Any]]) -> list[str]:
    """The texts in hub parts that count as output: text, reasoning, and the names and arguments of tool calls."""
    found: list[str] = []
    for part in parts:
        found.extend(value for name in ("text", "name", "args") if isinstance(value := part.get(name), str))
    return found
