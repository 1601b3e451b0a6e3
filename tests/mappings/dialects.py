"""Recorded exchanges of the dialects that only upstreams speak, and their conversion.

The recordings are beside the repository; readers and comparisons are those of `replay`, independent of the product.
"""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import dataclass
from typing import Any

from mappings.shapes import check
from replay import cells, clients, compare, read_bedrock, read_cohere, read_ollama
from replay.facts import RequestFacts
from replay.traffic import exchange, ids, read_sse
from support.places import TRAFFIC
from tollgate.mapping import Context, Refused, StreamConverter, Tap, convert_request, convert_response, tap_response

DIALECTS: dict[str, str] = {"bedrock": "bedrock-converse", "cohere": "cohere-chat", "ollama": "ollama-chat"}
"""Mapping -> recorded protocol."""
READERS: dict[str, Any] = {"bedrock": read_bedrock, "cohere": read_cohere, "ollama": read_ollama}
CAN: dict[str, dict[str, Any]] = {
    "bedrock": {
        "cache_control": True,
        "reasoning": True,
        "thinking": True,
        "strict_tools": True,
        "results_without_files": True,
    },
    "cohere": {"reasoning": True},
    "ollama": {},
}
"""The abilities that the shipped provider files declare for the newest models."""


@dataclass(frozen=True)
class Recorded:
    """One recorded exchange of a dialect; `events` are (name, data) of a stream, otherwise empty."""

    id: str
    status: int
    body: Any
    events: list[tuple[str | None, Any]]
    features: frozenset[str]


@functools.cache
def recorded(dialect: str) -> list[Recorded]:
    """Every exchange of a dialect."""
    rows = json.loads((TRAFFIC / "index.json").read_text())["exchanges"]
    return [
        _read(json.loads((TRAFFIC / row["file"]).read_text())) for row in rows if row["protocol"] == DIALECTS[dialect]
    ]


def _read(raw: dict[str, Any]) -> Recorded:
    answer = raw["response"]
    if answer.get("events"):
        events = [
            (f["headers"].get(":event-type") or f["headers"].get(":exception-type"), f["payload"])
            for f in answer["events"]
        ]
    elif answer.get("sse") is not None and answer.get("framing") == "ndjson":
        events = [(None, json.loads(line)) for line in answer["sse"].splitlines() if line.strip()]
    elif answer.get("sse") is not None:
        events = list(read_sse(answer["sse"]))
    else:
        events = []
    return Recorded(raw["id"], answer["status"], answer.get("body"), events, frozenset(raw["features"]))


def answers(dialect: str) -> list[Recorded]:
    """Successful whole answers."""
    return [x for x in recorded(dialect) if x.status < 400 and not x.events]


def streams(dialect: str) -> list[Recorded]:
    return [x for x in recorded(dialect) if x.status < 400 and x.events]


def failures(dialect: str) -> list[Recorded]:
    return [x for x in recorded(dialect) if x.status >= 400]


# ---- answers --------------------------------------------------------------------------------------------------------
def answer_misses(dialect: str, client: str, x: Recorded) -> list[str]:
    """The fields of a whole answer that did not reach a client as recorded."""
    before = copy.deepcopy(x.body)
    done = convert_response(cells.mapping(dialect), cells.mapping(client), x.body, cells.context())
    misses = cells.hub_misses("response", done.hub) + compare.answers(
        READERS[dialect].answer(x.body), clients.whole(client, done.body), client
    )
    return [f"{x.id}: {miss}" for miss in misses] + ([f"{x.id}: its input was changed"] if before != x.body else [])


def stream_misses(dialect: str, client: str, x: Recorded) -> list[str]:
    """The fields of a stream that did not reach a client as recorded."""
    converter = StreamConverter(cells.mapping(dialect), cells.mapping(client), cells.context())
    out = [sent for name, event in x.events for sent in converter.feed(event, name)] + converter.finish()
    return [
        f"{x.id}: {miss}"
        for miss in cells.stream_misses(READERS[dialect].stream(x.events), clients.streamed(client, out), client)
    ]


def tap_misses(dialect: str, x: Recorded) -> list[str]:
    """Differences in the usage and stop reason that accounting reads."""
    if x.events:
        tap = Tap(cells.mapping(dialect))
        for name, event in x.events:
            tap.feed(event, name)
        found = cells.tapped(
            READERS[dialect].stream(x.events), tap.usage, tap.stop, tap.error["message"] if tap.error else None
        )
    else:
        hub = tap_response(cells.mapping(dialect), copy.deepcopy(x.body))
        found = cells.tapped(READERS[dialect].answer(x.body), hub.get("usage"), hub.get("stop"), None)
    return [f"{x.id}: {miss}" for miss in found]


# ---- requests -------------------------------------------------------------------------------------------------------
def requests(client: str) -> list[Any]:
    """Recorded requests of a client format."""
    found = map(exchange, ids(client))
    return [
        x
        for x in found
        if x.status < 400 and isinstance(x.request, dict) and (x.request.get("messages") or x.request.get("input"))
    ]


def context(dialect: str) -> Context:
    run = cells.context(can=CAN[dialect])
    run.inlined = Fetched()
    return run


class Fetched(dict[str, Any]):
    """Replaces the guarded fetch: the bytes behind a URL are the URL itself, as text, so that readers recognise it."""

    def get(self, url: Any, default: Any = None) -> Any:
        return self[url]

    def __contains__(self, url: object) -> bool:
        return True

    def __missing__(self, url: str) -> dict[str, str]:
        return {
            "mime": "application/pdf" if ".pdf" in url else "video/webm" if ".webm" in url else "image/png",
            "data": url,
        }


