"""Compares a recorded body with the converted one, member by member. A `Miss` names the member, the wanted and the
actual value."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from replay.facts import Answer, Call, RequestFacts


@dataclass(frozen=True)
class Miss:
    """One member that did not arrive as recorded."""

    member: str
    wanted: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.member}: wanted {shorten(self.wanted)}, got {shorten(self.got)}"


def shorten(value: Any, limit: int = 140) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)})"


def unnamed(text: str, names: list[str]) -> str:
    """Text without file names, which some formats have inside the text and others beside it."""
    for name in filter(None, names):
        text = text.replace(name, "")
    return squeezed(text)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def answers(wanted: Answer, got: Answer, client: str) -> list[Miss]:
    """Differences of an answer at a client, in the members that the client's format has."""
    misses = []
    if wanted.words != got.words:
        misses.append(Miss("text", wanted.words, got.words))
    if squeezed(wanted.reasoning) != squeezed(got.reasoning):
        misses.append(Miss("reasoning", wanted.reasoning, got.reasoning))
    misses += calls(wanted.calls, got.calls, wrapped=client == "messages")
    if not wanted.stops & got.stops:
        misses.append(Miss("stop", sorted(wanted.stops), sorted(got.stops)))
    if client != "messages" and wanted.refusal != got.refusal:
        misses.append(Miss("refusal", wanted.refusal, got.refusal))
    if wanted.usage:
        for name, value in wanted.usage.items():
            if value != (got.usage or {}).get(name, 0):
                misses.append(Miss(f"usage {name}", value, (got.usage or {}).get(name)))
    if wanted.links != got.links:
        misses.append(Miss("citations", wanted.links, got.links))
    if client != "messages" and wanted.tokens != got.tokens:
        misses.append(Miss("logprobs", wanted.tokens, got.tokens))
    if client != "messages" and wanted.images != got.images:
        misses.append(Miss("images", wanted.images, got.images))
    return misses


def calls(wanted: list[Call], got: list[Call], *, wrapped: bool = False) -> list[Miss]:
    """`wrapped`: free text is the single argument `input` if the format has no free-form tools."""
    misses = []
    if [c.name for c in wanted] != [c.name for c in got]:
        return [Miss("calls", [c.name for c in wanted], [c.name for c in got])]
    seen = set()
    for w, g in zip(wanted, got, strict=True):
        if w.id and w.id != g.id and re.sub(r"[.:|/ ]", "_", w.id) != g.id:
            misses.append(Miss("call id", w.id, g.id))
        if not g.id or g.id in seen:
            misses.append(Miss("call id", "one of its own", g.id))
        seen.add(g.id)
        if normal(w.args) != normal(g.args) and not (
            wrapped and isinstance(w.args, str) and g.args == {"input": w.args}
        ):
            misses.append(Miss("arguments", w.args, g.args))
    return misses


def normal(args: Any) -> str:
    return args if isinstance(args, str) else json.dumps(args, sort_keys=True)


# ---- requests -------------------------------------------------------------------------------------------------------
LOSABLE = {
    "gemini": {"user", "verbosity", "parallel", "caches"},
    "messages": {"seed", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "verbosity"},
    "responses": {"seed", "presence_penalty", "frequency_penalty", "stop", "top_k"},
    "chat": set(),
}
"""Settings that a target lacks; they must be named as lost."""


def requests(wanted: RequestFacts, got: RequestFacts, target: str, lost: list[str]) -> list[Miss]:
    """Differences of a request at an upstream; a missing member must be named in `lost`."""
    named = " ".join(lost)
    misses = []

    def differ(member: str, w: Any, g: Any) -> None:
        misses.append(Miss(member, w, g))

    for member in ("system", "user", "assistant"):
        w, g = (unnamed("".join(getattr(x, member)), wanted.names) for x in (wanted, got))
        if w != g and not (member == "user" and sorted(w) == sorted(g)):
            differ(member, w, g)
    misses += [
        m
        for m in calls(wanted.calls, got.calls, wrapped=target != "responses")
        if m.member != "call id" or target != "gemini"
    ]
    if [unnamed(r[1], wanted.names) for r in wanted.results] != [unnamed(r[1], wanted.names) for r in got.results]:
        differ("results", wanted.results, got.results)
    known = {c.id for c in wanted.calls}
    if {i for i, _ in wanted.results} <= known and not {i for i, _ in got.results} <= {c.id for c in got.calls}:
        differ("result ids", sorted(known), [i for i, _ in got.results])
    if len({i for i, _ in wanted.results}) != len({i for i, _ in got.results}):
        differ("result ids", wanted.results, got.results)
    arrived = sorted(got.media + got.shown)
    if arrived != sorted(wanted.media + wanted.shown) and (
        arrived != sorted(wanted.media) or "image of an earlier answer" not in named
    ):
        differ("media", wanted.media + wanted.shown, arrived)
    if wanted.failed and not got.failed and "error" not in named:
        differ("error flag", wanted.failed, got.failed)
    if wanted.reasoning and not got.reasoning and "reasoning" not in named:
        differ("reasoning", wanted.reasoning, "neither carried nor named")
    if (wanted.opaque or wanted.hosted) and not lost and not got.hosted:
        differ("hosted", wanted.opaque + wanted.hosted, "not named")
    misses += tools(wanted, got, target)
    for member in ("parallel", "format", "effort"):
        misses += single(member, wanted, got, target, named)
    for name, value in wanted.settings.items():
        other = got.settings.get(name)
        if value == other or name == "stream":
            continue
        if name in named or name in LOSABLE[target] and name in named:
            continue
        if name == "temperature" and target == "messages" and (other == 1 or "thinking" in str(got.effort)):
            continue
        if name == "max_tokens" and target == "responses" and other == 16:
            continue
        if name in ("temperature", "top_p", "top_k") and target == "messages" and got.effort:
            continue  # sampling options are not allowed while thinking
        if name == "logprobs" and value is True and got.settings.get("top_logprobs"):
            continue
        if name in ("top_logprobs", "presence_penalty", "frequency_penalty") and value == 0:
            continue  # equals the default
        differ(name, value, other)
    if target == "messages" and wanted.caches > got.caches:
        differ("caches", wanted.caches, got.caches)
    return misses


