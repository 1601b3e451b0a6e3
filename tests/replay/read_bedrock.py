"""Reads Bedrock Converse: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import base64
from typing import Any

from replay.facts import Answer, Call, RequestFacts, effort_of, fingerprint, format_text, parsed, schema_text

STOPS = {
    "end_turn": {"end"},
    "tool_use": {"tool"},
    "max_tokens": {"length"},
    "stop_sequence": {"sequence"},
    "guardrail_intervened": {"filter"},
    "content_filtered": {"filter"},
    "model_context_window_exceeded": {"length"},
    "malformed_model_output": {"error"},
    "malformed_tool_use": {"error"},
}
PLAIN = ("csv", "txt", "html", "md")
MEDIA = ("image", "document", "video", "audio")


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    if not u:
        return None
    read, write = u.get("cacheReadInputTokens") or 0, u.get("cacheWriteInputTokens") or 0
    return {
        "input": u["inputTokens"] + read + write,
        "output": u["outputTokens"],
        "cache_read": read,
        "cache_write": write,
    }


def answer(body: dict[str, Any]) -> Answer:
    a = Answer(usage=usage_of(body.get("usage")), stops=frozenset(STOPS.get(body.get("stopReason") or "", {"none"})))
    for b in body["output"]["message"]["content"]:
        if "text" in b:
            a.text += b["text"]
        elif "citationsContent" in b:
            a.text += "".join(c["text"] for c in b["citationsContent"].get("content") or [])
            a.links += [
                c["location"]["web"]["url"]
                for c in b["citationsContent"].get("citations") or []
                if "web" in c.get("location", {})
            ]
        elif "reasoningContent" in b:
            a.reasoning += (b["reasoningContent"].get("reasoningText") or {}).get("text") or ""
        elif "toolUse" in b and b["toolUse"].get("type") != "server_tool_use":
            a.calls.append(Call(b["toolUse"]["toolUseId"], b["toolUse"]["name"], b["toolUse"]["input"]))
    return a


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    blocks: dict[int, dict[str, Any]] = {}
    stop, usage, error = None, None, None
    for name, e in events:
        if name == "contentBlockStart":
            blocks[e["contentBlockIndex"]] = {"start": e["start"], "json": ""}
        elif name == "contentBlockDelta":
            b, d = blocks.setdefault(e["contentBlockIndex"], {"json": ""}), e["delta"]
            if "text" in d:
                b["text"] = b.get("text", "") + d["text"]
            elif "toolUse" in d:
                b["json"] += d["toolUse"]["input"]
            elif "reasoningContent" in d:
                thought = b.setdefault("thought", {"text": ""})
                thought["text"] += d["reasoningContent"].get("text") or ""
        elif name == "messageStop":
            stop = e["stopReason"]
        elif name == "metadata":
            usage = e["usage"]
        elif (name or "").endswith("Exception"):
            error = e.get("message") or "an exception"
    content: list[dict[str, Any]] = []
    for _, b in sorted(blocks.items()):
        if "toolUse" in b.get("start", {}):
            content.append({"toolUse": {**b["start"]["toolUse"], "input": parsed(b["json"])}})
        elif "thought" in b:
            content.append({"reasoningContent": {"reasoningText": b["thought"]}})
        elif "text" in b:
            content.append({"text": b["text"]})
    a = answer({"output": {"message": {"content": content}}, "stopReason": stop, "usage": usage})
    a.error = error
    return a


def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    a.system += [b["text"] for b in body.get("system") or [] if "text" in b]
    for m in body["messages"]:
        a.turns.append(m["role"])
        for b in m["content"]:
            block(a, m["role"], b)
    config = body.get("toolConfig") or {}
    for t in config.get("tools") or []:
        if "toolSpec" in t:
            a.tools[t["toolSpec"]["name"]] = (
                t["toolSpec"].get("description") or "",
                schema_text(t["toolSpec"]["inputSchema"]["json"]),
            )
    choice = config.get("toolChoice") or {}
    a.choice = ("one", choice["tool"]["name"]) if "tool" in choice else next(iter(choice), None)
    js = ((body.get("outputConfig") or {}).get("textFormat") or {}).get("structure", {}).get("jsonSchema", {})
    a.format = format_text(parsed(js["schema"]), js.get("description")) if js.get("schema") else None
    more, settings = body.get("additionalModelRequestFields") or {}, body.get("inferenceConfig") or {}
    a.effort = (more.get("output_config") or {}).get("effort") or effort_of(
        (more.get("thinking") or {}).get("budget_tokens")
    )
    settings = {**settings, "top_k": more["top_k"]} if "top_k" in more else settings
    a.settings = {
        ours: settings[theirs]
        for ours, theirs in (
            ("max_tokens", "maxTokens"),
            ("temperature", "temperature"),
            ("top_p", "topP"),
            ("stop", "stopSequences"),
            ("top_k", "top_k"),
        )
        if theirs in settings
    }
    a.caches = str(body).count("'cachePoint'")
    return a


def block(a: RequestFacts, role: str, b: dict[str, Any]) -> None:
    [(kind, value)] = b.items()
    if kind == "text":
        (a.assistant if role == "assistant" else a.user).append(value)
    elif kind == "document" and value["format"] in PLAIN:
        a.user.append(base64.b64decode(value["source"]["bytes"]).decode())
        a.names.append(value["name"])
    elif kind in MEDIA:
        a.media.append(fingerprint(value["source"]["bytes"]))
        a.names.append(value.get("name") or "")
    elif kind == "reasoningContent":
        a.reasoning.append((value.get("reasoningText") or {}).get("text") or "redacted")
    elif kind == "toolUse":
        a.calls.append(Call(value["toolUseId"], value["name"], value["input"]))
    elif kind == "toolResult":
        texts = []
        for part in value["content"]:
            [(inner, content)] = part.items()
            if inner == "text":
                texts.append(content)
            else:
                a.media.append(fingerprint(content["source"]["bytes"]))
        a.results.append((value["toolUseId"], "".join(texts)))
        if value.get("status") == "error":
            a.failed.append(value["toolUseId"])
    elif kind != "cachePoint":
        a.opaque.append(kind)
