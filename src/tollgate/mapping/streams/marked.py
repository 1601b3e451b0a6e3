"""A streamed answer whose text holds marks (`in_text:`): a `Run` that takes its text apart before it tells it.

A run of its own, so that answers without marks pay nothing for it.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.compiler import Mapping
from tollgate.mapping.context import Context
from tollgate.mapping.in_text import InText
from tollgate.mapping.in_text_scan import Found
from tollgate.mapping.streams.handlers import Speaker
from tollgate.mapping.streams.part import NOTHING_SAID, Said, part_told
from tollgate.mapping.streams.run import Run
from tollgate.mapping.values import text_of


class MarkedRun(Run):
    """A `Run`; its texts are one text until something else comes, or another place of the upstream's begins."""

    __slots__ = ("_heard", "_place", "_scanner")

    def __init__(
        self, speaker: Speaker, context: Context, marks: InText, *, closes: bool, frames: bool = False
    ) -> None:
        super().__init__(speaker, context, closes=closes, frames=frames)
        self._scanner = marks.scanner(context)
        self._place: object = None
        """The upstream's own key of the text that is being told."""
        self._heard = False
        """There is text since the last one was over."""

    def open(self, kind: str, key: object = None, said: Said = NOTHING_SAID) -> None:
        """As `Run.open`; a text opens when there is some."""
        self._text_over()
        if kind == "text":
            self._place = key
            super().delta("text", None, None, said.unnamed())
        else:
            super().open(kind, key, said)

    def delta(self, kind: str, key: object = None, text: object = None, said: Said | None = None) -> None:
        """As `Run.delta`."""
        if kind != "text":
            if text or said:
                self._text_over()
            super().delta(kind, key, text, said)
            return
        if key != self._place:
            self._text_over()
            self._place = key
        if said is not None:
            super().delta("text", None, None, said.unnamed())
        if text and self.state == "open":
            self._heard = True
            self._told(self._scanner.feed(text if type(text) is str else text_of(text)))

    steady = delta

    def close(
        self, key: object = None, kind: str | None = None, text: object = None, said: Said = NOTHING_SAID
    ) -> None:
        """As `Run.close`."""
        of_text = kind == "text" or kind is None and self._heard and key == self._place
        if not of_text:
            super().close(key, kind, text, said)
            return
        if text and not self._heard:
            self.delta("text", key, text, said)
        self._text_over()

    def part(self, kind: str, key: object = None, text: object = None, said: Said = NOTHING_SAID) -> None:
        """As `Run.part`."""
        self._text_over()
        if kind == "text":
            self.delta("text", None, text, said)
            self._text_over()
        else:
            super().part(kind, key, text, said)

    def finish(self) -> None:
        """As `Run.finish`."""
        self._text_over()
        super().finish()

    def fail(self, error: object) -> None:
        """As `Run.fail`; what was held back is told, as it was received."""
        self._text_over()
        super().fail(error)

    def received(self) -> list[dict[str, Any]]:
        """As `Run.received`."""
        held = self._scanner.held
        return [*super().received(), {"kind": "text", "text": held}] if held else super().received()

    def _text_over(self) -> None:
        """The text is over: what was held back of it is told."""
        self._place = None
        if not self._heard or self.state != "open":
            return
        self._heard = False
        self._told(self._scanner.finish())
        super().close(None, "text")

    def _told(self, found: list[Found]) -> None:
        for kind, text, parts in found:
            if parts is not None:
                for part in parts:
                    super().part(*part_told(part))
            elif text is None:
                super().close(None, kind)
            else:
                super().delta(kind, None, text)


def run_of(
    source: Mapping, speaker: Speaker, context: Context, *, frames: bool = False, in_text: InText | None = None
) -> Run:
    """The state of one answer of a format; `in_text` are the marks of its provider, instead of the format's own."""
    marks = in_text or source.in_text
    closes = source.stream_closes
    run = (
        Run(speaker, context, closes=closes, frames=frames)
        if marks is None
        else MarkedRun(speaker, context, marks, closes=closes, frames=frames)
    )
    run.sent_name = source.sent_name
    return run
