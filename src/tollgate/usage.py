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
"""Twice the largest context on sale: a larger count is a mistake of the upstream, and the tokens are counted here
instead (`beyond_belief`)."""
MAX_PIECES = 10_000
"""Searches or pictures in one request."""

_FLAT = {"searches": MAX_PIECES, "images": MAX_PIECES}
_COUNTS = frozenset(
    {
        "input",
        "cache_read",
        "cache_write",
        "cache_write_1h",
        "output",
        "reasoning",
        "total",
        "searches",
        "images",
        "audio_input",
        "audio_cache_read",
        "audio_output",
        "image_output",
    }
)
_USUAL = frozenset({"input", "output", "total"})
"""Where nothing else was counted, nothing is to be taken apart."""
_PARTS = {
    "input": ("cache_read", "cache_write", "audio_input"),
    "output": ("reasoning", "audio_output", "image_output"),
}
"""What a prompt and an answer hold, where the provider does not say that it counts it beside them."""


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
    reported_cost: Decimal | None = None
    """The cost the provider itself reported: recorded beside ours, never charged."""
    others: tuple[tuple[str, Usage], ...] = ()
    """The part of these counts that other models used than the one asked for, each under the name that the provider has
    for that model."""

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

    def in_hub(self, reported: Mapping[str, Any]) -> dict[str, Any]:
        """These counts as a hub usage has them, with the members of `reported`, from which they were read."""
        counts = {
            "input": self.prompt_tokens,
            "output": self.completion_tokens,
            "cache_read": self.cache_read + self.audio_cache_read,
            "cache_write": self.cache_write + self.cache_write_1h,
            "cache_write_1h": self.cache_write_1h,
            "reasoning": self.reasoning,
            "searches": self.searches,
        }
        return {name: counts.get(name, value) for name, value in reported.items()}


def from_hub(hub_usage: Mapping[str, object] | None, *, excludes: Collection[str] = ()) -> Usage:
    """The hub's usage as disjoint buckets.

    In the hub `input` holds everything of the prompt (both cache counts and audio too) and `output` everything
    generated (reasoning, audio and pictures too); `cache_write` holds `cache_write_1h`, `cache_read` holds
    `audio_cache_read`. `excludes` names the counts that this provider reports beside their parent instead: cache_read,
    cache_write, reasoning. Where `total` is told it decides about reasoning, because one provider answers in both ways.
    A prompt or an answer of which only parts are told is as large as those. Negative, non-numeric and absurd counts are
    clamped and flagged, so a bad number never becomes a bad bill.

    {"input": 100, "cache_read": 40, "output": 30, "reasoning": 10}
    -> Usage(input=60, cache_read=40, output=20, reasoning=10)
    """
    if not hub_usage:
        return Usage()
    flags: list[str] = []
    counts: dict[str, int] = {}
    for each, value in hub_usage.items():
        if type(value) is int and 0 <= value <= MAX_PIECES:  # nearly all of them
            if value:
                counts[each] = value
        elif value is not None and each in _COUNTS:
            counts[each] = _count(each, value, _FLAT.get(each, MAX_TOKENS), flags)
    count = counts.get
    if (
        counts.keys() <= _USUAL
        and not excludes
        and not flags
        and hub_usage.get("cost") is None
        and "others" not in hub_usage
    ):
        usage = Usage(count("input", 0))
        usage.output = count("output", 0)
        return usage

    for whole, parts in _PARTS.items():
        if hub_usage.get(whole) is None:
            counts[whole] = sum(count(part, 0) for part in parts if part not in excludes)
    prompt = _prompt_buckets(counts, excludes, flags)
    spare = counts["total"] - sum(prompt.values()) - counts.get("output", 0) if "total" in counts else None
    output = _output_buckets(counts, spare, "reasoning" in excludes, flags)
    return Usage(
        **prompt,
        **output,
        searches=count("searches", 0),
        images=count("images", 0),
        reported_cost=_reported_cost(hub_usage, flags),
        flags=tuple(flags),
        others=_others(hub_usage.get("others")),
    )


def _part_of(name: str, value: int, whole_name: str, whole: int, flags: list[str]) -> int:
    """A count that is inside another one; flagged and cut where it is said to be larger."""
    if value > whole:
        flags.append(f"{name} was {value}, more than the {whole} of {whole_name}")
        return whole
    return value


