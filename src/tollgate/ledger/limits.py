"""Limits of keys: requests and tokens a minute, as token buckets in memory, and how many requests run at once.

Only admitted requests count. A bucket holds one minute's allowance, refills steadily, and is forgotten when it is full
again, so idle keys take no memory; nor do keys of which nothing runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tollgate.errors import RateLimited
from tollgate.ledger.records import KeyRecord

MINUTE = 60.0
_SWEEP_AT = 4096
"""The number of buckets at which full ones are looked for; later twice as many as there were left, so that many busy
keys do not have all buckets looked at with each request."""


@dataclass(frozen=True, slots=True)
class Window:
    """What the rate-limit headers report: the limit a minute, what remains, seconds until all of it is back."""

    limit: int
    remaining: int
    reset_seconds: float

    @classmethod
    def at(cls, limit: int, level: float) -> Self:
        """The window of a bucket with this level."""
        return cls(limit, max(0, int(level)), (limit - level) * MINUTE / limit if limit else MINUTE)


@dataclass(frozen=True, slots=True)
class Limits:
    """Both windows of a key after an admission or a refusal; None where the key has no such limit."""

    requests: Window | None = None
    tokens: Window | None = None


UNLIMITED = Limits()


class _Bucket:
    __slots__ = ("level", "limit", "stamp")

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self.level = float(limit)
        self.stamp = now

    def refill(self, limit: int, now: float) -> None:
        """Add what has come back since the last time. When the limit was changed, the remaining share stays."""
        if limit != self.limit:
            self.level = self.level * limit / self.limit if self.limit else float(limit)
            self.limit = limit
        self.level = min(float(limit), self.level + (now - self.stamp) * limit / MINUTE)
        self.stamp = now

    def wait_for(self, amount: float) -> float:
        """Seconds until `amount` is there; 0 when it is."""
        return max(0.0, (amount - self.level) * MINUTE / self.limit) if self.limit else MINUTE


def _standing(requests: _Bucket | None, used: _Bucket | None) -> Limits:
    return Limits(
        Window.at(requests.limit, requests.level) if requests else None,
        Window.at(used.limit, used.level) if used else None,
    )


class RateLimits:
    """The buckets of all keys."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._sweep_at = _SWEEP_AT

    def admit(self, key: KeyRecord, tokens: int = 0) -> Limits:
        """Count one request of about `tokens` tokens. Raises `RateLimited` (and counts nothing) when a limit is
        reached.

        A request larger than a whole minute's tokens passes when the bucket is full: it could never pass otherwise.
        """
        if key.rpm is None and key.tpm is None:
            return UNLIMITED
        now = self._clock()
        if len(self._buckets) >= self._sweep_at:  # before this key's buckets are looked up, which may be full
            self._sweep(now)
        requests = self._bucket(key.id, "requests", key.rpm, now)
        used = self._bucket(key.id, "tokens", key.tpm, now)
        if requests and (wait := requests.wait_for(1.0)):
            raise RateLimited(wait, "requests", _standing(requests, used))
        if used and (wait := used.wait_for(min(max(tokens, 1), used.limit))):
            raise RateLimited(wait, "tokens", _standing(requests, used))
        if requests:
            requests.level -= 1
        if used:
            used.level -= tokens
        return _standing(requests, used)

    def settle(self, key: KeyRecord, estimated: int, actual: int) -> None:
        """Correct the tokens counted at admission to what was really used."""
        if key.tpm is not None and (bucket := self._bucket(key.id, "tokens", key.tpm, self._clock())):
            bucket.level -= actual - estimated  # the next refill cuts off what is above the limit

    def _bucket(self, key_id: str, kind: str, limit: int | None, now: float) -> _Bucket | None:
        if limit is None:
            return None
        bucket = self._buckets.get((key_id, kind))
        if bucket is None:
            bucket = self._buckets[key_id, kind] = _Bucket(limit, now)
        else:
            bucket.refill(limit, now)
        return bucket

    def _sweep(self, now: float) -> None:
        for name, bucket in list(self._buckets.items()):
            bucket.refill(bucket.limit, now)
            if bucket.level >= bucket.limit:
                del self._buckets[name]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._buckets))


_MOST_WAIT = 60.0
_NEWEST_WEIGHT = 0.2
"""The weight of the request that ended last in the average duration."""


class Slot:
    """One of the requests that a key may run at once. Leave it on every way out; a second time does nothing."""

    __slots__ = ("_began", "_concurrency", "_key_id")

    def __init__(self, concurrency: Concurrency, key_id: str, began: float) -> None:
        self._concurrency: Concurrency | None = concurrency
        self._key_id = key_id
        self._began = began

    def leave(self) -> None:
        """Free the slot for another request of the key."""
        concurrency, self._concurrency = self._concurrency, None
        if concurrency is not None:
            concurrency.ended(self._key_id, self._began)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Concurrency:
    """How many requests of each key with a `max_concurrent` run in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[str, tuple[int, float | None]] = {}
        """By key: how many requests run, and the average seconds one takes (None before the first has ended)."""

    def occupy(self, key: KeyRecord) -> Slot | None:
        """One of the key's slots; None where the key has no such limit. Raises `RateLimited` when all are taken, with
        the time until one is likely to be free."""
        most = key.max_concurrent
        if most is None:
            return None
        count, takes = self._running.get(key.id, (0, None))
        if count >= most:
            wait = min(_MOST_WAIT, (takes or 0.0) / most) if most else MINUTE
            raise RateLimited(wait, "concurrent requests")
        self._running[key.id] = count + 1, takes
        return Slot(self, key.id, self._clock())

    def ended(self, key_id: str, began: float) -> None:
        """A request that began at this time has ended. A key without running requests is forgotten."""
        count, takes = self._running.pop(key_id)
        if count > 1:
            took = self._clock() - began
            takes = took if takes is None else takes + _NEWEST_WEIGHT * (took - takes)
            self._running[key_id] = count - 1, takes