def tools(wanted: RequestFacts, got: RequestFacts, target: str) -> list[Miss]:
    misses = []
    allowed = wanted.choice[2] if isinstance(wanted.choice, tuple) and wanted.choice[0] == "names" else None
    names = [n for n in wanted.tools if allowed is None or target not in ("messages", "gemini") or n in allowed]
    if not set(names) <= set(got.tools) or len(got.tools) > len(wanted.tools):
        misses.append(Miss("tools", names, sorted(got.tools)))
        return misses
    for name in names:
        w, g = wanted.tools[name], got.tools[name]
        if w[0] != g[0]:
            misses.append(Miss(f"description of {name}", w[0], g[0]))
        if w[1] != "custom" and schema_differs(w[1], g[1]):
            misses.append(Miss(f"schema of {name}", w[1], g[1]))
    w, g = wanted.choice, got.choice
    if allowed is not None and target in ("messages", "gemini"):
        w = "any" if w[1] == "required" else "auto"
        g = "any" if isinstance(g, tuple) else g
    if w == g or w == "auto" and g is None or w is None and g == "auto" or isinstance(w, tuple) and w[0] == "hosted":
        return misses
    if not wanted.tools and g is None:
        return misses
    if isinstance(w, tuple) and w[0] == "one" and g == ("names", "required", [w[1]]):
        return misses
    misses.append(Miss("choice", w, g))
    return misses


def schema_differs(w: str, g: str) -> bool:
    """A target may add the empty object that a schema implies, nothing else."""
    if w == g:
        return False
    a, b = json.loads(w or "{}"), json.loads(g or "{}")
    return {"type": "object", "properties": {}, **a} != {"type": "object", "properties": {}, **b}


LIMITS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "prefixItems",
    "format",
)
"""Constraints of recorded schemas that Claude's structured outputs do not support (its documentation: anything else is
a 400)."""


def narrowed(w: Any, g: Any) -> bool:
    """Whether `g` is the schema `w` with closed objects, and with limits moved into descriptions."""
    if not isinstance(w, dict) or not isinstance(g, dict):
        return w == g or isinstance(w, list) and isinstance(g, list) and len(w) == len(g) and all(map(narrowed, w, g))
    if isinstance(w.get("description"), dict):  # fields by name, one of them named `description`
        return set(w) == set(g) and all(narrowed(w[key], g[key]) for key in w)
    words = g.get("description", "")
    moved = {
        key
        for key in set(w) - set(g)
        if key in LIMITS and f"{key}: {json.dumps(w[key], separators=(',', ':'))}" in words
    }
    described = words.startswith(w.get("description", "")) if moved else words == w.get("description", "")
    closed = w.get("additionalProperties", True) is True and g.get("additionalProperties") is False
    beside = {"description", *moved, *(["additionalProperties"] if closed else [])}
    return described and set(w) - beside == set(g) - beside and all(narrowed(w[key], g[key]) for key in set(w) - beside)


def single(member: str, wanted: RequestFacts, got: RequestFacts, target: str, named: str) -> list[Miss]:
    w, g = getattr(wanted, member), getattr(got, member)
    if w is None or w == g:
        return []
    if member == "parallel":
        if w is True or not wanted.tools or "parallel" in named:
            return []
    elif member == "format":
        if (
            w == "json"
            and "json_object" in named
            or (
                w != "json"
                and g not in (None, "json")
                and (json.loads(w) == json.loads(g) or target == "messages" and narrowed(json.loads(w), json.loads(g)))
            )
        ):
            return []
    else:
        classes = {"minimal": "low", "xhigh": "high", "max": "high"}
        if classes.get(w, w) == classes.get(g or "", g) or w == "none" or "thinking" in named or "effort" in named:
            return []
        if target == "messages" and g:
            return []  # the token limit only leaves room for a smaller budget
    return [Miss(member, w, g)]
