"""A stream as a list of its events: turned into one hub response, or made from one."""

from __future__ import annotations

from typing import Any

from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure
from tollgate.mapping.in_text import InText
from tollgate.mapping.names import OWN_RESPONSE
from tollgate.mapping.streams.converter import Out, lose_unread
from tollgate.mapping.streams.handlers import NO_WRITER
from tollgate.mapping.streams.marked import run_of
from tollgate.mapping.streams.part import part_arguments
from tollgate.mapping.streams.run import Run

_NAMED = {"$event", "data"}


def event_and_name(written: object) -> tuple[object, str | None]:
    """An event as examples and files write it, and its SSE name: `{$event: name, data: event}` where there is one."""
    if type(written) is dict and written.keys() == _NAMED:
        return written["data"], str(written["$event"])
    return written, None


def as_written(event: object, name: str | None) -> object:
    """The reverse: an event and its SSE name as examples and files write them."""
    return event if name is None else {"$event": name, "data": event}


def hub_of_stream(
    source: CompiledMapping, written: list[object], context: Context, in_text: InText | None = None
) -> dict[str, Any]:
    """The hub response that these events (as examples write them) make; only `{error: ...}` where they report one."""
    if source.stream_in is None:
        raise MappingFailure(f"mapping {source.name} has no stream.to_hub", source.file)
    context.lenient = True
    run = run_of(source, NO_WRITER, context, in_text=in_text)
    for event, name in map(event_and_name, written):
        run.event = name
        source.stream_in(event, run, context)
        run.settle()
    run.finish()
    return run.whole() if run.error is None else {"error": run.error}


def stream_from_hub(target: CompiledMapping, hub: dict[str, Any], context: Context) -> list[Out]:
    """A whole answer as a stream: a hub response -> the client's events, each part in one piece."""
    if target.writer is None:
        raise MappingFailure(f"mapping {target.name} has no stream.from_hub", target.file)
    context.lenient = True
    run = Run(target.writer, context, closes=True)
    with target.clean_answer:
        run.start(
            hub.get("id"),
            hub.get("model"),
            hub.get("created"),
            {key: value for key, value in hub.items() if key not in OWN_RESPONSE},
        )
        run.count_usage(hub.get("usage"))
        for part in hub.get("parts", []):
            run.part(*part_arguments(part))
        run.finished(hub.get("stop"), hub.get("stop_text"))
        run.marked = True
        run.finish()
    lose_unread(target, run, context)
    return run.out
