"""A recorded stream reports the same losses as the same answer converted whole, and its calls have the same ids."""

from __future__ import annotations

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from replay.assembled import ASSEMBLE
from replay.cells import CLIENTS, UPSTREAMS, context, mapping, spoken
from tollgate.mapping import StreamConverter, convert_response


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_reports_the_losses_of_its_whole_answer(client: str, upstream: str) -> None:
    seen, differ = 0, {}
    for x in map(traffic.exchange, traffic.ids(upstream)):
        whole = ASSEMBLE[upstream](x.events) if spoken(x) else None
        if whole is None:
            continue
        converter = StreamConverter(mapping(upstream), mapping(client), context())
        for name, event in x.events:
            converter.feed(event, name)
        converter.finish()
        if converter.error is not None:
            continue
        seen += 1
        done = convert_response(mapping(upstream), mapping(client), whole, context())
        if sorted(converter.lost) != sorted(done.lost):
            differ[x.id] = {"streamed": converter.lost, "whole": done.lost}
        calls = [
            [part["id"] for part in parts if part["kind"] == "tool_call"]
            for parts in (converter.parts(), done.hub["parts"])
        ]
        if calls[0] != calls[1]:
            differ[x.id] = {"streamed": calls[0], "whole": calls[1]}
    assert seen and not differ
