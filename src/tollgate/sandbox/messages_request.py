"""Reads a messages request into a `Prompt`, with the checks of the published interface."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tollgate.sandbox import counting, signing
from tollgate.sandbox.faults import Fault, wrong
from tollgate.sandbox.prompt import Gather, Prompt, Tool, as_list, field, integer, reasons, strings

_PICTURES = ("image", "document", "container_upload")


def read(body: Mapping[str, object], headers: Mapping[str, str], *, counting_only: bool = False) -> Prompt:
    """The prompt of a messages body; `counting_only` is for token counting, where `max_tokens` is not required."""
    model = str(field(body, "model", str, "a valid string"))
    if not counting_only:
        field(body, "max_tokens", int, "a valid integer")
    field(body, "messages", list, "a valid list")
    messages = as_list(body["messages"], "messages")
    if not messages:
        raise Fault(400, "messages: at least one message is required")
    if body.get("thread") is not None:  # The official clients' tool runner then sends the whole conversation.
        raise Fault(400, "thread: conversations are not stored here", details_code="thread_unsupported_request")
    gather = Gather()
    tools = _tools(gather, body)
    for block in _blocks(body.get("system"), "system"):
        gather.add("system", block, str(block.get("text", "")), extra=counting.PER_MESSAGE)
    for index, message in enumerate(messages):
        _message(gather, message, f"messages.{index}")
    gather.closed("messages")
    choice, parallel = _choice(body.get("tool_choice"))
    effort, thinks = _thinking(body, model)
    return gather.prompt(
        body,
        headers,
        tools=tools,
        choice=choice,
        parallel=parallel,
        schema=_schema(body),
        limit=integer(body, "max_tokens"),
        stop=strings(body.get("stop_sequences")),
        effort=effort,
        thinks=thinks,
    )


def _message(gather: Gather, message: Mapping[str, object], where: str) -> None:
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise Fault(400, f"{where}.role: Input should be 'user' or 'assistant'")
    if message.get("content") is None:
        raise Fault(400, f"{where}.content: Field required")
    blocks = _blocks(message["content"], f"{where}.content")
    if role == "assistant":
        gather.assistant()
    texts: list[str] = []
    for index, block in enumerate(blocks):
        at = f"{where}.content.{index}"
        if role == "user" and block.get("type") != "tool_result" and index == 0:
            gather.closed(where)
        text = _block(gather, str(role), block, at, extra=counting.PER_MESSAGE if index == 0 else 0)
        if text is not None:
            texts.append(text)
    if role == "user":
        gather.closed(where)
        gather.user_text(texts)


def _block(gather: Gather, role: str, block: Mapping[str, object], where: str, *, extra: int) -> str | None:
    """Adds one content block; returns its text if it has text."""
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str):
            raise wrong(f"{where}.text", text, "a valid string")
        if not text and role == "user":
            raise Fault(400, f"{where}: text content blocks must be non-empty")
        gather.add(role, block, text, extra=extra)
        return text
    if kind in _PICTURES:
        gather.picture(role, block)
    elif kind == "tool_use":
        if not isinstance(block.get("input"), Mapping):
            raise Fault(400, f"{where}.tool_use.input: Input should be a valid dictionary")
        gather.open_calls[str(block.get("id"))] += 1
        gather.add(role, block, f"{block.get('name')}{orjson.dumps(block['input']).decode()}", extra=extra)
    elif kind == "tool_result":
        text = _result_text(gather, block, where)
        gather.add(role, block, text, extra=extra)
        gather.result(str(block.get("tool_use_id")), text, where)
    elif kind == "thinking":
        thinking, signature = str(block.get("thinking", "")), block.get("signature")
        if not isinstance(signature, str) or not signing.is_signed(thinking, signature):
            raise Fault(400, f"{where}: Invalid `signature` in `thinking` block")
        gather.add(role, block, "", extra=extra)
    elif kind == "redacted_thinking":
        if not signing.is_sealed(str(block.get("data"))):
            raise Fault(400, f"{where}: Invalid `data` in `redacted_thinking` block")
        gather.add(role, block, "", extra=extra)
    else:
        gather.add(role, block, orjson.dumps(dict(block)).decode(), extra=extra)
    return None


def _result_text(gather: Gather, block: Mapping[str, object], where: str) -> str:
    texts: list[str] = []
    for part in _blocks(block.get("content"), f"{where}.content"):
        if part.get("type") in _PICTURES:
            gather.picture("tool", part)
            texts.append("(a picture)")
        else:
            texts.append(str(part.get("text", "")))
    return ("error: " if block.get("is_error") else "") + "\n".join(texts)


def _blocks(content: object, where: str) -> list[Mapping[str, object]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_list(content, where)


def _tools(gather: Gather, body: Mapping[str, object]) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for index, tool in enumerate(as_list(body.get("tools"), "tools")):
        hosted = tool.get("type") not in (None, "custom")
        if not isinstance(tool.get("name"), str) and not hosted:
            raise Fault(400, f"tools.{index}.name: Field required")
        if not hosted and not isinstance(tool.get("input_schema"), Mapping):
            raise Fault(400, f"tools.{index}.custom.input_schema: Field required")
        gather.add("tool", tool, f"{tool.get('name')} {tool.get('description') or ''} {tool.get('input_schema') or ''}")
        if not hosted:
            tools.append(Tool(str(tool["name"]), tool["input_schema"]))
    return tuple(tools)


def _choice(choice: object) -> tuple[str, bool]:
    if not isinstance(choice, Mapping):
        return "auto", True
    parallel = not choice.get("disable_parallel_tool_use")
    kind = str(choice.get("type", "auto"))
    return {"any": "required", "tool": f"={choice.get('name')}"}.get(kind, kind), parallel


def _thinking(body: Mapping[str, object], model: str) -> tuple[str | None, bool]:
    """Effort, and whether to think: only if requested, except for a model that always does."""
    thinking = body.get("thinking")
    config = body.get("output_config")
    effort = config.get("effort") if isinstance(config, Mapping) else None
    if not isinstance(thinking, Mapping):
        return str(effort) if effort else None, reasons(model)
    kind = thinking.get("type")
    if kind == "enabled":
        budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
        if not isinstance(budget, int):
            raise Fault(400, "thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise Fault(400, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if isinstance(limit, int) and budget >= limit:
            raise Fault(400, "`max_tokens` must be greater than `thinking.budget_tokens`")
    return str(effort) if effort else None, kind in ("enabled", "adaptive", "between_tools")


def _schema(body: Mapping[str, object]) -> object:
    config = body.get("output_config")
    wanted = (config.get("format") if isinstance(config, Mapping) else None) or body.get("output_format")
    if isinstance(wanted, Mapping) and wanted.get("type") == "json_schema":
        return wanted.get("schema") or {}
    return None
