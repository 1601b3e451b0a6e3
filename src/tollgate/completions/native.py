"""The request bytes of the native path: the client's bytes with the model name replaced and usage asked for.

The body is spliced rather than re-encoded where possible: numbers, key order, escapes and unknown fields stay as they
came (DESIGN invariant 4). Where a splice might be wrong, or an object has the same name twice, the parsed body is
encoded instead, so that the provider reads exactly what was checked and priced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from tollgate.errors import UpstreamFailed
from tollgate.json_bounds import MAY_BE_DEEP, count_of, too_deep_to_write, too_many
from tollgate.sse import BOM

_FORMAT_HEADERS = ("-version", "-beta")
_OTHER_HEADERS = ("x-", "sec-", "mime-")
_MODEL_KEY = b'"model"'
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]*)"')
"""Model names without escapes; for others the parsed body is encoded."""
_SPELLED = re.compile(rb"\\u00(?:6[dfcDFC45])")
"""A letter of `model` written as an escape: a key may then be `model` though its bytes are different."""
_SHORT = 4096
"""Below this size encoding the parsed body is faster than a splice; used when it gives the same bytes."""
_SURROGATES = re.compile(rb"\\(?:(\\|u[dD][89abAB]..\\u[dD][c-fC-F]..)|u[dD][89a-fA-F]..)")
"""Finds lone surrogate escapes; group 1 matches what must be kept: escaped backslashes and whole pairs."""
_NO_FIGURES = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?Infinity|NaN', re.DOTALL)
"""Finds `NaN` and `Infinity`, which Python writes but JSON lacks. Group 1 matches a string, which is kept; also one
that never ends, so that the search does not start again at each of its quotes."""
_MOST_REPAIRED = 32 * 1024 * 1024
_MOST_REPAIRED_EVENT = 1024 * 1024
"""Most bytes of an answer, and of a stream event, in which faults are repaired: this blocks the interpreter, for up to
a second."""
_ASK_USAGE = b'"stream_options":{"include_usage":true}'


def native_body(raw: bytes, body: dict[str, Any], upstream_model: str, *, ask_usage: bool) -> bytes:
    """`raw` with its top-level model set to `upstream_model`; with `ask_usage`, `stream_options.include_usage` true.

    `body` is `raw` parsed. The caller has checked that it has a model; so if `"model"` occurs only once in the bytes,
    that is the top-level one, and its value can be replaced in place.
    """
    encoded = orjson.dumps(body)
    spliced: bytes | None
    if encoded != raw:
        spliced = None if _names_twice(raw, encoded) else _splice_model(raw, body, upstream_model)
    elif len(raw) < _SHORT:
        spliced = None
    else:  # written as most clients do, without spaces
        spliced = _put_model(raw, body, upstream_model)
    if spliced is not None:
        if not ask_usage:
            return spliced
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") is True:
            return spliced
        if "stream_options" not in body and (end := spliced.rstrip()).endswith(b"}"):
            return end[:-1] + b"," + _ASK_USAGE + b"}"
    return orjson.dumps(native_document(body, upstream_model, ask_usage=ask_usage))


def native_headers(
    inbound: Mapping[str, str], headers: Mapping[str, str], configured: Iterable[tuple[str, object]]
) -> Mapping[str, str]:
    """`headers` plus the client's own headers about the wire format: those named `...-version` or `...-beta`, unless
    the provider's file sets them. `configured` are the (name, value) pairs of that file, also those it makes empty,
    which must not be sent either. Headers in which libraries describe themselves (`x-...`) are not passed on."""
    own = {
        name: value
        for name, value in inbound.items()
        if name.endswith(_FORMAT_HEADERS) and not name.startswith(_OTHER_HEADERS)
    }
    if not own:
        return headers
    set_by_file = {name.lower() for names in (headers, (name for name, _ in configured)) for name in names}
    return {**{name: value for name, value in own.items() if name not in set_by_file}, **headers}


def native_document(body: dict[str, Any], upstream_model: str, *, ask_usage: bool) -> dict[str, Any]:
    """The same as `native_body`, as an object, for providers whose edits are applied to it; `body` is not changed."""
    document = {**body, "model": upstream_model}
    if ask_usage:
        options = body.get("stream_options")
        document["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return document


def parsed_answer(raw: bytes) -> tuple[Any, bytes]:
    """An upstream's body parsed, and its bytes, repaired if necessary. Raises `orjson.JSONDecodeError`."""
    try:
        return orjson.loads(raw), raw
    except orjson.JSONDecodeError:
        if len(raw) > _MOST_REPAIRED:
            raise
        raw = _repaired(raw)
        return orjson.loads(raw), raw


