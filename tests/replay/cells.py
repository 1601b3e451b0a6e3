"""Runs one cell of the table: a client format against an upstream format, whole or streamed, or a request.

Everything goes through the engine's public interface with the repository's own mapping files.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import orjson

from mappings.support import mapping
from replay import clients, compare, read_chat, read_gemini, read_messages, read_responses, vendors
from replay.explained import EXPLAINED
from replay.facts import Answer, RequestFacts
from replay.traffic import Exchange, exchange, ids
from tollgate.mapping import (
    Context,
    Refused,
    StreamConverter,
    Tap,
    convert_request,
    convert_response,
    hub,
    tap_response,
)

CLIENTS = ("chat", "responses", "messages")
UPSTREAMS = ("chat", "responses", "messages", "gemini")
READERS: dict[str, Any] = {
    "chat": read_chat,
    "responses": read_responses,
    "messages": read_messages,
    "gemini": read_gemini,
}


@dataclass(frozen=True)
class Result:
    """The outcome of one exchange in one cell."""

    exchange: str
    misses: tuple[str, ...] = ()
    refused: str | None = None
    why: str | None = None
    """Why a difference is correct (`explained.py`), or None."""

    @property
    def passed(self) -> bool:
        return not self.misses


@dataclass
class Cell:
    """All exchanges of one cell."""

    kind: str
    client: str
    upstream: str
    results: list[Result] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return sum(r.passed for r in self.results)

    @property
    def unexplained(self) -> list[Result]:
        return [r for r in self.results if not r.passed and not r.why]

    @property
    def share(self) -> float:
        return self.passed / len(self.results) if self.results else 1.0


def context(**more: Any) -> Context:
    return Context({"upstream": "m", "max_output": 64000}, more.pop("can", {}), run_id="run", now=1_700_000_000, **more)


def result(kind: str, client: str, upstream: str, x: Exchange, misses: list[Any], refused: str | None = None) -> Result:
    words = tuple(str(m) for m in misses)
    why = EXPLAINED.get((kind, x.id)) or EXPLAINED.get((f"{kind} {client}", x.id)) if words else None
    return Result(x.id, words, refused, why)


# ---- which exchanges ------------------------------------------------------------------------------------------------
def answered(x: Exchange) -> bool:
    """Whether it is a successful whole answer: 200, JSON, no error inside."""
    return (
        not x.stream
        and x.status < 400
        and isinstance(x.body, dict)
        and not x.body.get("error")
        and x.body.get("status") not in ("queued", "in_progress")
        and (x.protocol != "chat" or bool(x.body.get("choices")))
    )


def spoken(x: Exchange) -> bool:
    """Whether it is a stream with events, including errors inside; old text completions under a chat URL are not."""
    return (
        x.stream
        and x.status < 400
        and any(isinstance(e, dict) and e.get("object") != "text_completion" for _, e in x.events)
    )


# ---- cells ----------------------------------------------------------------------------------------------------------
def tap_cell(upstream: str) -> Cell:
    """(a) Accounting of a native answer: its usage and stop reason, whole and streamed."""
    cell = Cell("tap", upstream, upstream)
    for x in map(exchange, ids(upstream)):
        if answered(x):
            hub = tap_response(mapping(upstream), copy.deepcopy(x.body))
            cell.results.append(
                result(
                    "tap",
                    upstream,
                    upstream,
                    x,
                    tapped(READERS[upstream].answer(x.body), hub.get("usage"), hub.get("stop"), None),
                )
            )
        elif spoken(x):
            tap = Tap(mapping(upstream))
            for name, event in x.events:
                tap.feed(event, name)
            wanted = READERS[upstream].stream(x.events)
            error = tap.error["message"] if tap.error else None
            cell.results.append(result("tap", upstream, upstream, x, tapped(wanted, tap.usage, tap.stop, error)))
    return cell


def hub_misses(kind: str, value: Any) -> list[compare.Miss]:
    """Violations of the hub's published schema in a hub document."""
    return [compare.Miss("hub", "by its schema", fault) for fault in hub.faults(kind, value)]


def tapped(wanted: Answer, usage: Any, stop: str | None, error: str | None) -> list[compare.Miss]:
    misses = []
    for name, value in (wanted.usage or {}).items():
        if value != ((usage or {}).get(name) or 0):
            misses.append(compare.Miss(f"usage {name}", value, usage))
    if (stop or "none") not in wanted.stops and not wanted.error:
        misses.append(compare.Miss("stop", sorted(wanted.stops), stop))
    if bool(wanted.error) != bool(error) and "error" not in wanted.stops:
        misses.append(compare.Miss("error", wanted.error, error))
    return misses


