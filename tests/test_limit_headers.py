"""When a key's limits are back, as clients read it from the headers."""

from datetime import UTC, datetime, timedelta

import pytest

from mappings.support import mapping
from tollgate.ledger.limits import Limits, Window
from tollgate.limit_headers import duration, limit_headers


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (0.012, "12ms"),
        (0.0124, "13ms"),
        (0.9996, "1s"),
        (1.0, "1s"),
        (1.4, "2s"),
        (59.4, "1m0s"),
        (360.0, "6m0s"),
        (3725.0, "62m5s"),
    ],
)
def test_a_duration_is_written_in_milliseconds_seconds_or_minutes_and_never_too_short(seconds: float, text: str):
    assert duration(seconds) == text


def test_an_instant_is_as_far_ahead_as_the_window_needs():
    before = datetime.now(UTC)
    headers = dict(limit_headers(mapping("messages").reply_headers, Limits(Window(10, 3, 90.0), Window(500, 20, 30.0))))
    for name, seconds in ((b"requests", 90), (b"tokens", 30)):
        reset = datetime.fromisoformat(headers[b"anthropic-ratelimit-" + name + b"-reset"].decode())
        assert timedelta(0) <= reset - before - timedelta(seconds=seconds) <= timedelta(seconds=20)
