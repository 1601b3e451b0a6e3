"""The parts of one streamed answer: which is open, which wait, and the order in which they are sent.

One part is open at a time. A new part closes it if it is certainly complete: the upstream said so, or nothing more of
its kind can come, or its arguments are whole JSON. Otherwise the new part is held back, with all its text, until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault
from tollgate.mapping.join_parts import goes_on
from tollgate.mapping.streams.addressing import Addressing
from tollgate.mapping.streams.handlers import EventWriter
from tollgate.mapping.streams.part import NO_MORE, Details, Part, hashable, merged, unfit
from tollgate.mapping.tool_names import ToolNames
from tollgate.mapping.values import text_of

MOST_PARTS = 2_000
"""In one answer. An event of a mapping may read all parts before it, so many more would block the event loop for
minutes."""


class Parts:
    """The part of `Run` that is about parts: opens, grows and closes them, each with the events of the client's
    protocol."""

    __slots__ = (
        "_addressing",
        "_ahead",
        "_closes",
        "_current",
        "_cut_off",
        "_done",
        "_held",
        "_names",
        "_tools",
        "_writer",
        "begun",
        "context",
        "count",
        "error",
        "frames",
        "id",
        "nth",
        "seen",
        "sent_name",
        "stop",
    )

    def __init__(self, writer: EventWriter, context: Context, *, closes: bool, frames: bool = False) -> None:
        self._writer = writer
        self.frames = frames
        """Delta events may be JSON bytes instead of objects."""
        self._closes = closes
        """The upstream says where its parts end."""
        self.context = context
        self.id = context.answer_id()
        self.stop: str | None = None
        self.error: dict[str, Any] | None = None
        """What went wrong, once it did."""
        self.begun = False
        """The start of the answer was sent to the client."""
        self.seen: dict[str, int] = {}
        self.nth: dict[str, int] = {}
        self.count = 0
        self._current: Part | None = None
        self._held: list[Part] = []
        self._ahead: dict[str, dict[str, Any]] = {}
        """Further fields that came before their part began, by its kind."""
        self._done: list[dict[str, Any]] = []
        self._names: list[str | None] = []
        self._cut_off = 0
        """How many of the last parts in `_done` were cut off by an error."""
        self._addressing = Addressing(closes=closes)
        self.sent_name: Callable[..., Any] | None = None
        """The name under which a tool was sent, where that may be another than its own (`request.tool_name`)."""
        self._tools: ToolNames | None = None

    @property
    def open_part(self) -> Part | None:
        """The open part, if no other is held back and the upstream has not ended it."""
        current = self._current
        return None if current is None or self._held or current.ended else current

    def _new(self, kind: str, key: object, details: Details) -> Part:
        """A part that begins, with what its first event says about it."""
        part = Part(kind, hashable(key))
        if kind in self._ahead:
            part.more = self._ahead.pop(kind)
            part.fresh = merged(part.more, [])
        self.seen[kind] = self.seen.get(kind, 0) + 1
        part.describe(details)
        self._addressing.add(part)
        return part

    def _find(self, kind: str, key: object, details: Details) -> Part | None:
        """The part that a delta continues; None when it begins a new one."""
        if kind == "tool_call":
            return self._addressing.call(key, details)
        if key is not None:
            part = self._addressing.at(key)
        else:
            part = self._held[-1] if self._held else self._current
        return part if part is not None and part.kind == kind and not (part.closed or part.ended) else None

    @property
    def _tool_names(self) -> ToolNames:
        """The names of the request's tools. A call whose name begins another one's may have only a piece of it yet."""
        if self._tools is None:
            self._tools = ToolNames(self.context, self.sent_name)
        return self._tools

    def _admit(self, part: Part) -> None:
        """A new part: it becomes the open one, or waits for its turn. Raises `Fault` for one too many."""
        current = self._current
        if len(self._done) + len(self._held) + (current is not None) >= MOST_PARTS:
            raise Fault(f"the answer has more than {MOST_PARTS} parts")
        if self._held or (current is not None and not self._over(current)):
            self._held.append(part)
            return
        if current is not None:
            self._close(current, part)
        self._make_current(part)
        self._advance()

    def _over(self, part: Part) -> bool:
        """Whether the open part can be closed because another one begins."""
        if part.ended:
            return True
        if self._closes and part.key is not None:
            return False
        return part.kind != "tool_call" or part.complete()

    def _stays_open(self, part: Part) -> bool:
        """Whether an ended part stays open until something follows: more of it, for the client; or it may be the last
        one, and then its closing events depend on why the answer stopped."""
        handlers = self._writer.kinds.get(part.kind)
        if handlers is None or self._held:
            return False
        return handlers.joined or handlers.close_depends_on_stop and self.stop is None

    def _make_current(self, part: Part) -> None:
        self._current = part
        self._send_pending(part)
        if part.ended and not self._stays_open(part) or (self._held and not self._closes and self._over(part)):
            self._close(part, self._next_held)

    @property
    def _next_held(self) -> Part | None:
        return self._held[0] if self._held else None

    def _advance(self) -> None:
        while self._held and self._current is None:
            self._make_current(self._held.pop(0))

    def _send_pending(self, part: Part) -> None:
        """Send what can be sent: the opening, once there is something to send, then the waiting text."""
        if not part.opened:
            if part.kind == "tool_call":
                if not part.name or not (part.waiting or part.ended) and self._tool_names.begins(part.name):
                    return
            elif part.is_empty():
                return
            self._open(part)
        if part.waiting:
            self._grow(part)

    def _open(self, part: Part) -> None:
        handlers = self._writer.kinds.get(part.kind)
        part.opened = True
        if part.kind == "tool_call" and self.sent_name is not None and part.name:
            part.told_name = part.name
            part.name = self._tool_names.own(part.name)
        if handlers is None:
            part.mute = True
            self.context.lose(f"{part.kind} of the answer")
            return
        if handlers.lost is not None and (words := handlers.lost(self, part, self.context)):
            part.mute = True
            self.context.lose(text_of(words))
            return
        self._begin()
        if handlers.joined and self._done and self._done[-1]["kind"] == part.kind:
            part.more = {**part.more, "apart": True}  # so that the answer as a whole has them apart, too
        part.emit_text = handlers.framed if self.frames and handlers.framed is not None else handlers.delta
        part.index = self.count
        self.count += 1
        part.nth = self.nth.get(part.kind, 0)
        self.nth[part.kind] = part.nth + 1
        if part.kind == "tool_call" and not part.id:
            part.id = f"call_{self.id}_{part.nth}"
        if handlers.name is not None:
            part.item = handlers.name(self, part, self.context)
        if handlers.open is not None:
            handlers.open(self, part, self.context)

    def _grow(self, part: Part) -> None:
        """Send the text that waits."""
        text = "".join(part.waiting)
        part.waiting.clear()
        if part.emit_text is not None:
            part.emit_text(self, part, text, self.context)
        part.told = True
        part.fresh = NO_MORE

    def _close(self, part: Part, following: Part | None = None) -> None:
        """Close a part. What the client gets of it goes on in the `following` one, if the client's protocol has both as
        one part."""
        part.closed = part.ended = True
        if part is self._current:
            self._current = None
        if part.kind == "tool_call":
            if not part.name:
                self.context.lose("a tool call without a name")
                return
            if not part.more.get("custom"):
                self._check_arguments(part)
        elif not part.opened and part.is_empty() and part.token is None:
            return
        if not part.opened:
            self._open(part)
        if part.waiting:
            self._grow(part)
        own = part.hub()
        if not part.mute:
            handlers = self._writer.kinds[part.kind]
            if handlers.joined and following is not None and goes_on(own, following.hub(), part.kind):
                following.continues(part, own)
            elif handlers.close is not None:
                part.join()
                handlers.close(self, part, self.context)
        if part.before and own.keys() == {"kind"}:
            return
        self._done.append(own)
        self._names.append(part.item)
        if self.error is not None:
            self._cut_off += 1

    def _check_arguments(self, call: Part) -> None:
        """Give a call without arguments an empty object, and report arguments that are no JSON object as a loss."""
        text = call.text
        if not text or text.isspace():
            call.grow("{}")
        elif words := unfit(text):
            self.context.lose(words)

    def _close_ended(self) -> None:
        """Before an error is sent: close the current part if the upstream had ended it, since it is complete."""
        if self._current is not None and self._current.ended:
            self._close(self._current)

    def _close_all(self) -> None:
        for part in self._held:
            part.ended = True
        self._advance()
        while self._current is not None:
            self._close(self._current, self._next_held)
            self._advance()

    def _begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        if self._writer.start is not None:
            self._writer.start(self, self.context)