LARGE_EVENT = 256 * 1024
"""Bytes of a stream event from which on `check_event` is worth calling."""
_MOST_VALUES = 500_000


def check_event(data: bytes) -> None:
    """Raises `UpstreamFailed` for an event with so many values that parsing it would block the interpreter for a
    second."""
    if too_many(data, _MOST_VALUES):
        raise UpstreamFailed(f"a stream event holds more than {_MOST_VALUES} values")


def check_depth(data: bytes, event: Any) -> None:
    """Raises `UpstreamFailed` for an event, given as sent and parsed, that could not be written again."""
    if too_deep_to_write(data, event):
        raise UpstreamFailed("a stream event is nested too deeply")


def parsed_event(data: bytes) -> Any:
    """The JSON value of a stream event's data, repaired if necessary; None when it is not JSON. Raises
    `UpstreamFailed`, see `check_event` and `check_depth`."""
    if len(data) > LARGE_EVENT:
        check_event(data)
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        if len(data) > _MOST_REPAIRED_EVENT:
            return None
        try:
            event = orjson.loads(_repaired(data))
        except orjson.JSONDecodeError:
            return None
    if len(data) > MAY_BE_DEEP:
        check_depth(data, event)
    return event


def valid_utf8(raw: bytes) -> bytes:
    """`raw` with invalid UTF-8 replaced, which would break the client's decoder; valid bytes are returned unchanged."""
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def _repaired(raw: bytes) -> bytes:
    """JSON without the faults that lenient parsers accept.

    A byte order mark is removed. Invalid UTF-8 becomes U+FFFD, and so do escapes of half a surrogate pair, sent by
    providers that cut texts in UTF-16. `NaN` and `Infinity`, as Python writes log probabilities, become null.
    """
    raw = _SURROGATES.sub(lambda found: found[0] if found[1] else b"\\ufffd", valid_utf8(raw.removeprefix(BOM)))
    return _NO_FIGURES.sub(lambda found: found[1] or b"null", raw) if b"NaN" in raw or b"Infinity" in raw else raw


def _names_twice(raw: bytes, encoded: bytes) -> bool:
    """Whether an object in `raw` may have the same name twice; `encoded` is `raw` parsed and written again. The numbers
    of colons differ then: each member has one, and those inside strings are the same in both.

    Of two members with one name we read the last, other parsers the first: a provider could read another model, or
    another stored response, than the one that was checked.
    """
    # `find` and not `in`: for bytes, `in` first tries the needle as a number and catches the error
    return count_of(raw, b":") != count_of(encoded, b":") or raw.find(b"\\u003a") >= 0 or raw.find(b"\\u003A") >= 0


def _put_model(raw: bytes, body: dict[str, Any], upstream_model: str) -> bytes:
    """`_splice_model` for a body just as orjson writes it: the length of what follows the model gives its place."""
    asked, sent = (b'"model":' + orjson.dumps(name) for name in (body["model"], upstream_model))
    at = 1
    if not raw.startswith(asked, at):
        names = list(body)
        behind = {name: body[name] for name in names[names.index("model") + 1 :]}
        at = len(raw) - len(orjson.dumps(behind)) - len(asked) + (not behind)
    return raw[:at] + sent + raw[at + len(asked) :]


def _splice_model(raw: bytes, body: dict[str, Any], upstream_model: str) -> bytes | None:
    at = raw.find(_MODEL_KEY)
    if at < 0 or raw.rfind(_MODEL_KEY) != at or (raw.rfind(b"\\u00") >= 0 and _SPELLED.search(raw)):
        return None
    found = _MODEL.match(raw, at)
    if found is None or found.group(1) != body["model"].encode():
        return None
    return raw[: found.start(1)] + orjson.dumps(upstream_model)[1:-1] + raw[found.end(1) :]
