"""Metrics in the Prometheus text format: requests, tokens, cost, latency and upstream attempts.

The counters are plain dictionaries, used only on the event loop. The number of label values is bounded: no label holds
text chosen by a caller.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_MOST_EVENTS = 200
_TEXT = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Metrics:
    """All counters of one process."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self.attempts: dict[tuple[str, str], int] = defaultdict(int)
        self.tokens: dict[tuple[str, str], int] = defaultdict(int)
        self.cost: dict[str, Decimal] = defaultdict(Decimal)
        self.outcomes: dict[str, int] = defaultdict(int)
        self.unmatched_events: dict[str, int] = defaultdict(int)
        self.refused: dict[str, int] = defaultdict(int)
        self.running = 0
        self._seconds: dict[str, list[int]] = {}
        self._seconds_sum: dict[str, float] = defaultdict(float)

    def count_unmatched(self, protocol: str, types: Mapping[str, int]) -> None:
        """Count the stream events that no mapping rule reads. Upstreams choose their names, so further names share one
        counter after a limit."""
        for name, count in types.items():
            event = f"{protocol} {name}"[:100]
            known = event in self.unmatched_events or len(self.unmatched_events) < _MOST_EVENTS
            self.unmatched_events[event if known else f"{protocol} (others)"] += count

    def count_reply(self, endpoint: str, status: int, seconds: float) -> None:
        """Count one reply of an endpoint, with its duration."""
        self.requests[endpoint, status] += 1
        buckets = self._seconds.get(endpoint)
        if buckets is None:
            buckets = self._seconds[endpoint] = [0] * (len(_BUCKETS) + 1)
        buckets[bisect_left(_BUCKETS, seconds)] += 1
        self._seconds_sum[endpoint] += seconds

    def render(self, gauges: dict[str, tuple[str, float]] | None = None) -> str:
        """The text exposition format. `gauges` adds current values by name, each with its help text."""
        cost = {provider: format(amount, "f") for provider, amount in self.cost.items()}
        lines = [
            *_counter(
                "tollgate_requests_total", "Replies by endpoint and status.", self.requests, "endpoint", "status"
            ),
            *_counter(
                "tollgate_upstream_attempts_total",
                "Upstream calls by provider and result.",
                self.attempts,
                "provider",
                "result",
            ),
            *_counter(
                "tollgate_tokens_total", "Billed tokens by provider and bucket.", self.tokens, "provider", "bucket"
            ),
            *_counter("tollgate_cost_usd_total", "Billed cost in USD by provider.", cost, "provider"),
            *_counter("tollgate_outcomes_total", "How answers ended.", self.outcomes, "outcome"),
            *_counter(
                "tollgate_refused_total",
                "Requests that got an error before an answer began, from the gateway or from a provider, by reason.",
                self.refused,
                "reason",
            ),
            *_counter(
                "tollgate_unmatched_stream_events_total",
                "Stream events that no mapping rule reads, by protocol and type.",
                self.unmatched_events,
                "event",
            ),
            *self._latencies(),
            *_gauge("tollgate_requests_running", "Requests being answered now.", self.running),
            *_gauge("tollgate_start_time_seconds", "When the process started, Unix seconds.", f"{self.started:.3f}"),
        ]
        for name, (about, value) in sorted((gauges or {}).items()):
            lines += _gauge(name, about, float(value))
        return "\n".join(lines) + "\n"

    def _latencies(self) -> list[str]:
        """The histogram of request durations, by endpoint."""
        lines = [
            "# HELP tollgate_request_seconds Time to the end of an answer.",
            "# TYPE tollgate_request_seconds histogram",
        ]
        for endpoint, buckets in sorted(self._seconds.items()):
            total = 0
            for bound, count in zip((*_BUCKETS, "+Inf"), buckets, strict=True):
                total += count
                lines.append(f"tollgate_request_seconds_bucket{_labels(endpoint=endpoint, le=str(bound))} {total}")
            lines.append(f"tollgate_request_seconds_sum{_labels(endpoint=endpoint)} {self._seconds_sum[endpoint]:.6f}")
            lines.append(f"tollgate_request_seconds_count{_labels(endpoint=endpoint)} {total}")
        return lines


def _gauge(name: str, about: str, value: object) -> list[str]:
    """The lines of one gauge."""
    return [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value}"]


def _counter(name: str, about: str, counts: Mapping[Any, object], *labels: str) -> list[str]:
    """The lines of one counter. A key of `counts` is a label value or a tuple of them, for the `labels`."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} counter"]
    for key, value in sorted(counts.items()):
        values = map(str, key if isinstance(key, tuple) else (key,))
        lines.append(f"{name}{_labels(**dict(zip(labels, values, strict=True)))} {value}")
    return lines


def _labels(**pairs: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_TEXT)}"' for name, value in pairs.items()) + "}"
