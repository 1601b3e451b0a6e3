"""Token usage as disjoint buckets.

Providers disagree whether an input count includes cache hits, and an output count includes reasoning. Here each token
is put into exactly one bucket, and the buckets add up to the totals. What a bucket costs is `charge.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any

from tollgate.money import decimal_of

MAX_TOKENS = 20_000_000
"""Twice the largest context on sale. A larger count is a mistake of the upstream; then the gateway counts the tokens
itself (`impossible_counts`)."""
MAX_PIECES = 10_000
"""Most searches or pictures in one request."""

_PIECES = {"searches": MAX_PIECES, "images": MAX_PIECES}
"""Counts that are not tokens, with their limits."""
_USUAL = frozenset({"input", "output", "total"})
"""If no other count is reported, there is nothing to split."""
_PARTS = {
    "input": ("cache_read", "cache_write", "audio_input"),
    "output": ("reasoning", "audio_output", "image_output"),
}
"""The parts of a prompt and of an answer, unless the provider reports them separately (`excludes`)."""


@dataclass(slots=True)
class Usage:
    """What one request used; every token is in one bucket only. Not frozen, because that costs 1 µs on the hot path,
    but never change it."""

    input: int = 0
    """Text tokens of the prompt that were neither read from a cache nor written to one."""
    cache_read: int = 0
    """Read from a cache, without audio."""
    cache_write: int = 0
    """Written to a cache for the usual few minutes."""
    cache_write_1h: int = 0
    """Written to a cache for an hour."""
    output: int = 0
    """Generated text tokens, without reasoning."""
    reasoning: int = 0
    searches: int = 0
    images: int = 0
    """Pictures in the prompt, where a price counts them."""
    audio_input: int = 0
    """Audio tokens of the prompt that were neither read from a cache nor written to one."""
    audio_cache_read: int = 0
    """Audio tokens of the prompt that were read from a cache."""
    audio_output: int = 0
    image_output: int = 0
    """Tokens of generated pictures."""
    flags: tuple[str, ...] = ()
    """What was wrong with the upstream's numbers and was corrected, in words."""
    reported_cost: Decimal | None = None
    """The cost that the provider itself reports: stored beside ours, never charged."""
    others: tuple[tuple[str, Usage], ...] = ()
    """The part of these counts that models other than the requested one used, each under the provider's name for
    that model."""

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
        """These counts minus those of a part of them."""
        return replace(self, **{name: max(0, getattr(self, name) - getattr(part, name)) for name in _BUCKETS})

    def in_hub(self, reported: Mapping[str, Any]) -> dict[str, Any]:
        """These counts as a hub usage, with the fields of `reported`, from which they were read."""
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


_BUCKETS = tuple(each.name for each in fields(Usage) if each.type == "int")
_COUNTS = frozenset({"total", *_BUCKETS})
"""The counts of a hub usage."""


def from_hub(hub_usage: Mapping[str, object] | None, *, excludes: Collection[str] = ()) -> Usage:
    """The hub's usage as disjoint buckets.

    In the hub, `input` includes the whole prompt (cache reads, cache writes and audio), and `output` everything
    generated (reasoning, audio and pictures); `cache_write` includes `cache_write_1h`, and `cache_read` includes
    `audio_cache_read`. `excludes` names the counts that this provider reports beside the whole and not inside it:
    cache_read, cache_write, reasoning. If `total` is reported, it decides this for reasoning, because one provider
    answers in both ways. Where the whole is not reported it is the sum of its parts. Negative, non-numeric and absurd
    counts are clamped and flagged, so that a bad number never becomes a bad bill.

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
            counts[each] = _count(each, value, _PIECES.get(each, MAX_TOKENS), flags)
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
    """A count that is part of another one; cut and flagged if it is larger."""
    if value > whole:
        flags.append(f"{name} was {value}, more than the {whole} of {whole_name}")
        return whole
    return value


def _prompt_buckets(counts: Mapping[str, int], excludes: Collection[str], flags: list[str]) -> dict[str, int]:
    """The prompt as disjoint buckets; their sum is the whole prompt."""
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
    """The generated tokens as disjoint buckets.

    `outside`: this provider declares that reasoning is not included in `output`. `spare` is the reported total minus
    prompt and output; None if no total was reported.
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
    """Whether the total shows that reasoning is counted otherwise than declared: declared as included, and the total
    has room for exactly the reasoning on top; or declared as separate, and the total has no room for it, and
    `output` has."""
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
    """Whether a hub usage has only valid integer counts, as nearly all have: then `impossible_counts` finds nothing
    wrong, and `with_whole_counts` changes nothing."""
    for value in hub_usage.values():
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            return False
    return True


def impossible_counts(hub_usage: Mapping[str, Any]) -> list[str]:
    """The token counts of a hub usage that are impossible, in words.

    {"input": 10, "output": 10**12} -> ["output was 1000000000000"]

    These are counts above `MAX_TOKENS`, and a prompt or answer that is negative or not an integer: it would be billed
    as zero.
    """
    wrong = []
    for each, value in hub_usage.items():
        if (type(value) is int and 0 <= value <= MAX_TOKENS) or value is None or each not in _COUNTS or each in _PIECES:
            continue
        flags: list[str] = []
        number = _whole(each, value, flags)
        if number > MAX_TOKENS or (each in ("input", "output") and (flags or number < 0)):
            wrong.append(f"{each} was {str(value)[:40]}")
    return wrong


def with_whole_counts(hub_usage: dict[str, Any]) -> dict[str, Any]:
    """A hub usage with integer counts, also where the provider sent them as text or float: clients calculate with them.

    {"input": "5", "output": 2.0} -> {"input": 5, "output": 2}; what is not an integer stays.
    """
    whole = dict(hub_usage)
    for name in _COUNTS & hub_usage.keys():
        flags: list[str] = []
        if type(value := hub_usage[name]) in (str, float):
            number = _whole(name, value, flags)
            whole[name] = value if flags or abs(number) > MAX_TOKENS else number
    return whole


def _count(name: str, value: object, most: int, flags: list[str]) -> int:
    """A count that is not a small integer, brought into its range and flagged."""
    number = _whole(name, value, flags)
    if number < 0:
        flags.append(f"{name} was {number}")
        return 0
    if number > most:
        flags.append(f"{name} was {number}, more than {most}")
        return most
    return number


def _whole(name: str, value: object, flags: list[str]) -> int:
    """An integer count, also from another type: 5.0 and "5" are five; anything else is zero and is flagged."""
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
