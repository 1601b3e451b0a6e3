"""Reads a provider's answer about a job: one of five statuses, pictures, an error, and the facts that later steps need.

Owns the reading of a step's `result`. An unknown status word leaves the job processing (the caller logs it), so that a
new word of the provider does not break a job; in the worst case the deadline ends it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from tollgate.mapping.packed_bytes import standard_base64
from tollgate.media_types import type_by_bytes
from tollgate.wire import GENERATION_STATUSES, PICTURE_FIELDS, GenerationStatus

NO_IMAGE = "the provider returned no image"
_DATA_URL = re.compile(r"data:([a-zA-Z0-9.+-]+/[a-zA-Z0-9.+-]+)?(?:;[^,;]*)*?(;base64)?,", re.IGNORECASE)
_MOST_HEAD = 2000
"""Characters before the data."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]++={0,2}[\r\n]*")
"""Possessive, because both ends may be line breaks: 64 kB of them before another character took many seconds."""
_MOST_CHECKED = 65536
"""Characters of picture data that are all looked at; of more only the first and the last thousand, because a long text
takes the event loop a millisecond for each megabyte."""
_ENDS = 1000
_DRAWINGS = (b"<svg", b"<?xml")
"""The first bytes of SVG; other types of text files begin like it too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer about a job. `facts` is all of the file's `result`, which later steps read as `$job.<name>`."""

    status: GenerationStatus
    images: tuple[dict[str, Any], ...] = ()
    error: str = ""
    unknown_word: str | None = None
    """A status word that the file does not list."""
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_outcome(
    result: object, words: Mapping[str, GenerationStatus] | None, *, final: bool = True, ended: bool = False
) -> Outcome:
    """A step's `result` as an outcome.

    `words` is the file's `statuses:` table, matched exactly; a word that it does not have may be one of ours, such as
    the literal `status: succeeded` of a synchronous call. A success without a picture is a failure, because nothing was
    delivered that could be charged (unless a later step fetches the pictures: not `final`). Where no further poll is
    possible (`ended`), a result without a status is a success, because the job would be pending for ever.
    """
    facts = dict(result) if isinstance(result, Mapping) else {}
    word = facts.get("status")
    status_word = str(word) if word is not None else ""
    status = (words or {}).get(status_word) or (status_word if status_word in GENERATION_STATUSES else None)
    if word is None and ended:
        status = "succeeded"
    unknown = None if status else status_word
    images = tuple(picture for picture in (read_image(item) for item in _list(facts.get("images"))) if picture)
    error = _text(facts.get("error"))
    if status == "succeeded" and not images and final:
        return Outcome("failed", (), error or NO_IMAGE, facts=facts)
    if status in ("failed", "canceled"):
        return Outcome(
            status, images if status == "canceled" else (), error or "the provider reported a failure", facts=facts
        )
    return Outcome(status or "processing", images if status == "succeeded" else (), "", unknown, facts)


def read_image(item: object) -> dict[str, Any] | None:
    """One picture with the fields of SPEC's Image object, or None if there is neither an address nor data in base64.

    A data URL, also in place of the data, becomes `data` and `context_type`; for inline data without a type its first
    bytes decide.
    """
    if isinstance(item, str):
        item = {"url": item}
    if not isinstance(item, Mapping):
        return None
    picture = {name: item[name] for name in PICTURE_FIELDS if item.get(name) is not None}
    for name in ("url", "data"):
        value = picture.get(name)
        if isinstance(value, str) and value[:5].lower() == "data:":
            del picture[name]
            picture.update(_inline(value, picture.get("context_type")))
    for name in ("url", "data", "context_type"):
        if not isinstance(picture.get(name, ""), str):
            del picture[name]
    data = picture.get("data")
    if data is not None and _is_base64(data):
        data = picture["data"] = standard_base64(data)
        picture.setdefault("context_type", type_of(data))
    else:
        picture.pop("data", None)
        picture.pop("context_type", None)
    for name in ("width", "height"):
        size = _pixels(picture.pop(name, None))
        if size:
            picture[name] = size
    if not picture.get("url") and not picture.get("data"):
        return None
    return {name: picture[name] for name in PICTURE_FIELDS if name in picture}


def type_of(data: str) -> str:
    """The MIME type of base64 picture data by its first bytes; `application/octet-stream` if they are unknown."""
    try:
        head = base64.b64decode(data[:64] + "=" * (-len(data[:64]) % 4))
    except (binascii.Error, ValueError):
        return "application/octet-stream"
    return "image/svg+xml" if head.startswith(_DRAWINGS) else type_by_bytes(head) or "application/octet-stream"


def _is_base64(data: str) -> bool:
    """Whether a text can be a picture in base64, and is not an error's words or an address."""
    parts = (data,) if len(data) <= _MOST_CHECKED else (data[:_ENDS], data[-_ENDS:])
    return all(_BASE64.fullmatch(part) for part in parts)


def _inline(url: str, declared: object) -> dict[str, Any]:
    match = _DATA_URL.match(url, 0, _MOST_HEAD)
    if match is None:
        return {}
    data = url[match.end() :]
    if not match[2]:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    elif "%" in data:
        data = unquote(data)
    return {"data": data, "context_type": match[1] or (declared if isinstance(declared, str) else type_of(data))}


def _pixels(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 8:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 < value < 10_000_000 else None


def _list(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _text(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        value = value.get("message") or value.get("detail") or value.get("msg") or ""
    if isinstance(value, (list, tuple)):
        return "; ".join(text for text in (_text(part) for part in value) if text)[:2000]
    return str(value)[:2000]
