"""Converts a stream twice: with every event parsed, and with events that only differ in a text converted together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import orjson

from mappings.support import mapping
from tollgate.completions import converted_stream
from tollgate.completions.attempt import Attempt
from tollgate.completions.converted_stream import ConvertedStream
from tollgate.completions.repeated_deltas import take_repeated_deltas
from tollgate.mapping import CompiledMapping, Context, StreamConverter
from tollgate.mapping.provider.errors import ErrorRules
from tollgate.mapping.provider.reported_usage import ReportedUsage
from tollgate.remembered.thoughts import Thoughts
from tollgate.sse import Decoder


@contextlib.contextmanager
def counting() -> Iterator[list[int]]:
    """Lists how many events were converted together, for each look at a block."""
    together: list[int] = []

    def take(converter: StreamConverter, block: bytes, at: int) -> tuple[bytes, int]:
        converted, end = take_repeated_deltas(converter, block, at)
        together.append(converted.count(b"\n\n"))
        return converted, end

    with patch.object(converted_stream, "take_repeated_deltas", take):
        yield together


def client_events(
    source: CompiledMapping, target: str, blocks: list[bytes], *, whole: bool
) -> tuple[list[Any], StreamConverter]:
    """The events a client receives of a stream, and the converter at its end. `whole`: every event is parsed in
    full."""
    exchange: Any = SimpleNamespace(
        services=SimpleNamespace(metrics=SimpleNamespace(count_unmatched=lambda *_: None), thoughts=Thoughts()),
        client_format=mapping(target),
        attempt=Attempt(None, context=Context(run_id="r1", now=5)),
        inbound=SimpleNamespace(dialect=target, key=SimpleNamespace(account_id="a")),
        body={"store": False},
        client_usage=lambda: stage.usage() or {},
    )
    offer: Any = SimpleNamespace(
        framing="sse",
        inner=None,
        unwrap=None,
        in_text=None,
        stream_edits=None,
        usage=ReportedUsage(read=(lambda *_, **__: None) if whole else None),
        mapping=source,
        model_facts={},
        can={},
        minter="",
        model=SimpleNamespace(upstream="m"),
        protocol="x",
        provider="p",
        errors=SimpleNamespace(
            may_match=lambda block: b"overloaded_error" in block,
            judge=lambda *_, **__: None,
            judge_reported=ErrorRules().judge_reported,
        ),
    )
    stage = ConvertedStream(exchange, offer)
    out = b"".join([stage.feed(block) for block in blocks]) + stage.close() + stage.tail()
    assert len(out.decode().splitlines()) == out.count(b"\n")  # no Unicode line breaks either
    return [
        (event.name, event.data if event.data == b"[DONE]" else orjson.loads(event.data))
        for event in Decoder().feed(out)
    ], stage._converter


def both_ways(source: CompiledMapping | str, target: str, blocks: list[bytes]) -> int:
    """Asserts that both ways give the same events; returns how many events were converted together."""
    made = mapping(source) if isinstance(source, str) else source
    whole, plain = client_events(made, target, blocks, whole=True)
    with counting() as together:
        short, quick = client_events(made, target, blocks, whole=False)
    assert short == whole
    assert quick.parts() == plain.parts()
    assert (quick.usage, quick.stop, quick.lost) == (plain.usage, plain.stop, plain.lost)
    return sum(together)
