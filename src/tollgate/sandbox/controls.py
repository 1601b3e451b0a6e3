"""What a request can make the sandbox do besides a normal answer: markers in the text, or a request header.

A marker is in double square brackets inside the last user text (`[[pace=20ms]]`); the header `x-sandbox` has the same
words, separated by commas (`x-sandbox: pace=20ms, tokens=50`). Markers are removed before the text is echoed. Unknown
words stay in the text, so that ordinary double brackets are not affected. This module owns the table; `docs/sandbox.md`
explains it to users, and a test keeps the two equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MARKERS: dict[str, str] = {
    "tokens=N": "the answer has exactly N tokens",
    "pace=20ms": "a pause before every stream event (`ms` or `s`)",
    "delay=2s": "a pause before the status line",
    "duration=2s": "how long an image job takes",
    "tool": 'call the first declared tool; `tool=NAME {"a": 1}` sets its name and arguments; can be repeated',
    "tools=N": "N parallel tool calls",
    "preface": "text before the tool calls",
    "think": "the answer has reasoning, whatever the model",
    "redacted": "messages: the thinking block is a redacted one",
    "error=STATUS": "fail with this status; options `retry-after=S code=C type=T message=M times=N`",
    "error-in-200": "status 200 with an error body (a stream: an error event at once)",
    "stream-error=N": "an error event after N events; option `nested` for the older responses shape",
    "cut=N": "the connection is dropped after N events (or inside a whole answer); option `clean` closes it properly",
    "cut-mid=N": "the connection is dropped inside event N + 1",
    "stall=N": "nothing is sent after N events, and the connection stays open",
    "reset": "the connection is dropped before the first byte of the body",
    "html": "an HTML page, status 200; `html=502` for another status",
    "bad-utf8": "invalid UTF-8 inside the answer's text",
    "empty": "an answer without content",
    "refuse": "a refusal, in the protocol's format",
    "finish=REASON": "the finish reason: stop, length, content_filter, tool_calls",
    "no-usage": "the answer reports no usage",
    "late-usage": "chat: usage is in the chunk with the finish reason, requested or not",
    "prompt-tokens=N": "report this many input tokens, cached ones included",
    "completion-tokens=N": "report this many output tokens, reasoning included",
    "cached-tokens=N": "report this many of the input tokens as read from a cache",
    "cache-write-tokens=N": "report this many of the input tokens as written to a cache",
    "reasoning-tokens=N": "report this many of the output tokens as reasoning",
    "fail=MESSAGE": "the image job fails with this message (`_` stands for a space)",
}
"""Every marker and its effect. Each takes the option `model=NAME`: it then applies to that model only."""

_NAMES = {name.partition("=")[0] for name in MARKERS}
_INT_FIELDS = {name.removesuffix("=N") for name in MARKERS if name.endswith("=N")}
_TIME_FIELDS = {"pace", "delay", "duration"}
_FLAGS = {name for name in MARKERS if "=" not in name} - {"tool", "html"}
# a value ends before a bracket: else each of many unclosed markers would be read up to the end of the text
_OPTION = re.compile(r"\s+([a-z-]+)(?:=([^\s\[\]]*))?")
_HEAD = re.compile(r"\s*([a-z0-9-]+)(?:=([^\s\[\]]*))?")
_MOST_MARKERS = 1000
"""Of one text; more of them stay text. Each takes 20 µs."""
_LARGEST = 200_000
"""Larger counts are cut: a marker must not be able to fill the memory."""


@dataclass(frozen=True, slots=True)
class Call:
    """A requested tool call; None lets the sandbox choose the tool."""

    name: str | None = None
    arguments: object = None


@dataclass(frozen=True, slots=True)
class Failure:
    """`error=STATUS` with its options; `times` limits it to the first requests with this text."""

    status: int
    retry_after: str | None = None
    code: str | None = None
    kind: str | None = None
    message: str | None = None
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Controls:
    """All controls of one request. Times are in seconds; a `None` count means "as usual"."""

    tokens: int | None = None
    pace: float = 0.0
    delay: float = 0.0
    duration: float | None = None
    calls: tuple[Call, ...] = ()
    tools: int | None = None
    preface: bool = False
    think: bool = False
    redacted: bool = False
    error: Failure | None = None
    error_in_200: bool = False
    stream_error: int | None = None
    nested: bool = False
    cut: int | None = None
    clean: bool = False
    cut_mid: int | None = None
    stall: int | None = None
    reset: bool = False
    html: int | None = None
    bad_utf8: bool = False
    empty: bool = False
    refuse: bool = False
    finish: str | None = None
    no_usage: bool = False
    late_usage: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    fail: str | None = None


@dataclass(slots=True)
class _Word:
    """One marker as written: its name, value, options and, for a tool, the JSON after its name."""

    name: str
    value: str | None
    options: dict[str, str] = field(default_factory=dict)
    arguments: object = None


def seconds(text: str) -> float:
    """A duration in seconds: `20ms` -> 0.02, `2s` -> 2.0, `2` -> 2.0; raises ValueError."""
    found = float(text[:-2]) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))
    if not 0 <= found < float("inf"):
        raise ValueError(f"{text!r} is no duration")
    return found


def read_controls(text: str, headers: Mapping[str, str], model: str) -> tuple[Controls, str]:
    """The controls in a text and in `x-sandbox`, and the text without its markers; the header wins."""
    words, plain = _scan(text)
    words += _header_words(headers.get("x-sandbox", ""))
    controls = Controls()
    for word in words:
        if word.options.get("model", model) == model:
            controls = _apply(controls, word)
    return controls, plain


def _scan(text: str) -> tuple[list[_Word], str]:
    if "[[" not in text:
        return [], text
    words: list[_Word] = []
    kept: list[str] = []
    at = 0
    while len(words) < _MOST_MARKERS and (start := text.find("[[", at)) >= 0:
        found = _word_at(text, start + 2)
        if found is None or not text.startswith("]]", found[1]) or not _valid(found[0]):
            kept.append(text[at : start + 2])
            at = start + 2
            continue
        word, end = found
        kept.append(text[at:start])
        words.append(word)
        at = end + 2
    kept.append(text[at:])
    return words, re.sub(r"[ \t]{2,}", " ", "".join(kept)).strip() if words else text


def _header_words(header: str) -> list[_Word]:
    words: list[_Word] = []
    at = 0
    while at < len(header):
        found = _word_at(header, at)
        if found is None:
            break
        word, end = found
        if _valid(word):
            words.append(word)
        comma = header.find(",", end)
        at = comma + 1 if comma >= 0 else len(header)
    return words


def _word_at(text: str, at: int) -> tuple[_Word, int] | None:
    """The marker that begins here and the position after it, or None."""
    head = _HEAD.match(text, at)
    if head is None or head[1] not in _NAMES:
        return None
    word = _Word(head[1], head[2].rstrip(",") if head[2] else head[2])
    at = head.end() - (1 if head[2] and head[2].endswith(",") else 0)
    brace = re.compile(r"\s*(?=\{)").match(text, at)
    if word.name == "tool" and (brace or (word.value or "").startswith("{")):
        begin = brace.end() if brace and not (word.value or "").startswith("{") else head.start(2)
        try:
            word.arguments, at = json.JSONDecoder().raw_decode(text, begin)
        except (ValueError, RecursionError):
            return None
        if begin == head.start(2):
            word.value = None
    while option := _OPTION.match(text, at):
        raw = option[2] or ""
        word.options[option[1]] = raw.rstrip(",")
        at = option.end() - (1 if raw.endswith(",") else 0)
    return word, re.compile(r"\s*").match(text, at).end()  # type: ignore[union-attr]


def _valid(word: _Word) -> bool:
    """Whether a known word has a valid value; if not, it stays text."""
    try:
        _apply(Controls(), word)
    except ValueError:
        return False
    return True


def _apply(controls: Controls, word: _Word) -> Controls:
    return replace(controls, **_settings_of(controls, word))


def _settings_of(controls: Controls, word: _Word) -> dict[str, Any]:
    """The fields that a word sets; `ValueError` if its value is invalid."""
    name, value, options = word.name, word.value, word.options
    attribute = name.replace("-", "_")
    if name in _FLAGS:
        return {attribute: True}
    if name in _TIME_FIELDS:
        return {attribute: min(seconds(value or ""), 3600.0)}
    if name in _INT_FIELDS:
        default = "0" if name in ("cut", "cut-mid", "stall", "stream-error") else ""
        number = min(max(int(value or default), 0), _LARGEST if name in ("tokens", "tools") else 10**12)
        return {attribute: number} | {option: True for option in ("clean", "nested") if option in options}
    if name == "tool":
        return {"calls": (*controls.calls, Call(value or None, word.arguments))}
    if name == "html":
        return {"html": int(value or "200")}
    if name == "error":
        times = options.get("times")
        return {
            "error": Failure(
                status=int(value or "500"),
                retry_after=options.get("retry-after"),
                code=options.get("code"),
                kind=options.get("type"),
                message=(options.get("message") or "").replace("_", " ") or None,
                times=int(times) if times else None,
            )
        }
    if name == "fail":
        return {"fail": (value or "the model gave up").replace("_", " ")}
    return {"finish": value or "stop"}