def _prompt_buckets(counts: Mapping[str, int], excludes: Collection[str], flags: list[str]) -> dict[str, int]:
    """What was sent, as disjoint buckets; their sum is the whole prompt."""
    uncached, cache_read = counts.get("input", 0), counts.get("cache_read", 0)
    cache_write, hour = counts.get("cache_write", 0), counts.get("cache_write_1h", 0)
    if hour:
        cache_write = cache_write or hour
        hour = _part_of("cache_write_1h", hour, "cache_write", cache_write, flags)
    if cache_read and "cache_read" not in excludes:
        cache_read = _part_of("cache_read", cache_read, "input", uncached, flags)
        uncached -= cache_read
    if cache_write and "cache_write" not in excludes:
        cache_write = _part_of("cache_write", cache_write, "uncached input", uncached, flags)
        hour = min(hour, cache_write)
        uncached -= cache_write
    audio = _part_of("audio_input", counts.get("audio_input", 0), "uncached input", uncached, flags)
    cached_audio = _part_of("audio_cache_read", counts.get("audio_cache_read", 0), "cache_read", cache_read, flags)
    return {
        "input": uncached - audio,
        "audio_input": audio,
        "cache_read": cache_read - cached_audio,
        "audio_cache_read": cached_audio,
        "cache_write": cache_write - hour,
        "cache_write_1h": hour,
    }


def _output_buckets(counts: Mapping[str, int], spare: int | None, outside: bool, flags: list[str]) -> dict[str, int]:
    """What was generated, as disjoint buckets.

    `outside` tells whether this provider declares reasoning to be beside `output` instead of inside it, `spare` what
    the told total holds beyond prompt and output; None when no total was told.
    """
    text, reasoning = counts.get("output", 0), counts.get("reasoning", 0)
    if spare is not None:
        if outside and not reasoning and spare > 0:
            reasoning = spare  # generated and billed there, but named nowhere
        elif reasoning and _contradicts(spare, text, reasoning, outside):
            place = "beside" if outside else "inside"
            flags.append(f"reasoning is {place} output as declared, but the total says otherwise")
            outside = not outside
    if not outside:
        reasoning = _part_of("reasoning", reasoning, "output", text, flags)
        text -= reasoning
    audio = _part_of("audio_output", counts.get("audio_output", 0), "output", text, flags)
    text -= audio
    pictures = _part_of("image_output", counts.get("image_output", 0), "output", text, flags)
    return {"output": text - pictures, "reasoning": reasoning, "audio_output": audio, "image_output": pictures}


def _contradicts(spare: int, output: int, reasoning: int, outside: bool) -> bool:
    """Whether the total clearly counts reasoning the other way than declared: it has room for exactly the reasoning
    where that is said to be inside, or for nothing where it is said to be outside and could be inside."""
    if outside:
        return spare == 0 and reasoning <= output
    return spare == reasoning


def _others(reported: object) -> tuple[tuple[str, Usage], ...]:
    if not isinstance(reported, list):
        return ()
    return tuple(
        (part["model"], from_hub(part))
        for part in reported
        if isinstance(part, dict) and isinstance(part.get("model"), str)
    )


def is_plain(hub_usage: Mapping[str, Any]) -> bool:
    """Whether a hub usage has nothing in it but counts that can be, as nearly all have: `beyond_belief` finds nothing
    wrong with it, and `with_whole_counts` nothing to do."""
    for told in hub_usage.values():
        if type(told) is not int or not 0 <= told <= MAX_TOKENS:
            return False
    return True


def beyond_belief(hub_usage: Mapping[str, Any]) -> list[str]:
    """Which token counts of a hub usage nobody can have, in words.

    {"input": 10, "output": 10**12} -> ["output was 1000000000000"]

    They are above `MAX_TOKENS`, or the prompt or the answer is less than nothing or no whole number:
    it would be billed as none.
    """
    wrong = []
    for each, told in hub_usage.items():
        if (type(told) is int and 0 <= told <= MAX_TOKENS) or told is None or each not in _COUNTS or each in _FLAT:
            continue
        flags: list[str] = []
        number = _whole(each, told, flags)
        if number > MAX_TOKENS or (each in ("input", "output") and (flags or number < 0)):
            wrong.append(f"{each} was {str(told)[:40]}")
    return wrong


def with_whole_counts(hub_usage: dict[str, Any]) -> dict[str, Any]:
    """A hub usage whose counts are integers, also where the provider wrote them as texts: clients compute with them.

    {"input": "5", "output": 2.0} -> {"input": 5, "output": 2}; what is no whole number stays.
    """
    whole = dict(hub_usage)
    for name in _COUNTS & hub_usage.keys():
        flags: list[str] = []
        if type(told := hub_usage[name]) in (str, float):
            number = _whole(name, told, flags)
            whole[name] = told if flags or abs(number) > MAX_TOKENS else number
    return whole


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
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    flags.append(f"{name} was {str(value)[:40]!r}, no whole number")
    return 0


def _reported_cost(hub_usage: Mapping[str, object], flags: list[str]) -> Decimal | None:
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
