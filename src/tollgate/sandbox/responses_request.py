"""Reads a responses request into a `Prompt`; earlier turns of a stored conversation come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tollgate.sandbox import counting, signing
from tollgate.sandbox.faults import Fault, chosen, missing, wrong
from tollgate.sandbox.prompt import Gather, Prompt, Tool, as_list, field, integer, reasons, requested_format

_TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text")
_PICTURES = ("input_image", "input_file", "input_audio")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def items_of(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The `input` as items: a string is one user message."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return as_list(given, "input")


def read(
    body: Mapping[str, object], headers: Mapping[str, str], earlier: Sequence[Mapping[str, object]] = ()
) -> Prompt:
    """The prompt of a responses body; raises `Fault` 400 for what a real server refuses."""
    model = str(field(body, "model", str, "a string"))
    field(body, "input", (str, list), "a string or an array of input items")
    gather = Gather()
    tools = _tools(gather, body)
    instructions = body.get("instructions")
    if isinstance(instructions, str):
        gather.add("developer", {"text": instructions}, instructions, extra=counting.PER_MESSAGE)
    given = items_of(body)
    for index, item in enumerate([*earlier, *given]):
        _item(gather, item, f"input[{max(0, index - len(earlier))}]")
    if gather.open_calls:
        raise Fault(400, f"No tool output found for function call {next(iter(gather.open_calls))}.", param="input")
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else None
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, Mapping) else None
    schema, json_mode = requested_format(wanted, wanted, "text.format.name")
    return gather.prompt(
        body,
        headers,
        tools=tools,
        choice=_choice(body.get("tool_choice")),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=schema,
        json_mode=json_mode,
        limit=integer(body, "max_output_tokens"),
        effort=str(effort) if effort else None,
        thinks=reasons(model),
    )


def _item(gather: Gather, item: Mapping[str, object], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _message(gather, item, where)
    elif kind in _CALLS:
        gather.assistant()
        gather.open_calls[str(item.get("call_id"))] += 1
        value = item.get(_CALLS[str(kind)])
        if not isinstance(value, str):
            raise wrong(f"{where}.{_CALLS[str(kind)]}", value, "a string")
        gather.add("assistant", _stable(item), f"{item.get('name')}{value}")
    elif kind in _OUTPUTS:
        output = item.get("output")
        texts = [output] if isinstance(output, str) else _parts(gather, "tool", output, f"{where}.output")
        if isinstance(output, str):
            gather.add("tool", _stable(item), output, extra=counting.PER_MESSAGE)
        if str(item.get("call_id")) not in gather.open_calls:
            raise Fault(
                400, f"No tool call found for function call output with call_id {item.get('call_id')}.", param="input"
            )
        gather.result(str(item.get("call_id")), "\n".join(texts), where)
    elif kind == "reasoning":
        sealed = item.get("encrypted_content")
        if isinstance(sealed, str) and not signing.is_sealed(sealed):
            raise Fault(
                400,
                f"The encrypted content for item {item.get('id')} could not be verified.",
                param=where,
                code="invalid_encrypted_content",
            )
        gather.add("assistant", _stable(item), "")
    else:
        gather.add("other", _stable(item), "")


def _message(gather: Gather, item: Mapping[str, object], where: str) -> None:
    role = item.get("role")
    chosen(role, ("assistant", "system", "developer", "user"), f"{where}.role")
    if role == "assistant" and not gather.open_calls:
        gather.assistant()
    content = item.get("content")
    if isinstance(content, str):
        gather.add(str(role), {"type": "text", "text": content}, content, extra=counting.PER_MESSAGE)
        texts = [content]
    else:
        texts = _parts(gather, str(role), content, f"{where}.content")
    if role == "user":
        gather.user_text(texts)


def _parts(gather: Gather, role: str, content: object, where: str) -> list[str]:
    texts: list[str] = []
    for index, part in enumerate(as_list(content, where)):
        kind = part.get("type")
        extra = counting.PER_MESSAGE if index == 0 else 0
        if kind in _TEXTS:
            text = part.get("text", part.get("refusal"))
            if not isinstance(text, str):
                raise wrong(f"{where}[{index}].text", text, "a string")
            mark = {"cache_control": part["cache_control"]} if "cache_control" in part else {}
            gather.add(role, {"type": "text", "text": text, **mark}, text, extra=extra)
            texts.append(text)
        elif kind in _PICTURES:
            gather.picture(role, part)
            if role == "tool":
                texts.append("(a picture)")
        else:
            known = ("input_text", "input_image", "output_text", "refusal", "input_file")
            chosen(kind, known, f"{where}[{index}].type")
    return texts


def _stable(item: Mapping[str, object]) -> dict[str, object]:
    """An item without fields that a client may leave out when it sends the item back."""
    return {k: v for k, v in item.items() if k not in ("id", "status")}


def _tools(gather: Gather, body: Mapping[str, object]) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for index, tool in enumerate(as_list(body.get("tools"), "tools")):
        kind = tool.get("type")
        if kind is None:
            raise missing(f"tools[{index}].type")
        gather.add("tool", tool, f"{tool.get('name')} {tool.get('description') or ''} {tool.get('parameters') or ''}")
        if kind in ("function", "custom"):
            if not isinstance(tool.get("name"), str):
                raise missing(f"tools[{index}].name")
            tools.append(Tool(str(tool["name"]), tool.get("parameters") or {}, kind))
    return tuple(tools)


def _choice(choice: object) -> str:
    if isinstance(choice, Mapping):
        if choice.get("type") in ("function", "custom"):
            return f"={choice.get('name')}"
        return str(choice.get("mode", "auto"))
    return str(choice or "auto")
