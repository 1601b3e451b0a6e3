"""Reads chat completions: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import json
from typing import Any

from replay.facts import Answer, Call, RequestFacts, fingerprint, format_text, parsed, plain_file, schema_text


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    if not u or u.get("prompt_tokens") is None and u.get("completion_tokens") is None:
        return None
    inp, out = u.get("prompt_tokens_details") or {}, u.get("completion_tokens_details") or {}
    old = u.get("prompt_token_details") or {}
    spellings = [
        inp.get("cached_tokens"),
        old.get("cached_tokens"),
        u.get("prompt_cache_hit_tokens"),
        u.get("cache_read_input_tokens"),
        u.get("cached_tokens"),
        u.get("num_cached_tokens"),
    ]
    return {
        "input": u.get("prompt_tokens") or 0,
        "output": u.get("completion_tokens") or 0,
        "cache_read": next((x for x in spellings if x is not None), 0),
        "cache_write": inp.get("cache_write_tokens") or u.get("cache_creation_input_tokens") or 0,
        "reasoning": out.get("reasoning_tokens")
        or (u.get("completion_token_details") or {}).get("reasoning_tokens")
        or u.get("reasoning_tokens")
        or 0,
    }


def content_texts(content: Any) -> tuple[str, str]:
    """(visible text, reasoning text) of a message content in any of its shapes."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, dict):
        return json.dumps(content, separators=(",", ":")), ""
    text, thought = "", ""
    for part in content:
        if part.get("type") == "thinking":
            thought += "".join(t.get("text") or "" for t in part.get("thinking") or [])
        else:
            text += part.get("text") or ""
    return text, thought


def reasoning_of(message: dict[str, Any]) -> str:
    details = "".join(d.get("text") or d.get("summary") or "" for d in message.get("reasoning_details") or [])
    return details or message.get("reasoning_content") or message.get("reasoning") or ""


def calls_of(message: dict[str, Any]) -> list[Call]:
    calls = []
    for c in message.get("tool_calls") or []:
        if c.get("type") == "custom":
            calls.append(Call(c.get("id") or "", c["custom"]["name"], c["custom"]["input"]))
        else:
            f = c.get("function") or {}
            calls.append(Call(c.get("id") or "", f.get("name") or "", parsed(f.get("arguments"))))
    old = message.get("function_call")
    if old and old.get("name"):
        calls.append(Call("", old["name"], parsed(old.get("arguments"))))
    return calls


def stops_of(reason: str | None, calls: list[Call], refusal: str) -> frozenset[str]:
    if reason in ("length", "max_tokens"):
        return frozenset({"length"})
    if reason == "content_filter":
        return frozenset({"filter", "refusal"})
    if calls:
        return frozenset({"tool"})
    return frozenset({"refusal", "end"}) if refusal else frozenset({"end", "sequence", "pause"})


