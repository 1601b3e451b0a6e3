"""Reads usage, stop and parts of answers that pass through untouched, for accounting. Never raises."""

from __future__ import annotations

from typing import Any

from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.context import Context
from tollgate.mapping.convert import response_to_hub
from tollgate.mapping.failures import Fault, MappingFailure
from tollgate.mapping.hub import settled_stop
from tollgate.mapping.streams.converter import DONE
from tollgate.mapping.streams.handlers import NO_WRITER
from tollgate.mapping.streams.run import Run


class Tap:
    """Watches a stream that passes through untouched. Never raises."""

    __slots__ = ("_context", "_rules", "_run")

    def __init__(self, source: CompiledMapping) -> None:
        self._context = Context(lenient=True)
        self._rules = source.stream_in
        self._run = Run(NO_WRITER, self._context, closes=source.stream_closes)

    def feed(self, event: object, name: str | None = None) -> None:
        """Watch one event."""
        run = self._run
        if type(event) is not dict or self._rules is None:
            run.marked = run.marked or type(event) is str and event.strip() == DONE
            return
        run.event = name
        self._context.calls = 0
        try:
            self._rules(event, run, self._context)
        except (Fault, RecursionError):
            return  # what was read before still counts

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts so far, as a hub usage."""
        return self._run.usage

    @property
    def stop(self) -> str | None:
        """Why the upstream stopped, once it did; `end` (or `tool`) when it only marked the end of the stream."""
        run = self._run
        reason = run.stop or ("end" if run.marked and run.error is None else None)
        return settled_stop(reason, calls="tool_call" in run.seen) if reason else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that the upstream reported."""
        return self._run.error

    def parts(self) -> list[dict[str, Any]]:
        """Everything received so far, as hub parts."""
        return self._run.received()


def tap_response(source: CompiledMapping, body: object) -> dict[str, Any]:
    """A whole answer that passes through, as a hub response for usage and stop; {} when it cannot be read."""
    try:
        return response_to_hub(source, body, Context())
    except MappingFailure:
        return {}


def tap_usage(source: CompiledMapping, body: object) -> dict[str, Any]:
    """The usage of a whole answer that passes through. The rest is not converted where the mapping's usage can be read
    alone."""
    if source.usage_in is None or type(body) is not dict:
        return tap_response(source, body).get("usage") or {}
    try:
        usage = (source.usage_in(body, Context(lenient=True)) or {}).get("usage")
    except (Fault, MappingFailure, RecursionError):
        return {}
    return usage if type(usage) is dict else {}
