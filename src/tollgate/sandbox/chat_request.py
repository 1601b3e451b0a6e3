"""Reads a chat-completions request into a `Prompt`, with the checks of the published interface."""

from __future__ import annotations

from collections.abc import Mapping

from tollgate.sandbox import counting
from tollgate.sandbox.faults import Fault, chosen, missing, wrong
from tollgate.sandbox.prompt import Gather, Prompt, Tool, as_list, field, integer, reasons, requested_format, strings

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read(body: Mapping[str, object], headers: Mapping[str, str]) -> Prompt:
    """The prompt of a chat body; raises `Fault` 400 for what a real server refuses."""
    model = str(field(body, "model", str, "a string"))
    field(body, "messages", list, "an array of objects")
    messages = as_list(body["messages"], "messages")
    if not messages:
        raise Fault(
            400,
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            param="messages",
            code="empty_array",
        )
    gather = Gather()
    tools = _tools(gather, body)
    for index, message in enumerate(messages):
        _message(gather, message, f"messages.[{index}]")
    gather.closed("messages")
    wanted = body.get("response_format")
    named = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    schema, json_mode = requested_format(wanted, named, "response_format.json_schema.name")
    reasoning = body.get("reasoning")
    effort = body.get("reasoning_effort") or (reasoning.get("effort") if isinstance(reasoning, Mapping) else None)
    return gather.prompt(
        body,
        headers,
        tools=tools,
        choice=_choice(body.get("tool_choice")),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=schema,
        json_mode=json_mode,
        limit=integer(body, "max_completion_tokens") or integer(body, "max_tokens"),
        stop=strings(body.get("stop")),
        effort=str(effort) if effort else None,
        thinks=reasons(model),
        n=min(integer(body, "n") or 1, 16),
    )


def _message(gather: Gather, message: Mapping[str, object], where: str) -> None:
    role = message.get("role")
    chosen(role, _ROLES, f"{where}.role")
    if role not in ("tool", "function"):
        gather.closed(where)
    if role == "assistant":
        gather.assistant()
    elif message.get("content") is None:
        raise Fault(
            400, f"Invalid value for 'content': expected a string, got null. ({where})", param=f"{where}.content"
        )
    texts = _content(gather, str(role), message.get("content"), where)
    if role == "user":
        gather.user_text(texts)
    elif role == "assistant":
        for call in as_list(message.get("tool_calls"), f"{where}.tool_calls"):
            inner = call.get("function") or call.get("custom")
            if not isinstance(inner, Mapping) or not isinstance(call.get("id"), str):
                raise wrong(f"{where}.tool_calls", call, "a tool call with id and function")
            gather.open_calls[str(call["id"])] += 1
            text = f"{inner.get('name')}{inner.get('arguments') or inner.get('input') or ''}"
            gather.add("assistant", call, text)
    elif role == "tool":
        gather.result(str(message.get("tool_call_id")), "\n".join(texts), where)


def _content(gather: Gather, role: str, content: object, where: str) -> list[str]:
    """Adds the content to the prompt and returns its texts."""
    if isinstance(content, str):
        gather.add(role, {"type": "text", "text": content}, content, extra=counting.PER_MESSAGE)
        return [content]
    texts: list[str] = []
    for index, part in enumerate(as_list(content, f"{where}.content")):
        kind = part.get("type")
        extra = counting.PER_MESSAGE if index == 0 else 0
        if kind in ("text", "refusal"):
            text = part.get("text", part.get("refusal"))
            if not isinstance(text, str):
                raise wrong(f"{where}.content.[{index}].text", text, "a string")
            gather.add(role, part, text, extra=extra)
            texts.append(text)
        elif kind in ("image_url", "input_audio", "file", "video_url"):
            if not part.get(str(kind)):
                raise missing(f"{where}.content.[{index}].{kind}")
            gather.picture(role, part)
        else:
            known = ("text", "image_url", "input_audio", "refusal", "file")
            chosen(kind, known, f"{where}.content.[{index}].type")
    return texts


def _tools(gather: Gather, body: Mapping[str, object]) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for index, tool in enumerate(as_list(body.get("tools"), "tools")):
        kind = tool.get("type")
        inner = tool.get(str(kind))
        if (
            kind not in ("function", "custom")
            or not isinstance(inner, Mapping)
            or not isinstance(inner.get("name"), str)
        ):
            raise missing(f"tools[{index}].function.name")
        gather.add("tool", tool, f"{inner['name']} {inner.get('description') or ''} {inner.get('parameters') or ''}")
        tools.append(Tool(str(inner["name"]), inner.get("parameters") or {}, kind))
    return tuple(tools)


def _choice(choice: object) -> str:
    if isinstance(choice, Mapping):
        inner = choice.get("function") or choice.get("custom")
        if isinstance(inner, Mapping):
            return f"={inner.get('name')}"
        allowed = choice.get("allowed_tools")
        return str(allowed.get("mode", "auto")) if isinstance(allowed, Mapping) else "auto"
    return str(choice or "auto")
