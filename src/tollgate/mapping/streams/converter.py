"""Streams from one protocol to another, event by event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault, MappingFailure, failure
from tollgate.mapping.in_text import InText
from tollgate.mapping.streams.alike import Alike, Lead, Sent, alike
from tollgate.mapping.streams.marked import MarkedRun, run_of
from tollgate.mapping.streams.run import Run

Out = tuple[str | None, Any]
"""One event for the client: its SSE name (or None) and its data: an object, a text such as [DONE], or (only with
`frames`) the bytes of an object's JSON."""

DONE = "[DONE]"
_MOST_VAIN = 8
"""After so many patterns in a row that no event fitted, no more are tried. The beginning of a part has three or four of
them."""


class StreamConverter:
    """One answer: upstream events in, the client's events out. With `frames`, deltas of only text come as JSON bytes.
    With `defer_errors`, an error of the upstream is only kept in `error`, and `fail` sends it."""

    __slots__ = ("_context", "_rules", "_run", "_vain", "failure", "pattern", "source", "target")

    def __init__(
        self,
        source: CompiledMapping,
        target: CompiledMapping,
        context: Context,
        *,
        frames: bool = False,
        defer_errors: bool = False,
        in_text: InText | None = None,
    ) -> None:
        if source.stream_in is None or target.writer is None:
            missing = source if source.stream_in is None else target
            raise MappingFailure(
                f"mapping {missing.name} has no stream.{'to_hub' if missing is source else 'from_hub'}", missing.file
            )
        context.lenient = True
        self.source = source
        self.target = target
        self._context = context
        self._rules = source.stream_in
        self._run = run_of(source, target.writer, context, frames=frames, in_text=in_text)
        self._run.defer_errors = defer_errors
        self._vain = _MOST_VAIN if type(self._run) is MarkedRun else 0  # text that is searched cannot pass unread
        self.pattern: Alike | None = None
        """The pattern that the next events may fit, see `follow`."""
        self.failure: MappingFailure | None = None
        """A failure of the mapping itself, for the log; an error was sent to the client."""

    def feed(self, event: object, name: str | None = None) -> list[Out]:
        """One upstream event -> the events it makes.

        Never raises: a mapping that fails ends the stream with an error event.
        """
        out: list[Out] = []
        self.feed_into(out, event, name)
        return out

    def feed_into(self, out: list[Out], event: object, name: str | None = None) -> bool:
        """`feed`, with the results appended to `out`. False once the answer has failed."""
        run = self._run
        run.out = out
        if type(event) is not dict:
            if type(event) is str and event.strip() == DONE:
                # the end mark: `finish` sends it, because usage may still come
                run.marked = True
                return run.error is None
            if event is None:
                return run.error is None
        run.event = name
        self._context.calls = 0
        try:
            self._rules(event, run, self._context)
            if not run.begun:
                run.settle()
        except (Fault, RecursionError) as error:
            self._failed(error)
        return run.error is None

    @property
    def follows(self) -> bool:
        """Whether to call `follow`. Not worth it where the events of an upstream differ in more than their text."""
        return self._vain < _MOST_VAIN

    def follow(self, name: str | None, data: bytes) -> None:
        """Make the event just fed the pattern for the next ones, if it can be one; `data` is its JSON as written."""
        if type(self._run) is MarkedRun:
            return
        self._vain = 0 if self.pattern is not None and self.pattern.used else self._vain + 1
        self.pattern = alike(self._rules, self._run, self._context, name, data) if self._run.error is None else None

    def feed_alike(self, written: list[bytes], lead: Lead) -> Sent:
        """`feed` for events that fit the pattern, given their texts as the events write them in JSON. Returns the SSE
        bytes for the client, with `lead` before each JSON, and for how many events, since it may stop early."""
        return self.pattern.take(self._run, written, lead) if self.pattern is not None else (b"", 0)

    def finish(self) -> list[Out]:
        """The upstream ended: close what is open, then send the finish, or an error if it never stopped."""
        return self._end(self._run.finish)

    def fail(self, message: str, type: str | None = None) -> list[Out]:
        """The connection or the gateway failed: send an error, unless the stream is already over."""
        self._run.defer_errors = False
        return self._end(self._run.fail, {"message": message, "type": type})

    def _end(self, end: Callable[..., None], *arguments: object) -> list[Out]:
        run = self._run
        run.out = []
        try:
            end(*arguments)
        except Fault as fault:
            self._failed(fault)
        lose_unread(self.target, run, self._context)
        return run.out

    def _failed(self, error: Fault | RecursionError) -> None:
        self.failure = failure(error, (self.source.file, self.target.file), request=False)
        run = self._run
        if run.state == "open":
            run.state = "error"
            run.error = {"message": "this answer cannot be converted", "type": "api_error"}
            before = len(run.out)
            try:
                run.send_error()
            except Fault:
                del run.out[before:]  # the error event itself cannot be made: the stream just ends

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts so far, as a hub usage. An estimate may be set where counts never came."""
        return self._run.usage

    @usage.setter
    def usage(self, counts: dict[str, Any]) -> None:
        self._run.usage = dict(counts)

    @property
    def stop(self) -> str | None:
        """Why the upstream stopped, once it did; `end` when it only marked the end of the stream."""
        run = self._run
        return run.stop or ("end" if run.marked and run.received() else None)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that the upstream (or the gateway) reported."""
        return self._run.error

    @property
    def started(self) -> bool:
        """Whether anything was sent to the client."""
        return self._run.begun

    def response_field(self, field: str) -> object:
        """A further field of the hub response, from the start of the stream."""
        return self._run.more.get(field)

    @property
    def lost(self) -> list[str]:
        """What could not be carried over."""
        return self._context.lost

    @property
    def unmatched(self) -> dict[str, int]:
        """How many events had no rule, by type."""
        return self._run.unmatched

    @property
    def hub(self) -> dict[str, Any]:
        """The answer so far, as a hub response."""
        return self._run.whole()

    def parts(self) -> list[dict[str, Any]]:
        """Everything received so far, as hub parts, also parts held back and kinds without events for the client."""
        return self._run.received()


def lose_unread(target: CompiledMapping, run: Run, context: Context) -> None:
    """At the end, note as lost what the answer had and the client's format has no field for, in the same words as for a
    whole answer."""
    walker = target.walkers.get("response.from_hub")
    if walker is not None:
        # the other fields describe the answer itself
        for words in walker.lost({"parts": run.received(), "stop_text": run.stop_text}):
            context.lose(words)