def answer(body: dict[str, Any]) -> Answer:
    choice = body["choices"][0]
    m = choice.get("message") or {}
    text, thought = content_texts(m.get("content"))
    calls = calls_of(m)
    finish = choice.get("finish_reason") or (choice.get("finish_details") or {}).get("type")
    audio = m.get("audio") or {}
    links = [a["url_citation"]["url"] for a in m.get("annotations") or [] if a.get("type") == "url_citation"]
    return Answer(
        text=text,
        reasoning=reasoning_of(m) + thought,
        refusal=m.get("refusal") or "",
        transcript=audio.get("transcript") or "",
        calls=calls,
        stops=stops_of(finish, calls, m.get("refusal") or ""),
        usage=usage_of(body.get("usage") or (body.get("x_groq") or {}).get("usage")),
        links=links or list(body.get("citations") or []),
        tokens=[t["token"] for t in ((choice.get("logprobs") or {}).get("content") or [])],
        images=[fingerprint(i["image_url"]["url"]) for i in m.get("images") or []],
        audio=[fingerprint(audio["data"])] if audio.get("data") else [],
    )


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    a = Answer()
    slots: list[dict[str, Any]] = []
    finish = None
    audio = ""
    for _, chunk in events:
        if not isinstance(chunk, dict):
            if chunk == "[DONE]" and finish is None and not a.error:
                finish = "stop"  # some upstreams only send the end mark, without a reason
            continue
        if chunk.get("error"):
            error = chunk["error"]
            a.error = error if isinstance(error, str) else error.get("message")
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        a.usage = usage_of(usage) or a.usage
        for choice in chunk.get("choices") or []:
            if choice.get("index") not in (0, None):
                continue
            finish = choice.get("finish_reason") or finish
            if choice.get("finish_reason") and chunk.get("citations"):
                a.links = a.links or list(chunk["citations"])
            d = choice.get("delta") or {}
            text, thought = content_texts(d.get("content"))
            a.text += text
            a.reasoning += reasoning_of(d) + thought
            a.refusal += d.get("refusal") or ""
            if d.get("audio"):
                a.transcript += d["audio"].get("transcript") or ""
                audio += d["audio"].get("data") or ""
            a.links += [n["url_citation"]["url"] for n in d.get("annotations") or [] if n.get("type") == "url_citation"]
            a.images += [fingerprint(i["image_url"]["url"]) for i in d.get("images") or []]
            a.tokens += [t["token"] for t in ((choice.get("logprobs") or {}).get("content") or [])]
            calls = d.get("tool_calls") or []
            for i, c in enumerate(calls):
                distinct = c.get("id") or not (c.get("function") or {}).get("name")
                grow(slots, {**c, "index": i} if len(calls) > 1 and c.get("index") is None and distinct else c)
            if d.get("function_call"):
                f = d["function_call"]
                grow(slots, {"index": "legacy", "function": f})
    a.calls = [Call(s["id"], s["name"], parsed(s["args"])) for s in slots]
    a.stops = stops_of(finish, a.calls, a.refusal) if finish is not None else frozenset({"none"})
    a.audio = [fingerprint(audio)] if audio else []
    return a


def grow(slots: list[dict[str, Any]], c: dict[str, Any]) -> None:
    """Finds the call of a fragment: by index and id, as real streams require (FACTS 6)."""
    key, call_id = c.get("index"), c.get("id") or ""
    slot = None
    for s in slots:
        if (key is not None and s["key"] == key and (not call_id or s["id"] in ("", call_id))) or (
            key is None and call_id and s["id"] == call_id
        ):
            slot = s
    if slot is None and key is None and not call_id and slots:
        slot = slots[-1]
    if slot is None:
        slot = {"key": key, "id": call_id, "name": "", "args": ""}
        slots.append(slot)
    f = c.get("function") or c.get("custom") or {}
    slot["id"] = slot["id"] or call_id
    slot["name"] = slot["name"] or f.get("name") or ""
    args = f.get("arguments") if "arguments" in f else f.get("input")
    slot["args"] += args if isinstance(args, str) else json.dumps(args) if args else ""


