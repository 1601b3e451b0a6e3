"""Reads Cohere v2 chat: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import json
import re
from typing import Any

from replay.facts import Answer, Call, RequestFacts, fingerprint, parsed, schema_text

STOPS = {
    "COMPLETE": {"end"},
    "STOP_SEQUENCE": {"sequence"},
    "MAX_TOKENS": {"length"},
    "TOOL_CALL": {"tool"},
    "ERROR": {"error"},
    "TIMEOUT": {"error"},
}


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    billed = (u or {}).get("billed_units") or {}
    return {"input": billed["input_tokens"], "output": billed["output_tokens"]} if billed else None


def answer(body: dict[str, Any]) -> Answer:
    m = body["message"]
    a = Answer(usage=usage_of(body.get("usage")), stops=frozenset(STOPS.get(body.get("finish_reason") or "", {"none"})))
    a.reasoning = m.get("tool_plan") or ""
    for p in m.get("content") or []:
        a.reasoning += p.get("thinking") or ""
        a.text += p.get("text") or ""
    a.calls = [
        Call(c["id"], c["function"]["name"], parsed(c["function"]["arguments"])) for c in m.get("tool_calls") or []
    ]
    a.links = [
        s["document"]["url"]
        for c in m.get("citations") or []
        for s in c["sources"]
        if (s.get("document") or {}).get("url")
    ]
    return a


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    message: dict[str, Any] = {"tool_plan": "", "content": [], "tool_calls": []}
    end: dict[str, Any] = {}
    for _, e in events:
        if not isinstance(e, dict):
            continue
        kind, delta = e["type"], (e.get("delta") or {}).get("message") or {}
        if kind == "tool-plan-delta":
            message["tool_plan"] += delta["tool_plan"]
        elif kind in ("content-start", "content-delta"):
            message["content"].append(delta["content"])
        elif kind == "tool-call-start":
            message["tool_calls"].append({**delta["tool_calls"], "function": dict(delta["tool_calls"]["function"])})
        elif kind == "tool-call-delta":
            message["tool_calls"][-1]["function"]["arguments"] += delta["tool_calls"]["function"]["arguments"]
        elif kind == "message-end":
            end = e["delta"]
    a = answer({"message": message, "finish_reason": end.get("finish_reason"), "usage": end.get("usage")})
    a.error = end.get("error")
    return a


def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    for m in body["messages"]:
        role = m["role"]
        if role != "system":
            a.turns.append(role)
        if m.get("tool_plan"):
            a.reasoning.append(m["tool_plan"])
        a.calls += [
            Call(c["id"], c["function"]["name"], parsed(c["function"]["arguments"])) for c in m.get("tool_calls") or []
        ]
        content = m.get("content")
        texts = []
        for p in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            if p["type"] == "text":
                texts += [p["text"]] if p["text"] else []
            elif p["type"] == "thinking":
                a.reasoning.append(p["thinking"])
            else:
                a.media.append(fingerprint(p["image_url"]["url"]))
        if role == "tool":
            a.results.append((m["tool_call_id"], "".join(texts)))
        else:
            {"system": a.system, "assistant": a.assistant}.get(role, a.user).extend(texts)
    for t in body.get("tools") or []:
        f = t["function"]
        a.tools[f["name"]] = (f.get("description") or "", schema_text(f["parameters"]))
    a.choice = {"REQUIRED": "any", "NONE": "none"}.get(body.get("tool_choice") or "")
    form = body.get("response_format") or {}
    a.format = schema_text(form["json_schema"]) if form.get("json_schema") else "json" if form else None
    if a.system and (
        said := re.search(r"(?:^|\n\n)(Answer with JSON only.*)", a.system[0], re.DOTALL)
    ):  # where it is a 400
        a.system[0] = a.system[0][: said.start()]
        a.format = schema_text(json.loads(said[1].partition("\n")[2])) if "\n" in said[1] else "json"
    a.effort = {"enabled": "medium", "disabled": "none"}.get((body.get("thinking") or {}).get("type") or "")
    a.settings = {
        ours: body[theirs]
        for ours, theirs in (
            ("max_tokens", "max_tokens"),
            ("temperature", "temperature"),
            ("top_p", "p"),
            ("top_k", "k"),
            ("stop", "stop_sequences"),
            ("seed", "seed"),
            ("stream", "stream"),
        )
        if theirs in body
    }
    return a