@dataclass(frozen=True)
class Sent:
    """The outcome of one request: rejected with this message, or sent with these differences."""

    misses: tuple[str, ...] = ()
    refused: str | None = None


def sent(client: str, dialect: str, x: Any) -> Sent:
    wanted = cells.READERS[client].request_facts(x.request)
    try:
        done = convert_request(cells.mapping(client), cells.mapping(dialect), x.request, context(dialect))
    except Refused as no:
        return Sent(refused=no.message)
    faults = [f"{x.id}: {fault}" for fault in check(dialect, done.body)]
    return Sent(
        (
            *faults,
            *(
                f"{x.id}: {miss}"
                for miss in differences(dialect, wanted, READERS[dialect].request_facts(done.body), done.lost)
            ),
        )
    )


def differences(dialect: str, wanted: RequestFacts, got: RequestFacts, lost: list[str]) -> list[compare.Miss]:
    """Differences in text, media, calls, results and tools; what is missing must be named in `lost`."""
    named = " ".join(lost)
    misses = []
    if dialect == "bedrock" and got.results and got.media:
        # it separates results from the files that follow them, and puts text beside documents that have none
        got.assistant = [text for text in got.assistant if text != "."]
        got.user = [text for text in got.user if text != "."]
    for member in ("system", "user", "assistant"):
        w, g = (compare.unnamed("".join(getattr(x, member)), [*wanted.names, *got.names]) for x in (wanted, got))
        if w != g and sorted(w) != sorted(g):
            misses.append(compare.Miss(member, w, g))
    misses += [
        m for m in compare.calls(wanted.calls, got.calls, wrapped=True) if m.member != "call id" or dialect != "ollama"
    ]
    if [compare.squeezed(r[1]) for r in wanted.results] != [compare.squeezed(r[1]) for r in got.results]:
        misses.append(compare.Miss("results", wanted.results, got.results))
    if sorted(wanted.media) != sorted(got.media):
        misses.append(compare.Miss("media", wanted.media, got.media))
    if wanted.reasoning and not got.reasoning and "reasoning" not in named:
        misses.append(compare.Miss("reasoning", wanted.reasoning, "neither carried nor named"))
    if wanted.failed and wanted.failed != got.failed and "error flag" not in named:
        misses.append(compare.Miss("error flag", wanted.failed, got.failed))
    if (wanted.hosted or wanted.opaque) and not lost:
        misses.append(compare.Miss("hosted", wanted.hosted + wanted.opaque, "not named"))
    return misses + tool_differences(dialect, wanted, got, named) + setting_differences(dialect, wanted, got, named)


def tool_differences(dialect: str, wanted: RequestFacts, got: RequestFacts, named: str) -> list[compare.Miss]:
    choice = wanted.choice
    kind = choice[0] if isinstance(choice, tuple) else choice
    allowed = [choice[1]] if kind == "one" else choice[2] if kind == "names" else list(wanted.tools)
    needed = {n for n in wanted.tools if n in allowed} if kind != "none" else set()
    declared = set(wanted.tools) or {c.name for c in wanted.calls[:1]}  # Converse accepts no calls without a tool
    misses = []
    if not needed <= set(got.tools) <= declared:
        misses.append(compare.Miss("tools", sorted(needed), sorted(got.tools)))
    for name in set(got.tools) & set(wanted.tools):
        (w, schema), (g, other) = wanted.tools[name], got.tools[name]
        if (
            w != g
            or schema != "custom"
            and compare.schema_differs(schema, other)
            and not (dialect == "bedrock" and compare.narrowed(json.loads(schema or "{}"), json.loads(other or "{}")))
        ):
            misses.append(compare.Miss(f"tool {name}", (w, schema), (g, other)))
    forced = kind in ("any", "one") or kind == "names" and choice[1] == "required"
    held = got.choice == "any" or isinstance(got.choice, tuple)
    if forced and wanted.tools and not held and "tool_choice" not in named:
        misses.append(compare.Miss("choice", choice, got.choice))
    if kind == "one" and held and got.choice == "any" and set(got.tools) != {choice[1]}:
        misses.append(compare.Miss("choice", choice, sorted(got.tools)))
    return misses


def setting_differences(dialect: str, wanted: RequestFacts, got: RequestFacts, named: str) -> list[compare.Miss]:
    misses = []
    if wanted.format not in (None, got.format) and not (
        "format" in named
        or wanted.format != "json"
        and got.format not in (None, "json")
        and (
            json.loads(wanted.format) == json.loads(got.format)
            or dialect == "bedrock"
            and compare.narrowed(json.loads(wanted.format), json.loads(got.format))
        )
    ):
        misses.append(compare.Miss("format", wanted.format, got.format))
    if wanted.effort not in (None, "none") and not got.effort and "thinking" not in named and "reasoning" not in named:
        misses.append(compare.Miss("effort", wanted.effort, got.effort))
    for name in ("max_tokens", "temperature", "top_p", "top_k", "stop", "seed"):
        w, g = wanted.settings.get(name), got.settings.get(name)
        if w == g or w is None or name in named:
            continue
        if (dialect, name, g) == ("cohere", "max_tokens", 64000) and w > g:  # the most of the model of `cells.context`
            continue
        if name in ("temperature", "top_p", "top_k") and (g is not None and abs(g - min(w, 500)) <= 1 or got.effort):
            # moved into the range of this format, or left out while the model reasons
            continue
        misses.append(compare.Miss(name, w, g))
    return misses
