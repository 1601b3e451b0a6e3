"""Recorded streams are converted the same whether or not events that only differ in a text are converted together."""

from __future__ import annotations

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from completions.both_ways import both_ways  # reads the recordings


@pytest.mark.parametrize(
    ("source", "target", "least"),
    [
        ("chat", "messages", 1500),
        ("chat", "responses", 1500),
        ("messages", "chat", 200),
        ("messages", "responses", 200),
        ("responses", "chat", 0),
    ],
)
def test_recorded_streams_are_converted_the_same(source: str, target: str, least: int) -> None:
    streams = [stream.encode() for name in traffic.ids(source) if (stream := traffic.exchange(name).sse)]
    assert len(streams) > 80
    assert sum(both_ways(source, target, [stream]) for stream in streams) >= least
