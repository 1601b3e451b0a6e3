"""Sums of usage over time, cached by time bucket with the state (name, time, size) of their files: showing a page
again reads only what changed, so that 10 million rows are read once, not once per page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tollgate.dashboard import usage_sums
from tollgate.dashboard.usage_files import UsageFiles
from tollgate.dashboard.usage_sums import COUNTED, EVERY_VALUE, Leading, dimensions_of, in_groups, place
from tollgate.ledger.reports import Filters, hour_of, usage_files
from tollgate.measures import ALL, Bucket, Facts, Measures, Report
from tollgate.remembered.bounded import BoundedMemory

Signature = tuple[tuple[str, int, int], ...]
"""The state of a bucket's files; empty without rows."""

FILES = 500
"""Files that one query opens; each takes 0.1 MB beyond DuckDB's memory limit."""
_CACHE_SIZE = 40_000
"""`Measures` in the cache, about half a kilobyte each."""
_BYTES_A_ROW = 80
"""About the size of a row in a published file."""
_MEASURED_ROWS = 1_000_000
"""Latencies are counted from about so many rows, evenly chosen: more would take longer and not change a percentile."""
_SEARCH_AGAIN_AFTER = 60
"""The most expensive keys and accounts are searched again after this many times the duration of the search: a minute
for a second."""
_MOST_REMEMBERED = 200
"""Reports whose most expensive values are remembered."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A requested report; its filters do not limit the time."""

    filters: Filters
    width: timedelta
    starts: tuple[datetime, ...]
    states: Mapping[datetime, Signature]

    @property
    def name(self) -> tuple[object, ...]:
        """What this report has in common with those of other times."""
        return self.filters, self.width, len(self.starts)

    def key(self, start: datetime, leading: Leading) -> tuple[object, ...]:
        """The cache key for the sums of one of its buckets."""
        return self.filters, self.width, leading.key, start

    def groups(self, starts: Sequence[datetime]) -> list[list[datetime]]:
        """Consecutive buckets in groups of as many as one query may read."""
        return in_groups(starts, self.states, FILES)

    def rows_of(self, starts: Sequence[datetime]) -> int:
        """About how many rows these buckets have, by the size of their files."""
        return sum(size for start in starts for _, _, size in self.states[start]) // _BYTES_A_ROW

    def during(self, group: Sequence[datetime]) -> Filters:
        """Filters for the rows of some consecutive buckets."""
        return replace(self.filters, since=group[0], until=group[-1] + self.width)


