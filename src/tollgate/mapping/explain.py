"""`explain`: a conversion step by step - the YAML line, the output path, the value - and what was not read.

The same compiler makes the traced functions, with one more call per value, so what is shown is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

from tollgate.errors import TollgateError
from tollgate.mapping.compiler import CompiledMapping, compile_mapping
from tollgate.mapping.convert import (
    error_from_hub,
    error_to_hub,
    request_from_hub,
    request_to_hub,
    response_from_hub,
    response_to_hub,
)
from tollgate.mapping.in_text import InText
from tollgate.mapping.streams.converter import Out, StreamConverter
from tollgate.mapping.streams.whole import event_and_name
from tollgate.mapping.tracing import Step, TraceContext
from tollgate.mapping.values import shown

_WIDEST = 100


@dataclass(slots=True)
class Stage:
    """One half of a conversion, or one stream event: what was done in which file."""

    title: str
    file: str
    unread: list[str] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    """The stream events that it produced."""
    steps: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Explained:
    """A whole conversion: its stages, its result (None if it failed), what was lost, and the error message."""

    stages: list[Stage] = field(default_factory=list)
    result: Any = None
    lost: list[str] = field(default_factory=list)
    error: str = ""

    def text(self) -> str:
        """As text for people: one block per stage."""
        out: list[str] = []
        for stage in self.stages:
            out.append(f"== {stage.title}    ({stage.file})")
            for step in stage.steps:
                place = str(step.line) if step.file == stage.file else f"{PurePath(step.file).name}:{step.line}"
                out.append(f"{place:>18}  {step.path:34} {shown(step.value, _WIDEST)}")
            out.extend(f"{'says':>18}  {shown(event, _WIDEST)}" for event in stage.said)
            if stage.unread:
                out.append(f"  never read by the mapping: {', '.join(stage.unread)}")
        if self.lost:
            out.append(f"lost: {', '.join(self.lost)}")
        if self.error:
            out.append(f"error: {self.error}")
        return "\n".join(out)

    def plain(self) -> dict[str, Any]:
        """As plain values for scripts: `--explain --json` prints them, so the names of fields are fixed."""
        return asdict(self)


def traced(mapping: CompiledMapping) -> CompiledMapping:
    """The same mapping, compiled so that it records its steps."""
    return compile_mapping(mapping.document, plugins=mapping.plugins, trace=True)


def explain_stream(
    source: CompiledMapping,
    target: CompiledMapping,
    events: Iterable[Any],
    context: TraceContext,
    in_text: InText | None = None,
) -> Explained:
    """A stream, event by event: what the rules read of it, and the events for the client."""
    converter = StreamConverter(traced(source), traced(target), context, in_text=in_text)
    stages: list[Stage] = []

    def stage(title: str, file: str, produced: list[Out]) -> None:
        stages.append(Stage(title, file, said=[data for _, data in produced], steps=context.taken()))

    for number, event in enumerate(events, 1):
        stage(f"event {number}: {shown(event, _WIDEST)}", source.file, converter.feed(*event_and_name(event)))
    stage("the upstream ended", target.file, converter.finish())
    result = [data for each in stages for data in each.said]
    return Explained(stages, result, list(context.lost), str(converter.failure or ""))


_HOPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "request": (request_to_hub, request_from_hub),
    "response": (response_to_hub, response_from_hub),
    "error": (error_to_hub, error_from_hub),
}


def explain_whole(
    what: str,
    source: CompiledMapping,
    target: CompiledMapping,
    body: Any,
    context: TraceContext,
    in_text: InText | None = None,
) -> Explained:
    """A request, a whole answer (`response`; `in_text` has its provider's marks) or an error body, in its two
    halves."""
    first, second = _HOPS[what]
    if in_text is not None:
        first = partial(first, in_text=in_text)
    explained = Explained()
    given = body
    try:
        hops = [
            (source, first, "to_hub", f"{source.name} {what} -> hub"),
            (target, second, "from_hub", f"hub -> {target.name} {what}"),
        ]
        if what == "response" and source.hub:
            hops.pop()  # no mapping writes a client's vectors
        for mapping, hop, direction, title in hops:
            walker = mapping.walkers.get(f"{what}.{direction}")
            stage = Stage(title, mapping.file, walker.lost(given) if walker and type(given) is dict else [])
            explained.stages.append(stage)
            try:
                given = hop(traced(mapping), given, context)
            finally:
                stage.steps = context.taken()
        explained.result = given
    except TollgateError as error:
        explained.error = str(error)
    explained.lost = list(context.lost)
    return explained
