"""Sums of usage that can be added: counts, cost, tokens, and latency histograms.

Pure values. Percentiles cannot be added, so latencies are kept as histograms with logarithmic buckets, four to a
doubling. A percentile from such a histogram is within a few percent of the exact one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar

DIMENSIONS = ("model", "key_id", "provider", "endpoint", "account_id")
"""The columns by which usage is grouped."""
ENDPOINTS = ("chat", "responses", "messages", "embeddings", "images", "mcp", "count_tokens")
"""The values of the column `endpoint`."""
OUTCOMES = ("ok", "client_gone", "upstream_error", "timeout", "error", "rejected")
"""The values of the column `outcome`."""
OUTCOME_FILTERS = ("ok", "failed", *OUTCOMES[1:])
"""The values of an outcome filter: an outcome, or `failed` for all but `ok`."""
ALL = "all"

_COUNT_BITS = 40
"""Bits for the count of one step. A histogram is one integer, so that adding two of them is one addition."""


@dataclass(slots=True)
class Measures:
    """The sums over some requests. `first_byte` and `total` are packed histograms of milliseconds."""

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
    """The number of steps: the first is below 1.2 ms, the last over four hours."""

    def add(self, other: Measures) -> None:
        """Add the numbers of `other`."""
        for name in _FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def without(self, parts: Iterable[Measures]) -> Measures:
        """A copy with the numbers of `parts` subtracted."""
        rest = Measures()
        rest.add(self)
        for part in parts:
            for name in _FIELDS:
                setattr(rest, name, getattr(rest, name) - getattr(part, name))
        return rest

    @property
    def tokens(self) -> int:
        """The tokens of all buckets."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.output_tokens
            + self.reasoning_tokens
        )

    @property
    def failure_rate(self) -> float:
        """The share of failed requests."""
        return self.failed / self.requests if self.requests else 0.0

    @staticmethod
    def pack(steps: Iterable[int], counts: Iterable[int]) -> int:
        """A packed histogram with these counts: steps [3, 5] and counts [10, 2] become one integer."""
        return sum(count << step * _COUNT_BITS for step, count in zip(steps, counts, strict=True))

    def first_byte_ms(self, share: float) -> float | None:
        """A percentile (such as 0.95) of the time to the first byte; None if nothing was measured."""
        return percentile(self.first_byte, share)

    def total_ms(self, share: float) -> float | None:
        """A percentile of the time to the end of the answer; None if nothing was measured."""
        return percentile(self.total, share)


_FIELDS = tuple(each.name for each in fields(Measures))


def percentile(histogram: int, share: float) -> float | None:
    """The value below which this share of a packed histogram lies, interpolated linearly within a step; None if the
    histogram is empty."""
    counts = [histogram >> step * _COUNT_BITS & (1 << _COUNT_BITS) - 1 for step in range(Measures.STEPS)]
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
"""Dimension -> value -> measures; the dimension `all` has the one value ""."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The sums of a period that begins at `start`."""

    start: datetime
    facts: Facts

    @property
    def all(self) -> Measures:
        """The sums over all its requests."""
        return self.facts.get(ALL, {}).get("", _NOTHING)

    def of(self, dimension: str, value: str) -> Measures:
        """The sums of one value of a dimension."""
        return self.facts.get(dimension, {}).get(value, _NOTHING)


_NOTHING = Measures()


@dataclass(frozen=True, slots=True)
class Report:
    """Sums over consecutive buckets of one width."""

    width: timedelta
    buckets: tuple[Bucket, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of values of each dimension of which only the most expensive ones are listed."""

    @property
    def since(self) -> datetime:
        """The start of the first bucket."""
        return self.buckets[0].start

    @property
    def until(self) -> datetime:
        """The end of the last bucket."""
        return self.buckets[-1].start + self.width

    def all(self) -> Measures:
        """The sums over all buckets."""
        whole = Measures()
        for bucket in self.buckets:
            whole.add(bucket.all)
        return whole

    def count(self, dimension: str) -> int:
        """The number of values of a dimension."""
        return max(self.counts.get(dimension, 0), len(self.by(dimension)))

    def by(self, dimension: str) -> list[tuple[str, Measures]]:
        """The values of a dimension with their sums, most expensive first. Of very many values, only the most expensive
        ones."""
        found: dict[str, Measures] = {}
        for bucket in self.buckets:
            for value, measures in bucket.facts.get(dimension, {}).items():
                found.setdefault(value, Measures()).add(measures)
        return sorted(found.items(), key=lambda entry: (-entry[1].cost, -entry[1].requests, entry[0]))

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.buckets)
