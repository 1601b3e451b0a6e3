"""Decoders for the framings of upstream streams, which may be nested, to frames. Mappings interpret the frames.

Invariants: frames do not depend on how the network split the bytes, and the buffer for an incomplete frame is bounded.
Broken framing raises `UpstreamFailed`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tollgate import sse
from tollgate.config.model import Framing
from tollgate.errors import AnswerLost, UpstreamFailed
from tollgate.upstream.eventstream import EventStreamDecoder

MAX_FRAME_BYTES = sse.MAX_EVENT_BYTES


class Frame(NamedTuple):
    """One event of a stream. `error` is set if the framing itself marks it as a failure; then `name` is the type of the
    exception."""

    name: str | None
    data: bytes
    error: bool = False


class FrameDecoder(Protocol):
    """`feed` returns the frames that are now complete, `finish` the rest at the end of the body.

    Both raise `UpstreamFailed` for broken framing. The frames of `sse` are `sse.Event`s; comments have no data.
    """

    def feed(self, data: bytes) -> Sequence[Frame | sse.Event]: ...
    def finish(self) -> Sequence[Frame | sse.Event]: ...


def decoder(
    framing: Framing,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    *,
    inner: Framing | None = None,
    piece_of: Callable[[bytes], bytes] | None = None,
) -> FrameDecoder:
    """A decoder for one stream: `decoder('ndjson').feed(b'{}\\n')` returns `[Frame(None, b'{}')]`.

    With `inner`, the concatenated pieces in the frames are a stream in that framing. `piece_of` extracts the piece from
    a frame's data; without it, the data is the piece.
    """
    if inner is not None:
        return NestedFrames(decoder(framing, max_frame_bytes), decoder(inner, max_frame_bytes), piece_of)
    if framing in ("sse", "sse-text"):
        return sse.Decoder(max_frame_bytes)
    if framing in ("ndjson", "lines"):
        return LineDecoder(max_frame_bytes, blanks=b"\r" if framing == "lines" else None)
    if framing == "text":
        return TextDecoder()
    if framing == "json-array":
        return ArrayDecoder(max_frame_bytes)
    if framing == "aws-eventstream":
        return EventStreamFrames(max_frame_bytes)
    if framing in ("length-prefixed", "enveloped"):
        return PrefixedDecoder(max_frame_bytes, flagged=framing == "enveloped")
    raise ValueError(f"no such framing: {framing!r}")


class NestedFrames:
    """A stream in the frames of another stream, split without regard to its own events."""

    def __init__(self, outer: FrameDecoder, inner: FrameDecoder, piece_of: Callable[[bytes], bytes] | None) -> None:
        self._outer = outer
        self._inner = inner
        self._piece_of = piece_of

    def feed(self, data: bytes) -> list[Frame | sse.Event]:
        return self._opened(self._outer.feed(data))

    def finish(self) -> list[Frame | sse.Event]:
        return [*self._opened(self._outer.finish()), *self._inner.finish()]

    def _opened(self, outer: Sequence[Frame | sse.Event]) -> list[Frame | sse.Event]:
        frames: list[Frame | sse.Event] = []
        for frame in outer:
            if frame.error:
                frames.append(frame)
            elif frame.data:  # the comments of an event stream have none
                frames += self._inner.feed(frame.data if self._piece_of is None else self._piece_of(frame.data))
        return frames


class TextDecoder:
    """A stream of plain text without separators. Each frame has the text that has arrived, in whole characters."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> list[Frame]:
        text = self._decode(data)
        return [Frame(None, text.encode())] if text else []

    def finish(self) -> list[Frame]:
        text = self._decode(b"", final=True)
        return [Frame(None, text.encode())] if text else []


class LineDecoder:
    """One event per line: a JSON document, or plain text. `blanks` are stripped from both ends of a line; None
    strips all white space."""

    def __init__(self, max_frame_bytes: int, *, blanks: bytes | None = None) -> None:
        self._blanks = blanks
        self._held = bytearray()
        self._limit = max_frame_bytes

    def feed(self, data: bytes) -> list[Frame]:
        held = self._held
        if b"\n" not in data:
            held += data
            self._check()
            return []
        *lines, rest = (bytes(held) + data).split(b"\n")
        held[:] = rest
        self._check()
        return [Frame(None, line) for each in lines if (line := each.strip(self._blanks))]

    def finish(self) -> list[Frame]:
        rest = bytes(self._held).strip(self._blanks)
        self._held.clear()
        return [Frame(None, rest)] if rest else []

    def _check(self) -> None:
        if len(self._held) > self._limit:
            raise UpstreamFailed(f"a stream event exceeds {self._limit} bytes")


_STRUCTURE = re.compile(rb'[\[\]{},"]')
_STRING = re.compile(rb'["\\]')
_BETWEEN = b" \t\r\n,"


