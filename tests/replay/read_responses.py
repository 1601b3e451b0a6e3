"""Reads responses: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import json
from typing import Any

from replay.facts import Answer, Call, RequestFacts, fingerprint, format_text, parsed, plain_file, schema_text


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    if not u:
        return None
    inp, out = u.get("input_tokens_details") or {}, u.get("output_tokens_details") or {}
    return {
        "input": u["input_tokens"],
        "output": u["output_tokens"],
        "cache_read": inp.get("cached_tokens") or 0,
        "cache_write": inp.get("cache_write_tokens") or inp.get("cache_creation_input_tokens") or 0,
        "reasoning": out.get("reasoning_tokens") or 0,
    }


def answer(body: dict[str, Any]) -> Answer:
    a = Answer(usage=usage_of(body.get("usage")))
    for item in body.get("output") or []:
        kind = item["type"]
        if kind == "message":
            for c in item["content"] or []:
                if c["type"] == "output_text":
                    a.text += c["text"]
                    a.links += [n["url"] for n in c.get("annotations") or [] if n["type"] == "url_citation"]
                    a.tokens += [t["token"] for t in c.get("logprobs") or []]
                elif c["type"] == "refusal":
                    a.refusal += c["refusal"]
        elif kind == "function_call":
            a.calls.append(Call(item["call_id"], item["name"], parsed(item["arguments"])))
        elif kind == "custom_tool_call":
            a.calls.append(Call(item["call_id"], item["name"], item["input"]))
        elif kind == "reasoning":
            a.reasoning += "".join(s["text"] for s in item.get("summary") or []) or "".join(
                s["text"] for s in item.get("content") or []
            )
        elif kind == "image_generation_call" and item.get("result"):
            a.images.append(fingerprint(item["result"]))
    status = body.get("status")
    reason = (body.get("incomplete_details") or {}).get("reason")
    if status == "incomplete":
        a.stops = frozenset({"filter", "refusal"}) if reason == "content_filter" else frozenset({"length"})
    elif status in ("failed", "cancelled"):
        a.stops = frozenset({"error"})
        a.error = (body.get("error") or {}).get("message")
    elif a.calls:
        a.stops = frozenset({"tool"})
    else:
        a.stops = frozenset({"end", "refusal"}) if a.refusal else frozenset({"end", "sequence", "pause"})
    return a


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    """The terminal event contains the whole answer, or the events of its items do; without one it is assembled from the
    deltas."""
    items: dict[int, Any] = {}
    grown = Answer(stops=frozenset({"none"}))
    error = None
    final = None
    for _, e in events:
        if not isinstance(e, dict):
            continue
        kind = e.get("type")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            final = e["response"]
        elif kind == "response.output_item.done":
            items[e["output_index"]] = e["item"]
        elif kind == "response.output_text.delta":
            grown.text += e["delta"]
            grown.tokens += [t["token"] for t in e.get("logprobs") or []]
        elif kind == "error":
            error = e.get("message") or (e.get("error") or {}).get("message")
    if final is None:
        grown.error = error
        return grown
    a = answer({**final, "output": final.get("output") or list(items.values())})
    a.error = a.error or error
    a.tokens = a.tokens or grown.tokens
    return a


# ---- requests -------------------------------------------------------------------------------------------------------
def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    if body.get("instructions"):
        a.system.append(body["instructions"])
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    known = {t.get("name") for t in body.get("tools") or []}
    inner = [t["name"] for space in body.get("tools") or [] if space.get("type") == "namespace" for t in space["tools"]]
    shared = {name for name in inner if inner.count(name) > 1 or name in known}
    fmt = (body.get("text") or {}).get("format") or {}
    a.effort = (body.get("reasoning") or {}).get("effort")
    for i in items or []:
        kind, role = i.get("type") or "message", i.get("role")
        if kind == "message":
            found = texts(a, i.get("content"))
            if role in ("system", "developer"):
                a.system += found
            elif role == "assistant":
                a.turns.append("assistant")
                a.assistant += found
            else:
                a.turns.append("user")
                a.user += found
        elif kind == "function_call":
            a.turns.append("assistant")
            a.calls.append(Call(i["call_id"], named(shared, i.get("namespace"), i["name"]), parsed(i["arguments"])))
        elif kind == "custom_tool_call":
            a.turns.append("assistant")
            a.calls.append(Call(i["call_id"], i["name"], i["input"]))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            a.turns.append("user")
            a.results.append((i["call_id"], "".join(texts(a, i["output"]))))
        elif kind == "tool_search_call" and i.get("execution") == "client":
            a.turns.append("assistant")
            a.calls.append(Call(i["call_id"], "tool_search", i["arguments"]))
        elif kind == "reasoning":
            thought = "".join(s["text"] for s in (i.get("summary") or i.get("content") or []))
            if thought:
                a.reasoning.append(thought)
        elif kind == "image_generation_call" and i.get("result"):
            a.turns.append("assistant")
            a.shown.append(fingerprint(i["result"]))
        elif kind in ("additional_tools", "tool_search_output"):
            for t in i["tools"]:
                if t.get("name") not in known:
                    tool(a, t, shared)
            if i.get("execution") == "client":
                a.turns.append("user")
                names = ", ".join(t["name"] for t in i["tools"])
                a.results.append((i["call_id"], f"These tools can be called now: {names}"))
        elif kind == "configuration_update":
            a.effort = (i.get("reasoning") or {}).get("effort") or a.effort
            fmt = (i.get("text") or {}).get("format") or fmt
        else:
            a.opaque.append(kind)
    for t in body.get("tools") or []:
        tool(a, t, shared)
    a.choice = choice_of(body.get("tool_choice"))
    a.parallel = body.get("parallel_tool_calls")
    a.format = {"json_object": "json", "json_schema": format_text(fmt.get("schema"), fmt.get("description"))}.get(
        fmt.get("type")
    )
    a.settings = {
        k: v
        for k, v in {
            "max_tokens": body.get("max_output_tokens"),
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "user": body.get("user"),
            "top_logprobs": body.get("top_logprobs"),
            "logprobs": True if "message.output_text.logprobs" in (body.get("include") or []) else None,
            "stream": body.get("stream") or None,
            "verbosity": (body.get("text") or {}).get("verbosity"),
        }.items()
        if v is not None
    }
    a.caches = json.dumps(body).count('"prompt_cache_breakpoint"')
    return a


def named(shared: set[str], space: str | None, name: str) -> str:
    """The name that tells a tool from those of the same name in other namespaces."""
    return f"{space}__{name}" if space and name in shared else name


def tool(a: RequestFacts, t: dict[str, Any], shared: set[str], space: str | None = None) -> None:
    kind = t.get("type")
    if kind == "function":
        a.tools[named(shared, space, t["name"])] = (t.get("description") or "", schema_text(t.get("parameters")))
    elif kind == "custom":
        a.tools[named(shared, space, t["name"])] = (t.get("description") or "", "custom")
    elif kind == "namespace":
        for inner in t["tools"]:
            tool(a, inner, shared, t["name"])
    elif kind == "tool_search" and t.get("execution") == "client":
        a.tools[kind] = (t["description"], schema_text(t["parameters"]))
    else:
        a.hosted.append(kind)


def texts(a: RequestFacts, content: Any) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    found = []
    for p in content or []:
        kind = p.get("type")
        if kind in ("input_text", "output_text", "text"):
            found += [p["text"]] if p["text"] else []
        elif kind == "refusal":
            found.append(p["refusal"])
        elif kind == "input_image":
            a.media.append(fingerprint(p.get("image_url") or p.get("file_id")))
        elif kind == "input_file" and plain_file(p.get("file_data")) is not None:
            found.append(plain_file(p["file_data"]) or "")
            a.names.append(p.get("filename") or "")
        elif kind == "input_file":
            a.media.append(fingerprint(p.get("file_data") or p.get("file_url") or p.get("file_id")))
        else:
            a.opaque.append(kind)
    return found


def choice_of(choice: Any) -> Any:
    if choice in (None, "auto", "none"):
        return choice
    if choice == "required":
        return "any"
    if choice["type"] == "allowed_tools":
        return ("names", choice["mode"], sorted(t["name"] for t in choice["tools"]))
    if choice["type"] in ("function", "custom"):
        return ("one", choice["name"])
    return ("hosted", choice["type"])