def answer_cell(client: str, upstream: str) -> Cell:
    """(b) Whole answers, read back through the client's SDK."""
    cell = Cell("answer", client, upstream)
    for x in map(exchange, ids(upstream)):
        if answered(x):
            wanted = READERS[upstream].answer(x.body)
            before = copy.deepcopy(x.body)
            try:
                done = convert_response(mapping(upstream), mapping(client), x.body, context())
                body = done.body
                misses = hub_misses("response", done.hub) + compare.answers(wanted, clients.whole(client, body), client)
                if before != x.body:
                    misses.append(compare.Miss("input", "untouched", "changed"))
            except Exception as error:  # any failure is a difference of this exchange
                misses = [compare.Miss(type(error).__name__, "an answer", str(error)[:400])]
            cell.results.append(result("answer", client, upstream, x, misses))
    return cell


def stream_cell(client: str, upstream: str) -> Cell:
    """(c) Streams, rebuilt by the client's SDK."""
    cell = Cell("stream", client, upstream)
    for x in map(exchange, ids(upstream)):
        if spoken(x):
            wanted = READERS[upstream].stream(x.events)
            try:
                got = clients.streamed(client, converted_stream(client, upstream, x.events))
                misses = stream_misses(wanted, got, client)
            except Exception as error:  # any failure is a difference of this exchange
                misses = [compare.Miss(type(error).__name__, "a stream", str(error)[:400])]
            cell.results.append(result("stream", client, upstream, x, misses))
    return cell


def stream_misses(wanted: Answer, got: Answer, client: str) -> list[compare.Miss]:
    if wanted.error or wanted.stops == {"none"}:
        misses = [] if got.error else [compare.Miss("error", wanted.error or "the end of the stream", got.error)]
        if got.words and wanted.words != got.words:
            misses.append(compare.Miss("text", wanted.words, got.words))
        return misses
    misses = compare.answers(wanted, got, client)
    if got.error:
        misses.append(compare.Miss("error", None, got.error))
    return misses


def converted_stream(client: str, upstream: str, events: list[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """Converts recorded events to those a client receives; with frames they must be the same."""
    sent = []
    for frames in (False, True):
        converter = StreamConverter(mapping(upstream), mapping(client), context(), frames=frames)
        out: list[tuple[str | None, Any]] = []
        for name, event in events:
            out += converter.feed(event, name)
        out += converter.finish()
        sent.append([(name, orjson.loads(data) if type(data) is bytes else data) for name, data in out])
    assert sent[0] == sent[1]
    return sent[0]


def request_cell(client: str, upstream: str) -> Cell:
    """(d) Requests, validated by the vendor's types and read back."""
    cell = Cell("request", client, upstream)
    for x in map(exchange, ids(client)):
        if x.status < 400 and isinstance(x.request, dict) and (x.request.get("messages") or x.request.get("input")):
            cell.results.append(request_result(client, upstream, x))
    return cell


CAN: dict[str, dict[str, Any]] = {"chat": {}, "responses": {}, "messages": {}, "gemini": {}}


def request_result(client: str, upstream: str, x: Exchange) -> Result:
    wanted: RequestFacts = READERS[client].request_facts(x.request)
    try:
        done = convert_request(mapping(client), mapping(upstream), x.request, context(can=CAN[upstream]))
        vendors.check(
            upstream, without_hosted(copy.deepcopy(done.body)) if client == upstream else copy.deepcopy(done.body)
        )
        misses = hub_misses("request", done.hub) + compare.requests(
            wanted, READERS[upstream].request_facts(done.body), upstream, done.lost
        )
    except Refused as no:
        return result(
            "request",
            client,
            upstream,
            x,
            [] if right_to_refuse(no.message, x, upstream) else [compare.Miss("refused", "a request", no.message)],
            no.message,
        )
    except Exception as error:  # any failure is a difference of this exchange
        misses = [compare.Miss(type(error).__name__, "a request", str(error)[:400])]
    return result("request", client, upstream, x, misses)


def without_hosted(body: dict[str, Any]) -> dict[str, Any]:
    """Returned to its own format a hosted tool passes unchanged, newer than any SDK: its shape is not checked here."""
    body["tools"] = [t for t in body.get("tools") or [] if t.get("type") in (None, "function", "custom")]
    return body


REFUSALS = (
    ("n is greater than 1", lambda x, _: (x.request.get("n") or 1) > 1),
    ("previous_response_id", lambda x, _: bool(x.request.get("previous_response_id"))),
    ("conversation", lambda x, _: bool(x.request.get("conversation"))),
    ("prompt is not supported", lambda x, _: bool(x.request.get("prompt"))),
    ("item_reference", lambda x, _: "item_reference" in str(x.request)),
    ("compaction", lambda x, _: "compaction" in str(x.request)),
    ("container_upload", lambda x, _: "container_upload" in str(x.request)),
    ("referenced by", lambda x, _: "file_id" in str(x.request)),
    ("video", lambda x, up: "video" in str(x.request) and up != "gemini"),
    ("audio", lambda x, up: "audio" in str(x.request) and up in ("messages", "responses")),
    ("has type", lambda x, up: "file_data" in str(x.request) and up == "messages"),
)
"""Every refusal, and what a request must contain for it to be correct."""


def right_to_refuse(message: str, x: Exchange, upstream: str) -> bool:
    return any(words in message and holds(x, upstream) for words, holds in REFUSALS)
