"""Server-sent event framing: bytes to events and back, without interpreting the events.

Invariants: the concatenated `raw` bytes of all events are the input, and the events do not depend on how the network
split it. Blocks without data (comments, stray blank lines) are events too, with empty `data`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tollgate.errors import UpstreamFailed

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Size limit of one event. An inline image of a responses stream has a few MiB; no valid event is larger than this."""

BLANK = (b"\n\n", b"\r\r", b"\n\r\n")
"""The possible ends of a complete event, depending on the upstream's line breaks."""

BOM = b"\xef\xbb\xbf"
"""A byte order mark, which may precede the first event and belongs to none."""
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BREAK = re.compile(rb"\r\n|\n|\r")
_BREAKS_ELSEWHERE = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Line separator, paragraph separator and next line: in UTF-8, and as escapes in a JSON string."""
_KNOWN_NAMES = 256
_MOST_LINES = 100_000
"""Most lines of one event; parsing them blocks the event loop for a tenth of a second."""
_MOST_STRAYS = 10_000
_STRAYS_PER_EVENT = 8
"""Most stray blank lines and comments of a stream: so many, and some more for each event. Each is an event of one to
three bytes, and a few MB of them, or some kB compressed, would block the event loop for many seconds. Heartbeats are
one a second."""


class Event(NamedTuple):
    """One block of a stream: its `event:` name if any, its joined data lines, and its raw bytes with the blank line."""

    name: str | None
    data: bytes
    raw: bytes

    @property
    def error(self) -> bool:
        """Always false: SSE framing has no error flag, unlike other framings (`upstream/framing.py`)."""
        return False


def is_end_mark(data: bytes) -> bool:
    """Whether an event's data is `[DONE]`, around which some upstreams write more spaces."""
    return data.strip() == b"[DONE]"


_new = tuple.__new__


