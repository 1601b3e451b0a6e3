"""The request bytes of the native path: what the client sent, with the model name replaced and usage asked for.

The body is not re-encoded when it can be spliced: numbers, key order, escapes and unknown fields stay as they came
(DESIGN invariant 4). Where a splice is not certain to be right, or a name stands twice in an object, the parsed body is
encoded instead: what was checked and priced is what the provider reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from tollgate.errors import UpstreamFailed
from tollgate.json_bounds import count_of, too_many
from tollgate.sse import BOM

_FORMAT_HEADERS = ("-version", "-beta")
_OTHER_HEADERS = ("x-", "sec-", "mime-")
_MODEL_KEY = b'"model"'
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]*)"')
"""A name with escapes is found by encoding the parsed body anew."""
_SPELLED = re.compile(rb"\\u00(?:6[dfcDFC45])")
"""A letter of `model` written as an escape: then a key may be `model` without reading so."""
_SHORT = 4096
"""A body below this is written anew in less time than it is spliced, and comes to the same bytes where it was written
so."""
_SURROGATES = re.compile(rb"\\(?:(\\|u[dD][89abAB]..\\u[dD][c-fC-F]..)|u[dD][89a-fA-F]..)")
"""Escaped backslashes and whole pairs, which stay as they are (group 1), and halves of a pair."""
_NO_FIGURES = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?Infinity|NaN', re.DOTALL)
"""Finds what Python writes in place of a number and JSON does not know. Group 1 is a text, which is kept as it is; one
that does not end counts as well, so that the rest is not searched again from each of its quotes."""
_MOST_MENDED = 32 * 1024 * 1024
_MOST_MENDED_EVENT = 1024 * 1024
"""Bytes of an answer, and of an event of a stream, that are searched for faults: while they are, nobody else's turn
comes, for up to a second."""
_ASK_USAGE = b'"stream_options":{"include_usage":true}'


def native_body(raw: bytes, body: dict[str, Any], upstream_model: str, *, ask_usage: bool) -> bytes:
    """`raw` with its top-level model set to `upstream_model`; with `ask_usage`, `stream_options.include_usage` true.

    `body` is `raw` parsed. A body in which `"model"` stands once as a token has it at the top level (the caller has
    checked that it is there), so that token's value can be replaced in place.
    """
    anew = orjson.dumps(body)
    spliced: bytes | None
    if anew != raw:
        spliced = None if _names_twice(raw, anew) else _splice_model(raw, body, upstream_model)
    elif len(raw) < _SHORT:
        spliced = None
    else:  # as most clients write
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
    inbound: Mapping[str, str], headers: Mapping[str, str], decided: Iterable[tuple[str, object]]
) -> Mapping[str, str]:
    """`headers` with the client's own words about the wire format: its `...-version` and `...-beta` headers, where the
    provider's file does not say them itself. `decided` begin with names the file speaks of, so that what it leaves out
    is not sent after all. What libraries say about themselves (`x-...`) stays here."""
    own = {
        name: value
        for name, value in inbound.items()
        if name.endswith(_FORMAT_HEADERS) and not name.startswith(_OTHER_HEADERS)
    }
    if not own:
        return headers
    said = {name.lower() for names in (headers, (name for name, _ in decided)) for name in names}
    return {**{name: value for name, value in own.items() if name not in said}, **headers}


def native_document(body: dict[str, Any], upstream_model: str, *, ask_usage: bool) -> dict[str, Any]:
    """The same as an object, for a provider whose edits must run over it; `body` is not changed."""
    document = {**body, "model": upstream_model}
    if ask_usage:
        options = body.get("stream_options")
        document["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return document


def parsed_answer(raw: bytes) -> tuple[Any, bytes]:
    """An upstream's body as JSON, and its bytes with broken characters replaced. Raises `orjson.JSONDecodeError`."""
    try:
        return orjson.loads(raw), raw
    except orjson.JSONDecodeError:
        if len(raw) > _MOST_MENDED:
            raise
        raw = _mended(raw)
        return orjson.loads(raw), raw


LARGE_EVENT = 256 * 1024
"""Bytes of a stream event beyond which `check_event` has something to say."""
_MOST_VALUES = 500_000


def check_event(data: bytes) -> None:
    """Raises `UpstreamFailed` for an event of so many values that everybody else would wait for a second while it is
    read."""
    if too_many(data, _MOST_VALUES):
        raise UpstreamFailed(f"a stream event holds more than {_MOST_VALUES} values")


def parsed_event(data: bytes) -> Any:
    """The JSON value of a stream event's data, broken characters replaced; None when it is none. Raises
    `UpstreamFailed`, as `check_event`."""
    if len(data) > LARGE_EVENT:
        check_event(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if len(data) > _MOST_MENDED_EVENT:
            return None
        try:
            return orjson.loads(_mended(data))
        except orjson.JSONDecodeError:
            return None


def valid_utf8(raw: bytes) -> bytes:
    """A provider's broken bytes must not break the client's decoder; valid ones pass as they are."""
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def _mended(raw: bytes) -> bytes:
    """JSON without the faults that other readers of it take.

    A byte order mark in front is left out. Broken characters become U+FFFD, and so do halves of a character, written as
    escapes by providers that count or cut texts in UTF-16. `NaN` and `Infinity`, as Python writes them for log
    probabilities, become null.
    """
    raw = _SURROGATES.sub(lambda found: found[0] if found[1] else b"\\ufffd", valid_utf8(raw.removeprefix(BOM)))
    return _NO_FIGURES.sub(lambda found: found[1] or b"null", raw) if b"NaN" in raw or b"Infinity" in raw else raw


def _names_twice(raw: bytes, anew: bytes) -> bool:
    """Whether an object of `raw` may hold a name twice; `anew` is what was parsed of it, written again. The number of
    colons tells: each member has one, and those inside texts are the same in both.

    We read the last of two, some readers the first: another model, or an answer stored for somebody else, than what was
    checked.
    """
    # `find` and not `in`, which first takes what is searched for a number, and catches its own error
    return count_of(raw, b":") != count_of(anew, b":") or raw.find(b"\\u003a") >= 0 or raw.find(b"\\u003A") >= 0


def _put_model(raw: bytes, body: dict[str, Any], upstream_model: str) -> bytes:
    """`_splice_model` for a body that is just what orjson writes: what stands behind its model tells where that is."""
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
