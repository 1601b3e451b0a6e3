"""A streamed answer with marks in its text (`in_text:`): a `Run` that takes the text apart before the client gets it.

It is a class of its own, so that answers without marks cost nothing more.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.context import Context
from tollgate.mapping.in_text import InText
from tollgate.mapping.in_text_scan import Found
from tollgate.mapping.streams.handlers import EventWriter
from tollgate.mapping.streams.part import NO_DETAILS, Details, part_arguments
from tollgate.mapping.streams.run import Run
from tollgate.mapping.values import text_of


class MarkedRun(Run):
    """A `Run` whose text deltas are one text until another kind of part comes, or a text with another key."""

    __slots__ = ("_in_text", "_place", "_scanner")

    def __init__(
        self, writer: EventWriter, context: Context, marks: InText, *, closes: bool, frames: bool = False
    ) -> None:
        super().__init__(writer, context, closes=closes, frames=frames)
        self._scanner = marks.scanner(context)
        self._place: object = None
        """The upstream's key of the current text."""
        self._in_text = False
        """There was text since the last one ended."""

    def open(self, kind: str, key: object = None, details: Details = NO_DETAILS) -> None:
        """As `Run.open`, but a text is opened when its first words come."""
        self._end_text()
        if kind == "text":
            self._place = key
            super().delta("text", None, None, details.unnamed())
        else:
            super().open(kind, key, details)

    def delta(self, kind: str, key: object = None, text: object = None, details: Details | None = None) -> None:
        """As `Run.delta`."""
        if kind != "text":
            if text or details:
                self._end_text()
            super().delta(kind, key, text, details)
            return
        if key != self._place:
            self._end_text()
            self._place = key
        if details is not None:
            super().delta("text", None, None, details.unnamed())
        if text and self.state == "open":
            self._in_text = True
            self._send_found(self._scanner.feed(text if type(text) is str else text_of(text)))

    steady = delta

    def close(
        self, key: object = None, kind: str | None = None, text: object = None, details: Details = NO_DETAILS
    ) -> None:
        """As `Run.close`."""
        of_text = kind == "text" or kind is None and self._in_text and key == self._place
        if not of_text:
            super().close(key, kind, text, details)
            return
        if text and not self._in_text:
            self.delta("text", key, text, details)
        self._end_text()

    def close_late(self, key: object = None) -> None:
        """As `Run.close`: what was held back of the text must be sent first."""
        self.close(key)

    def part(self, kind: str, key: object = None, text: object = None, details: Details = NO_DETAILS) -> None:
        """As `Run.part`."""
        self._end_text()
        if kind == "text":
            self.delta("text", None, text, details)
            self._end_text()
        else:
            super().part(kind, key, text, details)

    def finish(self) -> None:
        """As `Run.finish`."""
        self._end_text()
        super().finish()

    def fail(self, error: object) -> None:
        """As `Run.fail`; the client first gets the text that was held back, as it was received."""
        self._end_text()
        super().fail(error)

    def received(self) -> list[dict[str, Any]]:
        """As `Run.received`."""
        held = self._scanner.held
        return [*super().received(), {"kind": "text", "text": held}] if held else super().received()

    def _end_text(self) -> None:
        """End the current text: send what was held back of it."""
        self._place = None
        if not self._in_text or self.state != "open":
            return
        self._in_text = False
        self._send_found(self._scanner.finish())
        super().close(None, "text")

    def _send_found(self, found: list[Found]) -> None:
        for kind, text, parts in found:
            if parts is not None:
                for part in parts:
                    super().part(*part_arguments(part))
            elif text is None:
                super().close(None, kind)
            else:
                super().delta(kind, None, text)


def run_of(
    source: CompiledMapping,
    writer: EventWriter,
    context: Context,
    *,
    frames: bool = False,
    in_text: InText | None = None,
) -> Run:
    """The run of one answer in this format; `in_text`: the provider's marks, instead of the format's own."""
    marks = in_text or source.in_text
    closes = source.stream_closes
    run = (
        Run(writer, context, closes=closes, frames=frames)
        if marks is None
        else MarkedRun(writer, context, marks, closes=closes, frames=frames)
    )
    run.sent_name = source.sent_name
    return run
