"""Reads generateContent: requests, whole answers, streams. Written from the format, not from our mapping."""

from __future__ import annotations

import base64
from typing import Any

from replay.facts import Answer, Call, RequestFacts, effort_of, fingerprint, schema_text

LENGTH = {"MAX_TOKENS", 2}
FILTER = {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", 3, 4, 6, 7, 8, 10}
BROKEN = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", 9}


def usage_of(u: dict[str, Any] | None) -> dict[str, int] | None:
    if not u:
        return None
    return {
        "input": (u.get("promptTokenCount") or 0) + (u.get("toolUsePromptTokenCount") or 0),
        "output": (u.get("candidatesTokenCount") or 0) + (u.get("thoughtsTokenCount") or 0),
        "cache_read": u.get("cachedContentTokenCount") or 0,
        "cache_write": 0,
        "reasoning": u.get("thoughtsTokenCount") or 0,
    }


def answer(body: dict[str, Any]) -> Answer:
    return stream([(None, body)])


def stream(events: list[tuple[str | None, Any]]) -> Answer:
    a = Answer()
    finish: Any = None
    blocked = False
    reported: dict[str, Any] = {}
    for _, e in events:
        if not isinstance(e, dict):
            continue
        reported |= e.get("usageMetadata") or {}
        a.usage = usage_of(reported)
        if e.get("error"):
            a.error = e["error"]["message"]
        blocked = blocked or bool((e.get("promptFeedback") or {}).get("blockReason"))
        for c in (e.get("candidates") or [])[:1]:
            finish = c.get("finishReason") or finish
            for p in (c.get("content") or {}).get("parts") or []:
                if "functionCall" in p:
                    f = p["functionCall"]
                    a.calls.append(Call(f.get("id") or "", f["name"], f.get("args") or {}))
                elif p.get("thought"):
                    a.reasoning += p.get("text") or ""
                elif "text" in p:
                    a.text += p["text"]
                elif "inlineData" in p:
                    kind = a.audio if p["inlineData"]["mimeType"].startswith("audio/") else a.images
                    kind.append(fingerprint(p["inlineData"]["data"]))
            g = c.get("groundingMetadata") or {}
            chunks = g.get("groundingChunks") or []
            for s in g.get("groundingSupports") or []:
                for k in s.get("groundingChunkIndices") or []:
                    uri = (chunks[k].get("web") or {}).get("uri") if k < len(chunks) else None
                    if uri:
                        a.links.append(uri)
            a.tokens += [t["token"] for t in (c.get("logprobsResult") or {}).get("chosenCandidates") or []]
    if finish in LENGTH:
        a.stops = frozenset({"length"})
    elif finish in FILTER or (blocked and finish is None):
        a.stops = frozenset({"filter", "refusal"})
    elif finish in BROKEN:
        a.stops = frozenset({"error"})
    elif finish is None:
        a.stops = frozenset({"none"})
    else:
        a.stops = frozenset({"tool"}) if a.calls else frozenset({"end", "sequence", "pause"})
    return a


BEFORE_A_CALL = {"role": "user", "parts": [{"text": "."}]}
"""Written where a client's history begins with a call, which must follow a user's turn."""


# ---- requests -------------------------------------------------------------------------------------------------------
def request_facts(body: dict[str, Any]) -> RequestFacts:
    a = RequestFacts()
    a.system += [p["text"] for p in (body.get("systemInstruction") or {}).get("parts") or [] if p.get("text")]
    contents = body.get("contents") or []
    for c in contents[1:] if contents[:1] == [BEFORE_A_CALL] else contents:
        role = "assistant" if c.get("role") == "model" else "user"
        a.turns.append(role)
        for p in c.get("parts") or []:
            call = p.get("functionCall") or p.get("function_call")
            result = p.get("functionResponse") or p.get("function_response")
            inline = p.get("inlineData") or p.get("inline_data")
            address = p.get("fileData") or p.get("file_data")
            if call:
                a.calls.append(Call(call.get("id") or "", call["name"], call.get("args") or {}))
            elif result:
                value = result["response"]
                text = value.get("output", value.get("error", ""))
                a.results.append((result.get("id") or "", text if isinstance(text, str) else str(text)))
                if "error" in value:
                    a.failed.append(result.get("id") or "")
            elif inline and (inline.get("mimeType") or "").startswith("text/"):
                a.user.append(base64.b64decode(inline["data"]).decode())
            elif inline:
                a.media.append(fingerprint(inline["data"]))
            elif address:
                a.media.append(address.get("fileUri") or address.get("file_uri"))
            elif p.get("thought"):
                a.reasoning.append(p.get("text") or "")
            elif p.get("text"):
                (a.assistant if role == "assistant" else a.user).append(p["text"])
            elif "text" not in p:
                a.opaque.append(next(iter(p)))
    for t in body.get("tools") or []:
        declared = t.get("functionDeclarations") or t.get("function_declarations")
        for f in declared or []:
            schema = f.get("parametersJsonSchema") or f.get("parameters_json_schema") or f.get("parameters")
            a.tools[f["name"]] = (f.get("description") or "", schema_text(schema))
        if not declared:
            a.hosted.append(next(iter(t), ""))
    cfg = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    names = cfg.get("allowedFunctionNames") or []
    mode = {"AUTO": "auto", "NONE": "none", "ANY": "any"}.get(cfg.get("mode") or "")
    a.choice = (
        ("one", names[0])
        if mode == "any" and len(names) == 1
        else ("names", "required", sorted(names))
        if names
        else mode
    )
    g = body.get("generationConfig") or {}
    if g.get("responseJsonSchema") or g.get("responseSchema"):
        a.format = schema_text(g.get("responseJsonSchema") or g.get("responseSchema"))
    elif g.get("responseMimeType") == "application/json":
        a.format = "json"
    t = g.get("thinkingConfig") or {}
    a.effort = t.get("thinkingLevel") or effort_of(t.get("thinkingBudget"))
    a.settings = {
        k: v
        for k, v in {
            "max_tokens": g.get("maxOutputTokens"),
            "temperature": g.get("temperature"),
            "top_p": g.get("topP"),
            "top_k": g.get("topK"),
            "stop": g.get("stopSequences"),
            "seed": g.get("seed"),
            "presence_penalty": g.get("presencePenalty"),
            "frequency_penalty": g.get("frequencyPenalty"),
            "logprobs": g.get("responseLogprobs"),
            "top_logprobs": g.get("logprobs"),
        }.items()
        if v is not None
    }
    return a
