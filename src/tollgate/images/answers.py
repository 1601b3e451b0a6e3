"""Reads the body of an answer about a job into the value that a step's `result` reads as `$`.

Also bodies that are not JSON: pictures, archives of files, streams of events, empty bodies. The provider's file decides
what the value means.
"""

from __future__ import annotations

import asyncio
import base64
import io
import zipfile
import zlib
from typing import Any

import orjson

from tollgate.config.model import StepFraming
from tollgate.media_types import type_by_bytes
from tollgate.upstream.framing import decoder

MOST_BYTES = 96 * 1024 * 1024
"""Ten inline pictures of 4K size; a larger answer is refused rather than held in memory."""
_MOST_FILES = 100
_ARCHIVE = b"PK\x03\x04"
_UNKNOWN = "application/octet-stream"
_LARGE = 1024 * 1024
"""Larger bodies are read beside the event loop: 20 MB take 40 to 60 ms."""


async def read_body(raw: bytes, kind: str, framing: StepFraming | None = None) -> Any:
    """The value of a body whose content type is `kind`: `(b'{"a":1}', "application/json")` -> `{"a": 1}`.

    With a `framing` the list of its events; a picture is `{data, content_type}`, an archive
    `{files: [{name, data, content_type}]}`, an empty body `{}`, anything else that is not JSON text. Raises ValueError
    where an archive cannot be unpacked, and what the framing raises where it is broken.
    """
    if len(raw) > _LARGE or raw.startswith(_ARCHIVE):  # a small archive may hold much
        return await asyncio.to_thread(_read, raw, kind, framing)
    return _read(raw, kind, framing)


def is_text(raw: bytes, kind: str) -> bool:
    """Whether a body may be JSON, so that its values can be counted."""
    return not kind.lower().startswith("image/") and not raw.startswith(_ARCHIVE) and type_by_bytes(raw[:16]) is None


def _read(raw: bytes, kind: str, framing: StepFraming | None) -> Any:
    mime = kind.partition(";")[0].strip().lower()
    if not raw.strip():
        return [] if framing is not None else {}
    if mime.startswith("image/"):
        return _file(raw, mime)
    if raw.startswith(_ARCHIVE):
        return _unpacked(raw)
    if framing == "ndjson" or (framing is not None and mime != "application/json"):
        return _events(raw, framing)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = type_by_bytes(raw[:16]) if not mime.startswith("text/") else None
        if found is not None and found.startswith("image/"):
            return _file(raw, found)
        return raw[:4096].decode("utf-8", "replace")


def _file(raw: bytes, mime: str) -> dict[str, str]:
    return {"data": base64.b64encode(raw).decode(), "content_type": mime}


def _unpacked(raw: bytes) -> dict[str, Any]:
    """The files of a zip archive, in its order. ValueError when it is damaged, encrypted or too large, by the sizes in
    its directory; no file is read beyond its size there."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise ValueError(f"the answer's archive holds more than {_MOST_FILES} files or {MOST_BYTES} bytes")
            files = []
            for entry in entries:
                content = archive.read(entry)
                files.append({"name": entry.filename, **_file(content, type_by_bytes(content[:16]) or _UNKNOWN)})
            return {"files": files}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError(f"the answer's archive cannot be unpacked: {error}") from None


def _events(raw: bytes, framing: StepFraming) -> list[Any]:
    """Events of `sse` as `{event, data}`, lines of `ndjson` as they are; data that is not JSON is text."""
    frames = decoder(framing, MOST_BYTES)
    events = []
    for frame in (*frames.feed(raw), *frames.finish()):
        if frame.data:
            value = _value(frame.data)
            events.append(value if framing == "ndjson" else {"event": frame.name, "data": value})
    return events


def _value(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode("utf-8", "replace")
