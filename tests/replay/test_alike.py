"""Recorded streams are told the same whether or not events that repeat themselves but for a text are read whole."""

from __future__ import annotations

import orjson
import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from mapping.test_stream_alike import both_ways
from tollgate.sse import Decoder


def recorded(protocol: str) -> list[list[tuple[str | None, bytes]]]:
    """The parsable events of every recorded stream."""
    streams = [traffic.exchange(name).sse for name in traffic.ids(protocol)]
    return [[(name, data) for name, data in Decoder().feed_pairs(sse.encode()) if data[:1] == b"{" and orjson.loads(data)] for sse in streams if sse]


@pytest.mark.parametrize(("source", "target"), [("chat", "messages"), ("chat", "responses"), ("messages", "chat"), ("messages", "responses")])
def test_recorded_streams_are_told_the_same(source: str, target: str) -> None:
    skipped = [both_ways(source, target, events) for events in recorded(source)]
    assert len(skipped) > 80
    assert sum(skipped) > 250