class Reports:
    """Reports over the files of one usage directory. `report` may run on several threads."""

    def __init__(self, files: UsageFiles, clock: Callable[[], datetime]) -> None:
        self._files = files
        self._clock = clock
        self._cache: BoundedMemory[tuple[object, ...], tuple[Signature, Facts]] = BoundedMemory(_CACHE_SIZE)
        self._remembered: BoundedMemory[tuple[object, ...], tuple[Leading, float]] = BoundedMemory(_MOST_REMEMBERED)
        """For reports with too many keys or accounts: the values that have their own sums, and the clock time until
        which."""

    def report(self, filters: Filters, width: timedelta, count: int) -> Report:
        """Sums of the last `count` buckets of `width`, the current one included, over the rows that fit `filters`."""
        starts = tuple(bucket_starts(self._clock(), width, count))
        request = _Request(replace(filters, since=None, until=None), width, starts, self._states(starts, width))
        leading, until = self._remembered_leading(request)
        found, missing = self._found(request, leading)
        if time.monotonic() > until or (leading is EVERY_VALUE and self._are_too_many(request, missing)):
            leading = self._find_leading(request)
            found, missing = self._found(request, leading)
        for group in request.groups(missing):
            began = time.monotonic()
            fresh = self._sum(request.during(group), width, leading, _MEASURED_ROWS * len(group) // len(missing))
            for start in group:
                facts = found[start] = fresh.get(start, {})
                if self._files.incomplete_at < began:
                    self._cache.keep(request.key(start, leading), (request.states[start], facts), _weight(facts))
        return Report(width, tuple(Bucket(start, found.get(start, {})) for start in starts), leading.counts)

    def _states(self, starts: Sequence[datetime], width: timedelta) -> dict[datetime, Signature]:
        """The present state of each bucket's files."""
        states: dict[datetime, list[tuple[str, int, int]]] = {start: [] for start in starts}
        first = starts[0]
        for path in usage_files(self._files.directory, first, starts[-1] + width):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            state = (path.name, about.st_mtime_ns, about.st_size)
            hour = hour_of(path)
            place = max(0, (hour - first) // width)
            while place < len(starts) and starts[place] < hour + timedelta(hours=1):
                states[starts[place]].append(state)
                place += 1
        return {start: tuple(found) for start, found in states.items()}

    def _found(self, request: _Request, leading: Leading) -> tuple[dict[datetime, Facts], list[datetime]]:
        """The cached buckets, and those that must be summed."""
        kept = {start: self._cache.find(request.key(start, leading)) for start in request.starts}
        found = {start: each[1] for start, each in kept.items() if each and each[0] == request.states[start]}
        return found, [start for start in request.starts if start not in found and request.states[start]]

    # ---- values with their own sums

    def _are_too_many(self, request: _Request, missing: Sequence[datetime]) -> bool:
        """Whether there are more keys or accounts than can have their own sums; reads the newest files."""
        return request.rows_of(missing) > _CACHE_SIZE and bool(
            self._leading(request, request.groups(missing)[-1:]).values
        )

    def _remembered_leading(self, request: _Request) -> tuple[Leading, float]:
        return self._remembered.find(request.name) or (EVERY_VALUE, float("inf"))

    def _find_leading(self, request: _Request) -> Leading:
        """Find the most expensive keys and accounts, and remember them for a while; not if these are all."""
        began = time.monotonic()
        newer = self._leading(request, request.groups(request.starts))
        leading, now = self._remembered_leading(request)[0].or_newer(newer), time.monotonic()
        until = now + _SEARCH_AGAIN_AFTER * (now - began) if leading.values else float("inf")
        self._remembered.keep(request.name, (leading, until), 1)
        return leading

    def _leading(self, request: _Request, groups: Sequence[Sequence[datetime]]) -> Leading:
        statement = usage_sums.leading_sql(dimensions_of(request.filters))
        return usage_sums.read_leading(
            row for group in groups for row in self._files.query(request.during(group), statement)
        )

    # ---- sums

    def _sum(self, filters: Filters, width: timedelta, leading: Leading, most: int) -> dict[datetime, Facts]:
        """The sums of each bucket; latencies are counted from about `most` rows. The rows are counted first: a file of
        ten may be as large as one of thousands."""
        dimensions = dimensions_of(filters)
        buckets: dict[datetime, Facts] = {}

        def measures(row: tuple[Any, ...]) -> Measures | None:
            start = row[0].replace(tzinfo=UTC)
            name, value = place(row[1], dimensions, row[2:])
            if not leading.has_own_sums(name, value):
                return None
            return buckets.setdefault(start, {}).setdefault(name, {}).setdefault(value or "", Measures())

        after = 2 + len(dimensions)
        for row in self._files.query(filters, usage_sums.sums_sql(width, dimensions, leading)):
            if (measured := measures(row)) is not None:
                for name, number in zip(COUNTED, row[after:], strict=True):
                    setattr(measured, name, number)
        every = 1 + sum(facts[ALL][""].requests for facts in buckets.values()) // max(1, most)
        for row in self._files.query(filters, usage_sums.times_sql(width, dimensions, every, leading)):
            if (measured := measures(row)) is not None:
                kind = "total" if row[after] else "first_byte"
                setattr(measured, kind, Measures.pack(row[after + 1], row[after + 2]))
        return buckets


def bucket_starts(now: datetime, width: timedelta, count: int) -> Iterator[datetime]:
    """The starts of the last `count` buckets, oldest first; the last one contains `now`. Widths divide a day, or are
    days."""
    origin = datetime(2000, 1, 3, tzinfo=UTC)
    newest = origin + (now - origin) // width * width
    for back in range(count - 1, -1, -1):
        yield newest - back * width


def _weight(facts: Facts) -> int:
    return 1 + sum(len(values) for values in facts.values())
