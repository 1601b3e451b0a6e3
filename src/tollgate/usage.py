"""Token usage as disjoint buckets.

Vendors disagree whether an input count includes cache hits and an output count includes reasoning; a biller that
trusts one formula is wrong for the others. Here the disagreement ends: a count lands in exactly one bucket, and the
buckets add up to the totals. What a bucket costs is `tariff.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from tollgate.money import decimal_of

MAX_TOKENS = 20_000_000
"""Twice the largest context on sale: a count above it is a mistake of the upstream, not a request;
who bills counts for himself then (`beyond_belief`)."""
MAX_PIECES = 10_000
"""Searches or pictures in one request."""

_FLAT = {"searches": MAX_PIECES, "images": MAX_PIECES}
_COUNTS = frozenset({
    "input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning", "total", "searches", "images",
    "audio_input", "audio_cache_read", "audio_output", "image_output",
})
_USUAL = frozenset({"input", "output", "total"})
"""Where nothing else was counted, nothing is to be taken apart."""


@dataclass(slots=True)
class Usage:
    """What one request used; every token is in one bucket only. Treat it as frozen: it is not,
    because freezing costs 1 µs on the hot path."""

    input: int = 0
    """Text tokens of the prompt that no cache served or stored."""
    cache_read: int = 0
    """Served by a cache, audio not included."""
    cache_write: int = 0
    """Stored for the usual few minutes."""
    cache_write_1h: int = 0
    output: int = 0
    """Generated text tokens, reasoning not included."""
    reasoning: int = 0
    searches: int = 0
    images: int = 0
    """Pictures in the prompt, where a price counts them."""
    audio_input: int = 0
    """Audio of the prompt that no cache served or stored."""
    audio_cache_read: int = 0
    audio_output: int = 0
    image_output: int = 0
    """Tokens of generated pictures."""
    flags: tuple[str, ...] = ()
    """What was wrong with the upstream's numbers and was put right, in words."""
    told_cost: Decimal | None = None
    """The cost the provider itself reported: recorded beside ours, never charged."""
    others: tuple[tuple[str, Usage], ...] = ()
    """What other models than the one asked had of these counts, by the name the provider has for them."""

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt, cached ones included."""
        return (
            self.input
            + self.cache_read
            + self.cache_write
            + self.cache_write_1h
            + self.audio_input
            + self.audio_cache_read
        )

    @property
    def completion_tokens(self) -> int:
        """All generated tokens, reasoning included."""
        return self.output + self.reasoning + self.audio_output + self.image_output

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def without(self, part: Usage) -> Usage:
        """These counts without those of a part of them."""
        return replace(
            self,
            input=max(0, self.input - part.input),
            cache_read=max(0, self.cache_read - part.cache_read),
            cache_write=max(0, self.cache_write - part.cache_write),
            cache_write_1h=max(0, self.cache_write_1h - part.cache_write_1h),
            output=max(0, self.output - part.output),
        )

    def in_hub(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """These counts as a hub usage has them, with the members of `told`, from which they were read."""
        counts = {
            "input": self.prompt_tokens,
            "output": self.completion_tokens,
            "cache_read": self.cache_read + self.audio_cache_read,
            "cache_write": self.cache_write + self.cache_write_1h,
            "cache_write_1h": self.cache_write_1h,
            "reasoning": self.reasoning,
        }
        return {name: counts.get(name, value) for name, value in told.items()}


def from_hub(hub_usage: Mapping[str, object] | None, *, excludes: Collection[str] = ()) -> Usage:
    """The hub's usage as disjoint buckets.

    In the hub `input` holds everything of the prompt (both cache counts and audio too) and `output` everything
    generated (reasoning, audio and pictures too); `cache_write` holds `cache_write_1h`, `cache_read` holds
    `audio_cache_read`. `excludes` names the counts that this provider reports beside their parent instead: cache_read,
    cache_write, reasoning. Where `total` is told it decides about reasoning, because one provider answers in both ways.
    Negative, non-numeric and absurd counts are clamped and flagged, so a bad number never becomes a bad bill.

    {"input": 100, "cache_read": 40, "output": 30, "reasoning": 10}
    -> Usage(input=60, cache_read=40, output=20, reasoning=10)
    """
    if not hub_usage:
        return Usage()
    flags: list[str] = []
    counts: dict[str, int] = {}
    for each, told in hub_usage.items():
        if type(told) is int and 0 <= told <= MAX_PIECES:  # nearly all of them
            if told:
                counts[each] = told
        elif told is not None and each in _COUNTS:
            counts[each] = _count(each, told, _FLAT.get(each, MAX_TOKENS), flags)
    count = counts.get
    if (
        counts.keys() <= _USUAL
        and not excludes
        and not flags
        and hub_usage.get("cost") is None
        and "others" not in hub_usage
    ):
        return Usage(input=count("input", 0), output=count("output", 0))

    def part_of(name: str, value: int, whole_name: str, whole: int) -> int:
        if value > whole:
            flags.append(f"{name} was {value}, more than the {whole} of {whole_name}")
            return whole
        return value

    prompt, cache_read, cache_write, hour = (
        count("input", 0),
        count("cache_read", 0),
        count("cache_write", 0),
        count("cache_write_1h", 0),
    )
    if hour:
        cache_write = cache_write or hour
        hour = part_of("cache_write_1h", hour, "cache_write", cache_write)
    if cache_read and "cache_read" not in excludes:
        cache_read = part_of("cache_read", cache_read, "input", prompt)
        prompt -= cache_read
    if cache_write and "cache_write" not in excludes:
        cache_write = part_of("cache_write", cache_write, "uncached input", prompt)
        hour = min(hour, cache_write)
        prompt -= cache_write
    audio_input = count("audio_input", 0)
    if audio_input:
        audio_input = part_of("audio_input", audio_input, "uncached input", prompt)
        prompt -= audio_input

    audio_cache_read = count("audio_cache_read", 0)
    if audio_cache_read:
        audio_cache_read = part_of("audio_cache_read", audio_cache_read, "cache_read", cache_read)

    output, reasoning = count("output", 0), count("reasoning", 0)
    outside = "reasoning" in excludes
    if "total" in hub_usage:
        spare = count("total", 0) - (prompt + cache_read + cache_write + audio_input) - output
        if outside and not reasoning and spare > 0:
            reasoning = spare  # generated and billed there, but named nowhere
        elif (
            reasoning
            and outside != (spare == reasoning)
            and spare in (0, reasoning)
            and not (outside and reasoning > output)
        ):
            flags.append(
                f"reasoning is {'beside' if outside else 'inside'} output as declared, but the total says otherwise"
            )
            outside = not outside
    if reasoning and not outside:
        reasoning = part_of("reasoning", reasoning, "output", output)
        output -= reasoning
    audio_output = count("audio_output", 0)
    if audio_output:
        audio_output = part_of("audio_output", audio_output, "output", output)
        output -= audio_output
    image_output = count("image_output", 0)
    if image_output:
        image_output = part_of("image_output", image_output, "output", output)
        output -= image_output

    searches, images, told_cost = count("searches", 0), count("images", 0), _told(hub_usage, flags)
    return Usage(
        input=prompt, cache_read=cache_read - audio_cache_read, cache_write=cache_write - hour, cache_write_1h=hour,
        output=output, reasoning=reasoning, searches=searches, images=images, audio_input=audio_input,
        audio_cache_read=audio_cache_read, audio_output=audio_output, image_output=image_output, flags=tuple(flags),
        told_cost=told_cost, others=_others(hub_usage.get("others")),
    )


def _others(told: object) -> tuple[tuple[str, Usage], ...]:
    if not isinstance(told, list):
        return ()
    return tuple(
        (part["model"], from_hub(part))
        for part in told
        if isinstance(part, dict) and isinstance(part.get("model"), str)
    )


def beyond_belief(hub_usage: Mapping[str, object]) -> list[str]:
    """Which token counts of a hub usage nobody can have, in words.

    {"input": 10, "output": 10**12} -> ["output was 1000000000000"]

    They are above `MAX_TOKENS`, or the prompt or the answer is less than nothing or no whole number:
    it would be billed as none.
    """
    for told in hub_usage.values():
        if type(told) is not int or not 0 <= told <= MAX_TOKENS:
            break
    else:  # nearly always
        return []
    wrong = []
    for each, told in hub_usage.items():
        if (type(told) is int and 0 <= told <= MAX_TOKENS) or told is None or each not in _COUNTS or each in _FLAT:
            continue
        flags: list[str] = []
        number = _whole(each, told, flags)
        if number > MAX_TOKENS or (each in ("input", "output") and (flags or number < 0)):
            wrong.append(f"{each} was {str(told)[:40]}")
    return wrong


def _count(name: str, value: object, most: int, flags: list[str]) -> int:
    """A count that is not plainly one: brought into range, and flagged."""
    number = _whole(name, value, flags)
    if number < 0:
        flags.append(f"{name} was {number}")
        return 0
    if number > most:
        flags.append(f"{name} was {number}, more than {most}")
        return most
    return number


def _whole(name: str, value: object, flags: list[str]) -> int:
    """A count, also one that did not come as an integer: 5.0 and "5" are five,
    anything else is nothing and is flagged."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    flags.append(f"{name} was {str(value)[:40]!r}, no whole number")
    return 0


def _told(hub_usage: Mapping[str, object], flags: list[str]) -> Decimal | None:
    value = hub_usage.get("cost")
    if value is None:
        return None
    try:
        # JSON has already made a float of it; its shortest notation is the figure that was sent
        amount = decimal_of(repr(value) if isinstance(value, float) else value)  # type: ignore[arg-type]
    except ValueError:
        flags.append(f"cost was {str(value)[:40]!r}, no amount")
        return None
    if amount < 0:
        flags.append(f"cost was {amount}")
        return None
    return amount