class Decoder:
    """Incremental decoder; one per stream.

    `feed(b'data: {}\\n\\n')` returns `[Event(None, b'{}', b'data: {}\\n\\n')]`. Raises `UpstreamFailed` if an event
    exceeds `max_event_bytes`, or if nearly everything is blank lines and comments.
    """

    __slots__ = ("_carriage", "_heads", "_held", "_limit", "_marked", "_names", "_scanned", "_started", "_strays")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._held = bytearray()
        self._scanned = 0
        self._limit = max_event_bytes
        self._carriage = False
        self._started = False
        self._marked = False
        self._strays = 0
        """Stray blank lines and comments beyond those that the events so far allow."""
        self._names: dict[bytes, str] = {}
        self._heads: dict[bytes, str | None] = {}
        """Event names by their whole line."""

    def feed(self, data: bytes) -> list[Event]:
        """Add the next bytes, split anywhere. Returns the events that are now complete."""
        if not data:
            return []
        if not self._carriage and b"\r" in data:
            self._carriage = True
        held = self._held
        if not self._started:
            # A byte order mark occurs only at the very start, and may itself be split.
            held += data
            if len(held) < 3 and BOM.startswith(held):
                return []
            self._started = True
            self._marked = held.startswith(BOM)
            data = bytes(held)
            held.clear()
        if self._carriage:
            held += data
            return self._feed_any_break()
        if not held and data.endswith(b"\n\n"):
            return self._split(data)
        held += data
        cut = held.rfind(b"\n\n", self._scanned)
        if cut < 0:
            self._hold(1)
            return []
        whole = bytes(held[: cut + 2])
        del held[: cut + 2]
        self._hold(1)
        return self._split(whole)

    def feed_pairs(self, data: bytes) -> list[tuple[str | None, bytes]]:
        """As `feed`, but returns only (name, data) of each event. Four times as fast for the usual forms of a stream:
        `data:` lines only, or each preceded by its `event:` line. The number of lines shows that it has nothing else.
        """
        if not self._started and not self._held and data and data[:1] != BOM[:1]:
            self._started = True
        if self._started and not self._held and not self._carriage and data.endswith(b"\n\n") and b"\r" not in data:
            pairs = self._uniform_pairs(data.split(b"\n"))
            if pairs is not None:
                if self._strays:
                    self._count(0, len(pairs))
                return pairs
        return [(event.name, event.data) for event in self.feed(data)]

    def _uniform_pairs(self, lines: list[bytes]) -> list[tuple[str | None, bytes]] | None:
        """The pairs of complete events that all have the same usual form (see `feed_pairs`); None if one differs."""
        lines.pop()  # what follows the last line feed
        named = lines[0].startswith(b"event: ")
        width = 3 if named else 2
        count = len(lines) // width
        if count * width != len(lines) or any(lines[width - 1 :: width]):
            return None
        if not named:
            pairs: list[tuple[str | None, bytes]] = [
                (None, line[6:]) for line in lines[::2] if line.startswith(b"data: ")
            ]
            return pairs if len(pairs) == count else None
        heads = lines[::3]
        known = self._heads
        try:
            pairs = [
                (known[head], line[6:])
                for head, line in zip(heads, lines[1::3], strict=True)
                if line.startswith(b"data: ")
            ]
        except KeyError:
            if len(known) > _KNOWN_NAMES:
                known.clear()
            for head in set(heads):
                if not head.startswith(b"event: ") or len(head) == 7:
                    return None
                known[head] = self._name(head[7:])
            return self._uniform_pairs([*lines, b""])
        return pairs if len(pairs) == count else None

    @property
    def pending(self) -> bool:
        """Whether an incomplete event is buffered."""
        return bool(self._held)

    def finish(self) -> list[Event]:
        """The stream has ended: return the rest as events, even without a final blank line."""
        rest = bytes(self._held)
        self._held.clear()
        self._scanned = 0
        if not rest:
            return []
        events, used = self._walk(rest, final=True)
        if used < len(rest):
            events.append(self._block(rest[used:]))
        return events

    def _split(self, data: bytes) -> list[Event]:
        """The fast path: `data` ends with a blank line and all line breaks are line feeds."""
        pieces = data.split(b"\n\n")
        last = pieces.pop()
        events: list[Event] = []
        append = events.append
        names = self._names
        walked = strays = 0
        for piece in pieces:
            if piece.startswith(b"data: ") and b"\n" not in piece:
                append(_new(Event, (None, piece[6:], piece + b"\n\n")))
            elif piece.startswith(b"event: ") and piece.count(b"\n") == 1 and (at := piece.find(b"\ndata: ")) > 0:
                named = piece[7:at]
                append(_new(Event, (names.get(named) or self._name(named), piece[at + 7 :], piece + b"\n\n")))
            elif piece and not piece.startswith(b"\n"):
                event = self._block(piece + b"\n\n")
                append(event)
                strays += not event.data
            else:
                events += self._walk(piece + b"\n\n", final=True)[0]
                walked += 1
        if self._strays or strays:
            self._count(strays, len(pieces) - walked - strays)
        if last:
            events += self._walk(last, final=True)[0]
        return events

    def _feed_any_break(self) -> list[Event]:
        held = self._held
        if _END.search(held, self._scanned) is None and not held.startswith((b"\r", b"\n")):
            self._hold(3)
            return []
        events, used = self._walk(bytes(held), final=False)
        del held[:used]
        self._hold(3)
        return events

    def _walk(self, data: bytes, *, final: bool) -> tuple[list[Event], int]:
        """The complete blocks of `data`, with any kind of line break, and their total size."""
        events: list[Event] = []
        at, size, strays = 0, len(data), 0
        while at < size:
            stray = _BREAK.match(data, at)
            found = stray or _END.search(data, at)
            if found is None:
                break
            end = found.end()
            if end == size and not final and data[end - 1] == 0x0D:
                break  # the next byte may be the line feed of a CRLF
            event = self._block(data[at:end]) if stray is None else _new(Event, (None, b"", data[at:end]))
            events.append(event)
            strays += not event.data
            at = end
        self._count(strays, len(events) - strays)
        return events, at

    def _count(self, strays: int, others: int) -> None:
        """Count stray blank lines and comments, and other events. Raises `UpstreamFailed`."""
        self._strays = max(0, self._strays + strays - _STRAYS_PER_EVENT * others)
        if self._strays > _MOST_STRAYS:
            raise UpstreamFailed("a stream consists of blank lines and comments")

    def _block(self, raw: bytes) -> Event:
        if len(raw) > _MOST_LINES and raw.count(b"\n") + raw.count(b"\r") > _MOST_LINES:
            raise UpstreamFailed(f"a stream event has more than {_MOST_LINES} lines")
        name: str | None = None
        values: list[bytes] = []
        text = raw
        if self._marked:
            text = raw[3:]
            self._marked = False
        for line in text.splitlines():
            field, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                values.append(value)
            elif field == b"event":
                name = self._name(value)
        return Event(name, values[0] if len(values) == 1 else b"\n".join(values), raw)

    def _name(self, value: bytes) -> str | None:
        known = self._names.get(value)
        if known is None:
            known = value.decode("utf-8", "replace")
            if len(self._names) < _KNOWN_NAMES:
                self._names[value] = known
        return known or None

    def _hold(self, back: int) -> None:
        """The buffered bytes are an incomplete event. The next search begins `back` bytes before their end, where a
        blank line may have begun."""
        self._scanned = max(0, len(self._held) - back)
        if len(self._held) > self._limit:
            raise UpstreamFailed(f"a stream event exceeds {self._limit} bytes")


def encode(data: bytes, name: str | None = None) -> bytes:
    """One event as bytes: `encode(b'{}', 'ping')` is `event: ping`, `data: {}` and a blank line."""
    if b"\n" in data or b"\r" in data:
        # `splitlines` would lose a last empty line
        data = _BREAK.sub(b"\ndata: ", data)
    if name is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def escape_line_breaks(events: bytes) -> bytes:
    """Events with JSON data, with U+2028, U+2029 and U+0085 replaced by equivalent JSON escapes.

    They end no line of an event stream, but the line readers of many clients split there (`iter_lines` of httpx,
    `lines` of Swift's URLSession, Python's `splitlines`), and would parse half an event.
    """
    if events.isascii():
        return events
    for raw, escape in _BREAKS_ELSEWHERE:
        if events.rfind(raw) >= 0:  # three times as fast as `in`, in CPython
            events = events.replace(raw, escape)
    return events
