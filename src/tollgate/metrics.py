"""Counters a Prometheus server can read: requests, tokens, money, latency, upstream attempts, cooldowns.

Plain dictionaries of numbers, touched only on the event loop; rendering is the only place that builds text. Labels are
bounded: endpoint, status, provider and outcome, never a model name a caller made up.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

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

    def unmatched(self, protocol: str, types: Mapping[str, int]) -> None:
        """Count the events of a stream that no mapping rule reads. An upstream chooses their names,
        so only so many are kept apart."""
        for name, count in types.items():
            event = f"{protocol} {name}"[:100]
            known = event in self.unmatched_events or len(self.unmatched_events) < _MOST_EVENTS
            self.unmatched_events[event if known else f"{protocol} (others)"] += count

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Count one reply of an endpoint."""
        self.requests[endpoint, status] += 1
        buckets = self._seconds.get(endpoint)
        if buckets is None:
            buckets = self._seconds[endpoint] = [0] * (len(_BUCKETS) + 1)
        buckets[bisect_left(_BUCKETS, seconds)] += 1
        self._seconds_sum[endpoint] += seconds

    def render(self, gauges: dict[str, tuple[str, float]] | None = None) -> str:
        """The text exposition format; `gauges` adds values read now (ready, alarms, routes cooling),
        each with what it means."""
        out: list[str] = []

        def family(name: str, kind: str, about: str, rows: list[tuple[str, object]]) -> None:
            out.append(f"# HELP {name} {about}")
            out.append(f"# TYPE {name} {kind}")
            out.extend(f"{name}{labels} {value}" for labels, value in rows)

        family(
            "tollgate_requests_total",
            "counter",
            "Replies by endpoint and status.",
            [
                (_labels(endpoint=endpoint, status=str(status)), count)
                for (endpoint, status), count in sorted(self.requests.items())
            ],
        )
        family(
            "tollgate_upstream_attempts_total",
            "counter",
            "Upstream calls by provider and result.",
            [
                (_labels(provider=provider, result=result), count)
                for (provider, result), count in sorted(self.attempts.items())
            ],
        )
        family(
            "tollgate_tokens_total",
            "counter",
            "Billed tokens by provider and bucket.",
            [
                (_labels(provider=provider, bucket=bucket), count)
                for (provider, bucket), count in sorted(self.tokens.items())
            ],
        )
        family("tollgate_cost_usd_total", "counter", "Billed cost in USD by provider.",
               [(_labels(provider=provider), format(cost, "f")) for provider, cost in sorted(self.cost.items())])
        family("tollgate_outcomes_total", "counter", "How answers ended.",
               [(_labels(outcome=outcome), count) for outcome, count in sorted(self.outcomes.items())])
        family(
            "tollgate_refused_total",
            "counter",
            "Requests that got an error instead of an answer, by reason: refused here, or failed at the provider "
            "before an answer began.",
            [(_labels(reason=reason), count) for reason, count in sorted(self.refused.items())],
        )
        family(
            "tollgate_unmatched_stream_events_total",
            "counter",
            "Stream events no mapping rule reads, by protocol and type.",
            [(_labels(event=event), count) for event, count in sorted(self.unmatched_events.items())],
        )
        out.append("# HELP tollgate_request_seconds Time to the end of an answer.")
        out.append("# TYPE tollgate_request_seconds histogram")
        for endpoint, buckets in sorted(self._seconds.items()):
            total = 0
            for bound, count in zip((*_BUCKETS, "+Inf"), buckets, strict=True):
                total += count
                out.append(f"tollgate_request_seconds_bucket{_labels(endpoint=endpoint, le=str(bound))} {total}")
            out.append(f"tollgate_request_seconds_sum{_labels(endpoint=endpoint)} {self._seconds_sum[endpoint]:.6f}")
            out.append(f"tollgate_request_seconds_count{_labels(endpoint=endpoint)} {total}")
        family("tollgate_requests_running", "gauge", "Requests being answered now.", [("", self.running)])
        family(
            "tollgate_start_time_seconds",
            "gauge",
            "When the process started, Unix seconds.",
            [("", f"{self.started:.3f}")],
        )
        for name, (about, value) in sorted((gauges or {}).items()):
            family(name, "gauge", about, [("", value)])
        return "\n".join(out) + "\n"


def _labels(**pairs: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_TEXT)}"' for name, value in pairs.items()) + "}"
