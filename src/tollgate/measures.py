"""Sums of usage that can be added up: counts, money, tokens, and latencies as counts by logarithmic step.

Pure values. Percentiles cannot be added, so what is kept is how many requests fell into each step (four to a doubling);
a percentile read from that is a few percent from the exact one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar

DIMENSIONS = ("model", "key_id", "provider", "endpoint", "account_id")
"""What usage is broken down by."""
ENDPOINTS = ("chat", "responses", "messages", "embeddings", "images", "mcp", "count_tokens")
"""The words of the column `endpoint`."""
OUTCOMES = ("ok", "client_gone", "upstream_error", "timeout", "error", "rejected")
"""The words of the column `outcome`."""
ENDED = ("ok", "failed", *OUTCOMES[1:])
"""What can be asked for: an outcome, or `failed` for all but `ok`."""
ALL = "all"

_ROOM = 40
"""Bits for the count of one step: a histogram is one integer, so that adding two of them is one addition."""


@dataclass(slots=True)
class Measures:
    """What some requests came to. `first_byte` and `total` are packed histograms of milliseconds."""

    requests: int = 0
    failed: int = 0
    cost: Decimal = Decimal(0)
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    images: int = 0
    estimated: int = 0
    first_byte: int = 0
    total: int = 0

    STEPS: ClassVar[int] = 96
    """Under 1.2 ms, then on to over four hours."""

    def add(self, other: Measures) -> None:
        """Take another's numbers in."""
        for name in _FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def without(self, parts: Iterable[Measures]) -> Measures:
        """What is left when these, which are in it, are taken out."""
        rest = Measures()
        rest.add(self)
        for part in parts:
            for name in _FIELDS:
                setattr(rest, name, getattr(rest, name) - getattr(part, name))
        return rest

    @property
    def tokens(self) -> int:
        """All tokens, of every bucket."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.output_tokens
            + self.reasoning_tokens
        )

    @property
    def failure_rate(self) -> float:
        """The share of requests that did not end well."""
        return self.failed / self.requests if self.requests else 0.0

    @staticmethod
    def pack(steps: Iterable[int], counts: Iterable[int]) -> int:
        """A histogram: steps [3, 5] with counts [10, 2] become one integer."""
        return sum(count << step * _ROOM for step, count in zip(steps, counts, strict=True))

    def first_byte_ms(self, share: float) -> float | None:
        """A percentile (0.95) of the time to the first byte; None when nothing was measured."""
        return percentile(self.first_byte, share)

    def total_ms(self, share: float) -> float | None:
        """The same for the time to the end of the answer."""
        return percentile(self.total, share)


_FIELDS = tuple(each.name for each in fields(Measures))


def percentile(histogram: int, share: float) -> float | None:
    """The value below which this share of a packed histogram lies; inside a step values are taken as evenly spread."""
    counts = [histogram >> step * _ROOM & (1 << _ROOM) - 1 for step in range(Measures.STEPS)]
    whole = sum(counts)
    if not whole:
        return None
    below = 0
    for step, count in enumerate(counts):
        if count and below + count >= share * whole:
            inside = (share * whole - below) / count
            return float(2 ** ((step + inside) / 4)) if step else inside * 2**0.25  # the first step begins at 0
        below += count
    return None


Facts = dict[str, dict[str, Measures]]
"""Dimension -> value -> measures; the dimension `all` has one value."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A stretch of time that begins at `start`."""

    start: datetime
    facts: Facts

    @property
    def all(self) -> Measures:
        """Everything in it."""
        return self.facts.get(ALL, {}).get("", _NOTHING)

    def of(self, dimension: str, value: str) -> Measures:
        """One value's share."""
        return self.facts.get(dimension, {}).get(value, _NOTHING)


_NOTHING = Measures()


@dataclass(frozen=True, slots=True)
class Report:
    """Sums over consecutive buckets of one width."""

    width: timedelta
    buckets: tuple[Bucket, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many values a dimension has of which the dearest alone are told apart."""

    @property
    def since(self) -> datetime:
        """Where the first bucket begins."""
        return self.buckets[0].start

    @property
    def until(self) -> datetime:
        """Where the last bucket ends."""
        return self.buckets[-1].start + self.width

    def all(self) -> Measures:
        """Everything."""
        whole = Measures()
        for bucket in self.buckets:
            whole.add(bucket.all)
        return whole

    def count(self, dimension: str) -> int:
        """How many values a dimension has."""
        return max(self.counts.get(dimension, 0), len(self.by(dimension)))

    def by(self, dimension: str) -> list[tuple[str, Measures]]:
        """The values of a dimension with their sums, dearest first; of very many the dearest alone."""
        found: dict[str, Measures] = {}
        for bucket in self.buckets:
            for value, measures in bucket.facts.get(dimension, {}).items():
                found.setdefault(value, Measures()).add(measures)
        return sorted(found.items(), key=lambda entry: (-entry[1].cost, -entry[1].requests, entry[0]))

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.buckets)
