"""Reads Ollama's own chat: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

from typing import Any

from replay.facts import Answer, Call, RequestFacts, fingerprint, schema_text


def answer(body: dict[str, Any]) -> Answer:
    m = body.get("message") or {}
    calls = [
        Call(c.get("id") or "", c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or []
    ]
    stop = (
        "length" if body.get("done_reason") == "length" else "tool" if calls else "end" if body.get("done") else "none"
    )
    usage = None
    if "eval_count" in body:
        usage = {"input": body.get("prompt_eval_count") or 0, "output": body["eval_count"]}
        if "prompt_eval_cached_count" in body:
            usage["cache_read"] = body["prompt_eval_cached_count"]
    return Answer(
        text=m.get("content") or "",
        reasoning=m.get("thinking") or "",
        calls=calls,
        stops=frozenset({stop}),
        usage=usage,
    )


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    message: dict[str, Any] = {"content": "", "thinking": "", "tool_calls": []}
    last: dict[str, Any] = {}
    error = None
    for _, e in events:
        error = error or e.get("error")
        for name in ("content", "thinking"):
            message[name] += (e.get("message") or {}).get(name) or ""
        message["tool_calls"] += (e.get("message") or {}).get("tool_calls") or []
        last = e
    a = answer({**last, "message": message})
    a.error = error
    return a


def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    for m in body["messages"]:
        role = m["role"]
        if role != "system":
            a.turns.append(role)
        a.media += [fingerprint(i) for i in m.get("images") or []]
        a.reasoning += [m["thinking"]] if m.get("thinking") else []
        a.calls += [
            Call(c.get("id") or "", c["function"]["name"], c["function"]["arguments"])
            for c in m.get("tool_calls") or []
        ]
        if role == "tool":
            a.results.append((m.get("tool_call_id") or m["tool_name"], m["content"]))
        elif m["content"]:
            {"system": a.system, "assistant": a.assistant}.get(role, a.user).append(m["content"])
    for t in body.get("tools") or []:
        f = t["function"]
        a.tools[f["name"]] = (f.get("description") or "", schema_text(f["parameters"]))
    form = body.get("format")
    a.format = schema_text(form) if isinstance(form, dict) else form
    think = body.get("think")
    a.effort = "none" if think is False else "medium" if think is True else think
    o = body.get("options") or {}
    a.settings = {
        ours: o[theirs]
        for ours, theirs in (
            ("max_tokens", "num_predict"),
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("top_k", "top_k"),
            ("stop", "stop"),
            ("seed", "seed"),
        )
        if theirs in o
    }
    return a
