"""Reads messages: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import json
from typing import Any

from replay.facts import Answer, Call, RequestFacts, effort_of, fingerprint, parsed, schema_text

STOPS = {
    "end_turn": {"end", "error"},
    "stop_sequence": {"sequence"},
    "max_tokens": {"length"},
    "model_context_window_exceeded": {"length"},
    "tool_use": {"tool"},
    "refusal": {"filter", "refusal"},
    "pause_turn": {"pause"},
}


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    if not u:
        return None
    if steps := u.get("iterations"):  # each pass is billed; the counters beside them omit some
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        u = {**u, **{name: sum(step.get(name) or 0 for step in steps) for name in names}}
    read, write = u.get("cache_read_input_tokens") or 0, u.get("cache_creation_input_tokens") or 0
    return {
        "input": (u.get("input_tokens") or 0) + read + write,
        "output": u.get("output_tokens") or 0,
        "cache_read": read,
        "cache_write": write,
        "reasoning": (u.get("output_tokens_details") or {}).get("thinking_tokens") or 0,
    }


def answer(body: dict[str, Any]) -> Answer:
    reason = "refusal" if body.get("amazon-bedrock-guardrailAction") == "INTERVENED" else body.get("stop_reason")
    a = Answer(usage=usage_of(body.get("usage")), stops=frozenset(STOPS.get(reason or "", {"none"})))
    if body.get("stop_reason") == "refusal":
        a.refusal = (body.get("stop_details") or {}).get("explanation") or ""
    for b in body.get("content") or []:
        kind = b["type"]
        if kind == "text":
            a.text += b["text"]
            a.links += [c["url"] for c in b.get("citations") or [] if c["type"] == "web_search_result_location"]
        elif kind == "thinking":
            a.reasoning += b["thinking"]
        elif kind == "tool_use":
            a.calls.append(Call(b["id"], b["name"], b["input"]))
        elif kind == "compaction":
            a.reasoning += b.get("content") or ""
    return a


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    initial: list[dict[str, Any]] = []  # whole blocks in the start event
    guard: dict[str, Any] = {}
    stop, details, error, started = None, None, None, False
    for _, e in events:
        if not isinstance(e, dict):
            continue
        kind = e.get("type")
        if kind == "message_start":
            started = True
            usage.update({k: v for k, v in e["message"]["usage"].items() if v is not None})
            initial = [b for b in e["message"].get("content") or [] if isinstance(b, dict)]
            stop = e["message"].get("stop_reason")
        elif kind == "content_block_start":
            blocks[e["index"]] = {**e["content_block"], "json": ""}
        elif kind == "content_block_delta":
            b, d = blocks[e["index"]], e["delta"]
            if d["type"] == "text_delta":
                b["text"] += d["text"]
            elif d["type"] == "thinking_delta":
                b["thinking"] += d["thinking"]
            elif d["type"] == "input_json_delta":
                b["json"] += d["partial_json"]
            elif d["type"] == "compaction_delta":
                b["content"] = d["content"]
            elif d["type"] == "citations_delta":
                b["citations"] = [*(b.get("citations") or []), d["citation"]]
        elif kind == "message_delta":
            stop = e["delta"].get("stop_reason") or stop
            details = e["delta"].get("stop_details") or details
            usage.update({k: v for k, v in (e.get("usage") or {}).items() if v is not None})
        elif kind == "message_stop":
            guard = {k: v for k, v in e.items() if k != "type"}
        elif kind == "error":
            error = e["error"]["message"]
    content = [b for b in initial if b["type"] != "compaction"]
    for b in blocks.values():
        if b["type"] == "tool_use":
            b["input"] = parsed(b["json"]) if b["json"] else b.get("input") or {}
        content.append(b)
    told = usage if started else None
    a = answer({"content": content, "stop_reason": stop, "stop_details": details, "usage": told, **guard})
    a.error = error
    return a


# ---- requests -------------------------------------------------------------------------------------------------------
def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    a.system += texts(a, body.get("system"))
    for m in body.get("messages") or []:
        role = m["role"]
        if role != "system":
            a.turns.append(role)
        for b in m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]:
            block(a, role, b)
    for t in body.get("tools") or []:
        if t.get("type") in (None, "custom"):
            a.tools[t["name"]] = (t.get("description") or "", schema_text(t.get("input_schema")))
        else:
            a.hosted.append(t["type"])
    c = body.get("tool_choice") or {}
    a.choice = ("one", c["name"]) if c.get("type") == "tool" else c.get("type")
    a.parallel = False if c.get("disable_parallel_tool_use") else None
    fmt = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    a.format = schema_text(fmt.get("schema")) if fmt.get("type") == "json_schema" else None
    thinking = body.get("thinking") or {}
    a.effort = (body.get("output_config") or {}).get("effort") or effort_of(thinking.get("budget_tokens"))
    if thinking.get("type") == "disabled" and not a.effort:
        a.effort = "none"
    a.settings = {
        k: v
        for k, v in {
            "max_tokens": body.get("max_tokens"),
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "top_k": body.get("top_k"),
            "stop": body.get("stop_sequences"),
            "user": (body.get("metadata") or {}).get("user_id"),
            "stream": body.get("stream") or None,
        }.items()
        if v is not None
    }
    a.caches = json.dumps({k: v for k, v in body.items() if k != "cache_control"}).count('"cache_control": {')
    return a


def block(a: RequestFacts, role: str, b: dict[str, Any]) -> None:
    kind = b["type"]
    if kind in ("text", "compaction"):
        text = b.get("text") or b.get("content") or ""
        if text:
            {"system": a.system, "assistant": a.assistant}.get(role, a.user).append(text)
    elif kind in ("image", "document"):
        media(a, b, a.user)
    elif kind == "search_result":
        a.user.append("".join(c["text"] for c in b["content"]))
        a.names.append(b["title"])
    elif kind == "thinking":
        if b["thinking"]:
            a.reasoning.append(b["thinking"])
    elif kind == "tool_use":
        a.calls.append(Call(b["id"], b["name"], b["input"]))
    elif kind == "tool_result":
        found: list[str] = texts(a, b.get("content"))
        a.results.append((b["tool_use_id"], "".join(found)))
        if b.get("is_error"):
            a.failed.append(b["tool_use_id"])
    elif kind != "redacted_thinking":
        a.opaque.append(kind)


def media(a: RequestFacts, b: dict[str, Any], into: list[str]) -> None:
    source = b["source"]
    if source["type"] == "text":
        into.append(source["data"])
        a.names.append(b.get("title") or "")
    elif source["type"] == "content":
        into += texts(a, source["content"])
        a.names.append(b.get("title") or "")
    else:
        a.media.append(fingerprint(source.get("data") or source.get("url") or source.get("file_id")))


def texts(a: RequestFacts, content: Any) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    found: list[str] = []
    for b in content or []:
        if b["type"] == "text":
            found += [b["text"]] if b["text"] else []
        elif b["type"] in ("image", "document"):
            media(a, b, found)
        elif b["type"] == "tool_reference":
            found.append(b["tool_name"])
        elif b["type"] == "search_result":
            found.append("".join(c["text"] for c in b["content"]))
            a.names.append(b["title"])
        else:
            a.opaque.append(b["type"])
    return found