class ArrayDecoder:
    """One JSON array whose elements are the events; each is returned as soon as it is complete.

    A document that is not an array (such as an error object in place of a stream) is one frame. Documents may follow
    each other, with other text before each: a record separator (RFC 7464), a length, header lines, a boundary.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._held = bytearray()
        self._limit = max_frame_bytes
        self._at = 0
        self._from = 0
        self._depth = 0
        self._base = -1  # depth at which elements stand; -1 until the first bracket is seen
        self._quoted = False

    def feed(self, data: bytes) -> list[Frame]:
        held = self._held
        held += data
        frames: list[Frame] = []
        while True:
            found = (_STRING if self._quoted else _STRUCTURE).search(held, self._at)
            if found is None:
                self._at = len(held)
                break
            at, byte = found.start(), found.group()
            if self._quoted:
                if byte == b"\\":
                    if at + 1 == len(held):
                        self._at = at  # the escaped byte has not arrived
                        break
                    self._at = at + 2
                    continue
                self._quoted = False
            elif byte == b'"':
                self._quoted = True
            else:
                self._at = at + 1
                self._turn(byte, frames)
                continue
            self._at = at + 1
        if len(held) > self._limit:
            raise UpstreamFailed(f"a stream event exceeds {self._limit} bytes")
        return frames

    def _turn(self, byte: bytes, frames: list[Frame]) -> None:
        """A bracket or comma outside strings, just before `_at`."""
        if byte in (b"[", b"{"):
            if self._base < 0:
                self._base = 1 if byte == b"[" else 0
                self._from = self._at if byte == b"[" else 0
            if self._depth == 0 == self._base:
                self._from = self._at - 1
            self._depth += 1
        elif byte in (b"]", b"}"):
            self._depth -= 1
            if self._depth < 0:
                raise UpstreamFailed("a JSON stream closes more brackets than it opened")
            if self._depth == self._base:
                self._emit(frames, self._at)
            elif self._depth < self._base:
                self._emit(frames, self._at - 1)  # a last element that is not an object or list
                self._base = 0
        elif self._depth == self._base:
            self._emit(frames, self._at - 1, is_text=self._base == 0)

    def _emit(self, frames: list[Frame], end: int, *, is_text: bool = False) -> None:
        """Add a frame with the bytes up to `end`. `is_text`: they may be the text between two documents."""
        held = self._held
        data = bytes(held[self._from : end]).strip(_BETWEEN)
        if data and not (is_text and not _is_json(data)):
            frames.append(Frame(None, data))
        # also if there are only commas: otherwise each is scanned again, and 400 kB of them take many minutes
        del held[:end]
        self._at -= end
        self._from = 0

    def finish(self) -> list[Frame]:
        rest = bytes(self._held[self._from :]).strip(_BETWEEN + (b"]" if self._depth == 0 else b""))
        self._held.clear()
        if self._base == 0 == self._depth and not _is_json(rest):
            return []  # text after the last document, such as a closing boundary
        return [Frame(None, rest)] if rest else []


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


class PrefixedDecoder:
    """Messages that each follow their length in four bytes, big-endian.

    `flagged`: a byte of flags precedes the length, as in the envelopes of the Connect protocol
    (https://connectrpc.com/docs/protocol). The event with the flag for the end of the stream is named `end`; it holds
    the error if there is one. Compressed messages are not supported, and never sent unless requested.
    """

    def __init__(self, max_frame_bytes: int, *, flagged: bool) -> None:
        self._held = bytearray()
        self._limit = max_frame_bytes
        self._flagged = flagged

    def feed(self, data: bytes) -> list[Frame]:
        held = self._held
        held += data
        frames: list[Frame] = []
        at, before = 0, 1 if self._flagged else 0
        while len(held) - at >= before + 4:
            flags = held[at] if before else 0
            start = at + before + 4
            size = int.from_bytes(held[start - 4 : start])
            if flags & 1:
                raise UpstreamFailed("a message of the stream is compressed")
            if size > self._limit:
                raise UpstreamFailed(f"a message of the stream claims {size} bytes, wanted {self._limit} at most")
            if len(held) < start + size:
                break
            if size:
                frames.append(Frame("end" if flags & 2 else None, bytes(held[start : start + size])))
            at = start + size
        del held[:at]
        return frames

    def finish(self) -> list[Frame]:
        if self._held:
            raise AnswerLost("the stream ended inside a message")
        return []


class EventStreamFrames:
    """AWS event streams: binary messages with named headers. Exceptions are messages in an answer with status 200."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._decoder = EventStreamDecoder(max_frame_bytes)

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        for headers, payload in self._decoder.feed(data):
            kind = headers.get(":message-type", "event")
            if kind == "exception":
                frames.append(Frame(str(headers.get(":exception-type", "exception")), payload, True))
            elif kind == "error":  # the message is in a header if the payload is empty
                payload = payload or json.dumps({"message": str(headers.get(":error-message", ""))}).encode()
                frames.append(Frame(str(headers.get(":error-code", "error")), payload, True))
            else:
                name = headers.get(":event-type")
                frames.append(Frame(None if name is None else str(name), payload))
        return frames

    def finish(self) -> list[Frame]:
        self._decoder.finish()
        return []