# ---- requests -------------------------------------------------------------------------------------------------------
def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    pending = ""
    for n, m in enumerate(body.get("messages") or []):
        role = m.get("role")
        if role in ("system", "developer"):
            a.system += texts(a, m.get("content"))
        elif role == "user":
            a.turns.append("user")
            a.user += texts(a, m.get("content"))
        elif role == "assistant":
            a.turns.append("assistant")
            a.assistant += texts(a, m.get("content"))
            a.shown += [fingerprint(i["image_url"]["url"]) for i in m.get("images") or []]
            if m.get("refusal"):
                a.assistant.append(m["refusal"])
            if not m.get("content") and (m.get("audio") or {}).get("transcript"):
                a.assistant.append(m["audio"]["transcript"])
            thought = reasoning_of(m)
            if thought:
                a.reasoning.append(thought)
            calls = calls_of(m)
            if m.get("function_call"):
                pending = f"legacy{n}"
            a.calls += [Call(c.id or pending, c.name, c.args) for c in calls]
        elif role in ("tool", "function"):
            a.turns.append("user")
            a.results.append((m.get("tool_call_id") or pending, "".join(texts(a, m.get("content")))))
    for t in body.get("tools") or []:
        if t.get("type") in ("function", None):
            f = t["function"]
            a.tools[f["name"]] = (f.get("description") or "", schema_text(f.get("parameters")))
        elif t.get("type") == "custom":
            a.tools[t["custom"]["name"]] = (t["custom"].get("description") or "", "custom")
        else:
            a.hosted.append(t["type"])
    for f in body.get("functions") or []:
        a.tools[f["name"]] = (f.get("description") or "", schema_text(f.get("parameters")))
    a.choice = choice_of(body.get("tool_choice") or body.get("function_call"))
    a.parallel = body.get("parallel_tool_calls")
    rf = body.get("response_format") or {}
    js = rf.get("json_schema") or {}
    a.format = {"json_object": "json", "json_schema": format_text(js.get("schema"), js.get("description"))}.get(
        rf.get("type")
    )
    effort = body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")
    a.effort = None if effort == "default" else effort
    if a.effort is None and (
        (body.get("reasoning") or {}).get("enabled") or (body.get("thinking") or {}).get("type") == "enabled"
    ):
        a.effort = "medium"
    stop = body.get("stop")
    a.settings = {
        k: v
        for k, v in {
            "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "top_k": body.get("top_k"),
            "stop": [stop] if isinstance(stop, str) else stop or None,
            "seed": body.get("seed"),
            "presence_penalty": body.get("presence_penalty"),
            "frequency_penalty": body.get("frequency_penalty"),
            "user": body.get("user"),
            "logprobs": body.get("logprobs") or None,
            "top_logprobs": body.get("top_logprobs"),
            "stream": body.get("stream") or None,
            "verbosity": body.get("verbosity"),
        }.items()
        if v is not None
    }
    a.caches = json.dumps(body).count('"cache_control"')
    return a


def texts(a: RequestFacts, content: Any) -> list[str]:
    """The texts of a message; its media is appended to `a.media`."""
    if isinstance(content, str):
        return [content] if content else []
    found = []
    for p in content or []:
        kind = p.get("type")
        if kind in ("text", None, "refusal"):
            text = p.get("text") or p.get("refusal") or ""
            if text:
                found.append(text)
        elif kind == "image_url":
            url = p["image_url"]
            a.media.append(fingerprint(url if isinstance(url, str) else url["url"]))
        elif kind == "input_audio":
            a.media.append(fingerprint(p["input_audio"]["data"]))
        elif kind == "file" and plain_file(p["file"].get("file_data")) is not None:
            found.append(plain_file(p["file"]["file_data"]) or "")
            a.names.append(p["file"].get("filename") or "")
        elif kind == "file":
            a.media.append(fingerprint(p["file"].get("file_data") or p["file"].get("file_id")))
        elif kind == "video_url":
            a.media.append(fingerprint(p["video_url"]["url"]))
        elif kind == "document_url":
            a.media.append(fingerprint(p["document_url"]))
        elif kind == "thinking":
            a.reasoning.append("".join(t.get("text") or "" for t in p.get("thinking") or []))
        else:
            a.opaque.append(kind)
    return found


def choice_of(choice: Any) -> Any:
    if choice in (None, "auto", "none"):
        return choice
    if choice in ("required", "any"):
        return "any"
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = choice["allowed_tools"]
        return (
            "names",
            allowed["mode"],
            sorted((t.get("function") or t.get("custom"))["name"] for t in allowed["tools"]),
        )
    return ("one", (choice.get("function") or choice.get("custom") or choice)["name"])
