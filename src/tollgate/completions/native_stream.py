"""A native stream passing through: bytes in, bytes out, with an eye on usage, the end and errors.

Most blocks pass untouched and unparsed; an event is parsed only when it can hold usage, a finish or an error. The
end of the answer is held back until the caller has recorded it (DESIGN invariant 1): `feed` gives what may leave now,
`tail` what may leave once the row is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from tollgate.errors import UpstreamError, UpstreamUnreachable
from tollgate.sse import Decoder, Event

Judge = Callable[[dict[str, Any]], UpstreamError | None]
Suspect = Callable[[bytes], bool]
"""Whether some bytes could hold an error at all (`ErrorRules.may_match`)."""

_KEEP_BYTES = 64 * 1024
"""How much of an answer is kept for counting its tokens when the upstream reports none; beyond it the ratio seen in
what was kept is applied to the rest."""


class Kept:
    """The first part of a stream, kept for a token estimate: references to blocks that were sent anyway."""

    __slots__ = ("blocks", "held", "total")

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.held = 0
        self.total = 0

    def add(self, block: bytes) -> None:
        """Note a block that was received."""
        size = len(block)
        self.total += size
        if self.held < _KEEP_BYTES:
            self.blocks.append(block)
            self.held += size

    def events(self) -> list[Any]:
        """The parsed events of the kept part."""
        decoder = Decoder()
        found = [event for block in self.blocks for event in decoder.feed(block)]
        parsed = []
        for event in found:
            if event.data and event.data != b"[DONE]":
                try:
                    parsed.append(orjson.loads(event.data))
                except orjson.JSONDecodeError:
                    continue
        return parsed

    @property
    def scale(self) -> float:
        """What a count over the kept part must be multiplied with."""
        return self.total / self.held if self.held else 1.0


class NativeStream(Protocol):
    """What the pump needs of a native stream."""

    kept: Kept
    usage: dict[str, Any] | None
    error: UpstreamError | None
    ended: bool

    def feed(self, block: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def tail(self, usage: dict[str, Any] | None) -> bytes: ...


class ChatStream:
    """A chat stream. The finishing chunk waits for usage, which is merged into it; `[DONE]` always follows.

    `usage` is the usage object as the upstream reported it (the last one seen, wherever it stood: FACTS 1 and 2).
    `error` is set when the upstream reported one, or ended without a finish.
    """

    def __init__(self, judge: Judge, suspect: Suspect) -> None:
        self.kept = Kept()
        self.usage: dict[str, Any] | None = None
        self.error: UpstreamError | None = None
        self.ended = False
        self._decoder = Decoder()
        self._judge = judge
        self._suspect = suspect
        self._finish: dict[str, Any] | None = None
        self._finish_raw = b""
        self._loose: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None

    def feed(self, block: bytes) -> bytes:
        """The bytes that may leave after this block of the upstream's."""
        self.kept.add(block)
        if _quiet(block) and not self._suspect(block) and not self._decoder.pending and block.endswith(b"\n\n") and block.isascii():
            return block
        return self._take(self._decoder.feed(block))

    def close(self) -> bytes:
        """The upstream has ended: what may still leave. Afterwards `error` says whether the answer is whole."""
        out = self._take(self._decoder.finish())
        if self._finish is None and not self.ended and self.error is None:
            self.error = UpstreamUnreachable("the upstream ended before the answer was finished")
        return out

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The finishing chunk with `usage`, and `[DONE]`."""
        finish = self._finish
        if finish is None:
            if usage is None:
                return b"data: [DONE]\n\n"
            frame = self._loose or self._last or {}
            last = {"id": frame.get("id", ""), "object": "chat.completion.chunk", "created": frame.get("created", 0),
                    "model": frame.get("model", ""), "choices": [], "usage": usage}
            return b"data: " + orjson.dumps(last) + b"\n\ndata: [DONE]\n\n"
        if usage is None or finish.get("usage") == usage:
            return self._finish_raw + b"data: [DONE]\n\n"
        return b"data: " + orjson.dumps({**finish, "usage": usage}) + b"\n\ndata: [DONE]\n\n"

    def _take(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            data = event.data
            if not data:
                out.append(event.raw)
            elif data == b"[DONE]":
                self.ended = True
            elif self.error is None:
                self._event(event, data, out)
        return b"".join(out)

    def _event(self, event: Event, data: bytes, out: list[bytes]) -> None:
        raw = event.raw
        if not data.isascii():
            raw = _valid_utf8(raw)
        if event.name is None and _quiet(data) and not self._suspect(data):
            out.append(raw)
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk = None
        if not isinstance(chunk, dict):
            out.append(raw)
            return
        self.error = self._judge(chunk)
        if self.error is not None:
            return
        self._last = chunk
        usage = chunk.get("usage")
        if usage:
            self.usage = usage
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            out.append(raw)
        elif any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices):
            if self._finish is not None:
                out.append(self._finish_raw)
            self._finish, self._finish_raw = chunk, raw
        elif usage and _says_nothing(choices):
            self._loose = chunk
        else:
            out.append(raw)


class PlainStream:
    """A native stream of any other protocol: every byte passes; the block that ends the answer waits.

    `watch` is called with each parsed event that may matter and says True when it ends the answer.
    """

    def __init__(self, judge: Judge, suspect: Suspect, watch: Callable[[str | None, dict[str, Any]], bool]) -> None:
        self.kept = Kept()
        self.usage: dict[str, Any] | None = None
        self.error: UpstreamError | None = None
        self.ended = False
        self._decoder = Decoder()
        self._judge = judge
        self._suspect = suspect
        self._watch = watch
        self._held: list[bytes] = []

    def feed(self, block: bytes) -> bytes:
        """The bytes that may leave after this block of the upstream's."""
        self.kept.add(block)
        if not self.ended and not self._decoder.pending and _quiet(block) and not self._suspect(block) and block.endswith(b"\n\n"):
            return block
        return self._take(self._decoder.feed(block))

    def close(self) -> bytes:
        """The upstream has ended: what may still leave. Afterwards `error` says whether the answer is whole."""
        out = self._take(self._decoder.finish())
        if not self.ended and self.error is None:
            self.error = UpstreamUnreachable("the upstream ended before the answer was finished")
        return out

    def tail(self, usage: dict[str, Any] | None) -> bytes:
        """The bytes held back."""
        return b"".join(self._held)

    def _take(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self.error is not None:
                break
            data = event.data
            if self.ended:
                self._held.append(event.raw)
            elif not data or (_quiet(data) and not self._suspect(data)):
                out.append(event.raw)
            else:
                self._event(event, data, out)
        return b"".join(out)

    def _event(self, event: Event, data: bytes, out: list[bytes]) -> None:
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError:
            parsed = None
        if isinstance(parsed, dict):
            self.error = self._judge(parsed)
            if self.error is not None:
                return
            if self._watch(event.name, parsed):
                self.ended = True
                self._held.append(event.raw)
                return
        out.append(event.raw)


def _quiet(data: bytes) -> bool:
    """True when no event in `data` can hold usage, a finish or an end; a few substring searches."""
    if b"[DONE]" in data or b"response." in data and b'"status"' in data or b"message_" in data:
        return False
    usages = data.count(b'usage"')
    if usages and usages != data.count(b'"usage":null'):
        return False
    finishes = data.count(b'finish_reason"')
    return not finishes or finishes == data.count(b'"finish_reason":null')


def _says_nothing(choices: list[Any]) -> bool:
    for choice in choices:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(value for key, value in delta.items() if key != "role"):
            return False
    return True


def _valid_utf8(raw: bytes) -> bytes:
    """A provider's broken bytes must not break the client's decoder; valid ones pass as they are."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw
