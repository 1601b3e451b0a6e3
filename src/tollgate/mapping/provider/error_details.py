"""Reads an upstream's error: its message, type, code and parameter in any common shape, and how long to wait.

Used where a provider file has no rule of its own. Nothing here fails: every body gives a message that can be shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import islice
from typing import Any

import orjson

from tollgate.wording import clipped

MAX_MESSAGE = 1000
_MAX_WORD = 100
_MAX_CODED = 16 * 1024
_MAX_PLAIN = 300
"""The most characters of a plain text that are used as a message."""
_MESSAGE_KEYS = (
    "message",
    "Message",
    "msg",
    "detail",
    "details",
    "error_description",
    "description",
    "reason",
    "error",
    "Error",
    "errors",
    "title",
)
_LONGEST_SECRET = 64 * 1024
"""Characters at the end of a text in which a secret may be cut off; no secret file is longer."""
_HTML = re.compile(r"\s*<(?:!doctype|html|head|body|h1|center)", re.IGNORECASE)
_OPENED = re.compile(r"<(title|h1)[^<>]*>", re.IGNORECASE)
_MOST_OPENED = 8
_MOST_TITLE = 1000
"""The most characters of a page's title or heading. Without a limit, thousands of unclosed ones would take minutes."""
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?\Z")
_UNIX = re.compile(r"\d{10}(?:\d{3})?\Z")
"""A time in Unix seconds or milliseconds."""
_DEPTH = 6


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """The four fields of an error body; "" for those it does not have."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""


def read_error(body: Any, redact: Callable[[str], str] = str) -> ErrorDetails:
    """Message, type, code and param of an error body of any shape; all may be empty. `redact` removes our secrets
    from a text."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, str):
        return ErrorDetails(plain_text(body, redact))
    if not isinstance(body, dict):
        return ErrorDetails()
    inner = body.get("error")
    if not isinstance(inner, dict):
        listed = body.get("errors")
        inner = next((entry for entry in listed if isinstance(entry, dict)), {}) if isinstance(listed, list) else {}
    return ErrorDetails(
        showable(_message(body), MAX_MESSAGE, redact),
        *(
            showable(word, _MAX_WORD, redact)
            for word in (
                _word(inner.get("type"))
                or (_word(body.get("type")) if body.get("type") != "error" else "")
                or _word(inner.get("status")),
                _word(inner.get("code")) or _word(body.get("code")),
                _word(inner.get("param")) or _word(body.get("param")),
            )
        ),
    )


def coded_details(body: Any, redact: Callable[[str], str]) -> dict[str, Any] | None:
    """`error.details` of a messages error with an `error_code`, without our secrets. Official clients raise a class for
    the code, with the rest as its attributes (which pictures are too large, and by how much). None for other errors;
    of very long details only the code."""
    inner = body.get("error") if isinstance(body, dict) else None
    details = inner.get("details") if isinstance(inner, dict) else None
    code = details.get("error_code") if isinstance(details, dict) else None
    if not isinstance(code, str):
        return None
    written = orjson.dumps(details).decode()
    if len(written) > _MAX_CODED:
        return {"error_code": showable(code, _MAX_WORD, redact)}
    shown: dict[str, Any] = orjson.loads(redact(written))
    return shown


def showable(text: str, most: int, redact: Callable[[str], str]) -> str:
    """An upstream's text without our secrets, shortened to `most` characters.

    Secrets are removed first: one that was cut off would not be found, and callers whose own text is quoted before it
    could choose how much of it is left.
    """
    return clipped(redact(text[: most + _LONGEST_SECRET]), most)


def _message(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return value.strip()
    if depth > _DEPTH:
        return ""
    if isinstance(value, list):
        texts = [text for item in value[:5] if (text := _item(item, depth))]
        return "; ".join(dict.fromkeys(texts))
    if not isinstance(value, dict):
        return ""
    # the message inside `error` says more than one beside it
    inner = value.get("error")
    if isinstance(inner, (dict, list)) and (text := _message(inner, depth + 1)):
        return text
    for key in _MESSAGE_KEYS:
        if text := _message(value.get(key), depth + 1):
            return text
    return ""


def _item(item: Any, depth: int) -> str:
    """An entry of a list of problems, with the field it is about: `body.input: field required`."""
    text = _message(item, depth + 1)
    where = item.get("loc") if isinstance(item, dict) else None
    if text and isinstance(where, list) and where:
        return f"{'.'.join(str(step) for step in where)}: {text}"
    return text


def _word(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    # the text of an empty value, from another gateway
    return "" if value in ("None", "null") else str(value)


def plain_text(body: str, redact: Callable[[str], str] = str) -> str:
    """A text body as a message: the title of an HTML page; other text shortened."""
    if _HTML.match(body):
        words = showable(_title(body), _MAX_WORD, redact)
        return f"an HTML page ({words})" if words else "an HTML page"
    return showable(body.strip(), _MAX_PLAIN, redact)


def _title(page: str) -> str:
    """The text of the first title or heading that is closed."""
    for opened in islice(_OPENED.finditer(page), _MOST_OPENED):
        text = page[opened.end() : opened.end() + _MOST_TITLE]
        end = text.lower().find(f"</{opened[1].lower()}>")
        if end >= 0:
            return " ".join(re.sub(r"<[^<>]*>", " ", text[:end]).split())
    return ""


def status_words(status: int) -> str:
    """`HTTP 503 (Service Unavailable)`."""
    try:
        return f"HTTP {status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return f"HTTP {status}"


def seconds_of(value: Any) -> float | None:
    """A wait in any notation: 37, "37", "37s", "1m20s", "320ms"; None for anything else or a negative one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if 0 <= value < 1e9 else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _NUMBER.match(text):
        return float(text)
    found = _DURATION.match(text) if text and len(text) < 40 else None
    if not found or not any(found.groups()):
        return None
    hours, minutes, seconds, millis = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait according to `retry-after-ms` or `retry-after` (seconds or an HTTP date); None without these."""
    millis = headers.get("retry-after-ms")
    if millis is not None and _NUMBER.match(millis.strip()):
        return float(millis) / 1000
    after = headers.get("retry-after")
    if after is None:
        return None
    if (seconds := seconds_of(after)) is not None:
        return seconds
    try:
        return _seconds_to(parsedate_to_datetime(after), now)
    except (ValueError, OverflowError):  # the latter for a time zone far beyond any
        return None


def spent_until(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds until the last of the limits that are used up (`x-ratelimit-remaining-tokens: 0`) is reset.

    The `reset` header beside it has a wait in any notation, or a time: in Unix seconds, Unix milliseconds or ISO 8601.
    None if no limit is used up, or none of them has a reset.
    """
    waits = [
        wait
        for name, left in headers.items()
        if "ratelimit" in name and "remaining" in name and left.strip() == "0"
        if (wait := _until(headers.get(name.replace("remaining", "reset"), ""), now)) is not None
    ]
    return max(waits, default=None)


def _until(reset: str, now: datetime | None) -> float | None:
    reset = reset.strip()
    if (seconds := seconds_of(reset)) is not None:
        return seconds
    try:
        if _UNIX.match(reset):
            return _seconds_to(datetime.fromtimestamp(int(reset[:10]), UTC), now)
        return _seconds_to(datetime.fromisoformat(reset), now)
    except ValueError:
        return None


def _seconds_to(moment: datetime, now: datetime | None) -> float:
    """Seconds until a time, in UTC if it has no zone; 0 if it has passed."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
