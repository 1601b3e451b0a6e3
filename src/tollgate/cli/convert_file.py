"""Reads the FILE of `tollgate convert`: one JSON document, or the events of a stream."""

from __future__ import annotations

from typing import Any

import orjson

from tollgate import sse
from tollgate.cli.books import fail
from tollgate.config.model import TEXT_FRAMINGS, Framing
from tollgate.mapping import as_written


def read_file(raw: bytes, name: str, what: str, framing: Framing | None, dataless: frozenset[str]) -> Any:
    """The content of the file `name`: the events of a stream, or one JSON object (for an answer also a list). Ends the
    command when it is something else. `framing`: that of the stream, where it is known; `dataless`: the names of events
    that may have no data."""
    try:
        if what == "stream":
            return _events(raw, framing, dataless) or fail(
                f"{name}: found no events, wanted an event stream, a JSON array or JSON lines"
            )
        given = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        fail(f"{name}: found no JSON: {error}")
    if not isinstance(given, (dict, list) if what == "response" else dict):
        wanted = {"request": "a request", "response": "an answer", "error": "an error"}[what]
        fail(f"{name}: found JSON that is no object, wanted the body of {wanted}")
    return given


def _events(raw: bytes, framing: Framing | None, dataless: frozenset[str]) -> list[Any]:
    """An event stream, a JSON array, JSON lines or plain text -> events, each with its name where the stream gives
    one."""
    if framing in ("lines", "text"):
        text = raw.decode("utf-8", "replace")
        return [line for line in text.splitlines() if line] if framing == "lines" else [text]
    texts = framing in TEXT_FRAMINGS
    stripped = raw.strip()
    if stripped.startswith(b"[") and not texts:
        return orjson.loads(stripped)  # type: ignore[no-any-return]
    if stripped.startswith(b"{") and not texts:
        return [orjson.loads(line) for line in stripped.splitlines() if line.strip()]
    decoder = sse.Decoder()
    found = [*decoder.feed(raw), *decoder.finish()]
    return [_event(event.name, event.data, texts=texts) for event in found if event.data or event.name in dataless]


def _event(name: str | None, data: bytes, *, texts: bool) -> Any:
    if data == b"[DONE]":
        return "[DONE]"
    event = data.decode("utf-8", "replace") if texts else orjson.loads(data or b"{}")
    return as_written(event, name)
