"""Converts whole documents from one format to another, over the hub: requests, answers, errors.

Owns what happens around the compiled sections: limits, the loss list, strict mode, and the tidying that every request
and answer needs whatever its mapping does (tool calls with unique ids, one result directly after each; no cache marks
on blank texts; stop reasons that fit the content).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.errors import BadRequest
from tollgate.mapping.blank_marks import move_marks
from tollgate.mapping.client_words import in_client_words
from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault, MappingFailure
from tollgate.mapping.hub import settled_stop
from tollgate.mapping.in_text import InText
from tollgate.mapping.streams.part import unfit
from tollgate.mapping.tool_names import with_own_names
from tollgate.mapping.tool_results import tidy_calls
from tollgate.mapping.values import NUMBERS, text_of

_LONGEST_MESSAGE = 2000
_ONLY_KIND = {"kind"}
_BARE_TEXT = {"kind", "text"}


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted document: `body` for the target, `hub` in between, `lost` what could not be carried over."""

    body: Any
    hub: dict[str, Any]
    lost: list[str]


def convert_request(source: CompiledMapping, target: CompiledMapping, body: object, context: Context) -> Converted:
    """A client's request -> the upstream's.

    Raises `Refused` (400) when the mapping refuses it, or when strict mode would lose something.
    """
    hub = request_to_hub(source, body, context)
    made = request_from_hub(target, hub, context)
    return Converted(made, hub, list(context.lost))


def request_to_hub(source: CompiledMapping, body: object, context: Context) -> dict[str, Any]:
    """A client's request as a hub request; what is not read goes to `context.lost`."""
    if type(body) is not dict:
        raise BadRequest("the request body is not an object")
    context.asked = body
    with source.clean_request:
        hub: dict[str, Any] = _run(source, "request.to_hub", body, context, False)
        _lose(context, source.walkers["request.to_hub"].lost(body))
    move_marks(hub, context)
    turns = hub.get("turns")
    if type(turns) is list and len(turns) > 1:
        hub["turns"] = tidied = tidy_calls(turns)
        if tidied is not turns and any(type(turn) is not dict for turn in turns):
            context.lose("a turn that the mapping made no object")
    context.request = hub
    return hub


def request_from_hub(target: CompiledMapping, hub: dict[str, Any], context: Context) -> Any:
    """A hub request as the upstream's: an object, or a list or text where that is the whole body. What the target has
    no place for goes to `context.lost`, or is refused in strict mode.

    Afterwards `context.wanted` has URLs whose content the target needs: put it into `context.inlined` and call again.
    """
    context.wanted.clear()
    with target.clean_request:
        made = _run(target, "request.from_hub", hub, context, False)
        lost = target.walkers["request.from_hub"].lost(hub)
        _lose(context, [in_client_words(path, hub, context.asked) for path in lost])
    if context.strict and context.lost:
        context.refuse_loss(context.lost)
    return made


def convert_response(
    source: CompiledMapping, target: CompiledMapping, body: object, context: Context, in_text: InText | None = None
) -> Converted:
    """An upstream's answer -> the client's. `MappingFailure` when it is not an answer of that format at all."""
    hub = response_to_hub(source, body, context, in_text)
    if type(body) is list and not hub["parts"]:
        raise MappingFailure(
            "the answer is not an object, and the mapping finds nothing in the list it is", source.file
        )
    made = response_from_hub(target, hub, context)
    return Converted(made, hub, list(context.lost))


def response_to_hub(
    source: CompiledMapping, body: object, context: Context, in_text: InText | None = None
) -> dict[str, Any]:
    """An upstream's answer as a tidy hub response; without a `stop` if the mapping found nothing in it.

    `in_text` has the marks of its provider, which replace the format's own.
    """
    with source.clean_answer:
        if type(body) is not dict and type(body) is not list:
            raise Fault("the answer is not an object")
        hub = _run(source, "response.to_hub", body, context, True)
        return tidy(with_own_parts(source, hub, context, in_text), context)


def with_own_parts(
    source: CompiledMapping, hub: dict[str, Any], context: Context, in_text: InText | None = None
) -> dict[str, Any]:
    """The result of `response.to_hub` with its text marks turned into parts, and with the client's own names of
    tools."""
    marks = in_text or source.in_text
    if marks is not None:
        hub = {**hub, "parts": marks.split(hub.get("parts"), context)}
    return hub if source.sent_name is None else with_own_names(hub, context, source.sent_name)


def response_from_hub(target: CompiledMapping, hub: dict[str, Any], context: Context) -> dict[str, Any]:
    """A hub response as the client's answer."""
    if context.asked_model:
        hub = {**hub, "model": context.asked_model}
    with target.clean_answer:
        made: dict[str, Any] = _run(target, "response.from_hub", hub, context, True)
        _lose(context, target.walkers["response.from_hub"].lost(hub))
    return made


def _lose(context: Context, found: list[str]) -> None:
    for words in found:
        context.lose(words)


def tidy(hub: dict[str, Any], context: Context) -> dict[str, Any]:
    """What every hub response has: parts, an id, a model and a stop. Empty parts are removed, and every call has an
    id and arguments. An answer without parts, usage and stop reason gets no stop, so that callers can recognise it."""
    listed = hub.get("parts")
    parts: list[Any] = (
        [part for part in listed if type(part) is dict and part.keys() != _ONLY_KIND] if type(listed) is list else []
    )
    if listed is not None and (
        type(listed) is not list or len(parts) != len(listed) and any(type(part) is not dict for part in listed)
    ):
        context.lose("a part that the mapping made no object")
    has_parts = bool(parts)
    parts = [part for part in parts if part.keys() != _BARE_TEXT or part["text"] != ""]
    name = hub.get("id")
    if type(name) is not str or not name:
        name = context.answer_id()
    calls = 0
    for number, part in enumerate(parts):
        text, key = part.get("text"), part.get("id")
        if type(text) is not str and text is not None:  # as in a stream; clients cannot read another kind
            part = parts[number] = {**part, "text": text_of(text)}
        if type(key) in NUMBERS:
            part = parts[number] = {**part, "id": text_of(key)}
        if part.get("kind") != "tool_call":
            continue
        calls += 1
        if part.get("custom") is not True:
            arguments = part.get("args")
            if type(arguments) is not str or not arguments.strip():
                part = {**part, "args": "{}" if arguments is None or type(arguments) is str else text_of(arguments)}
            elif words := unfit(arguments):
                context.lose(words)
        if not part.get("id"):
            part = {**part, "id": f"call_{name}_{calls - 1}"}
        parts[number] = part
    made: dict[str, Any] = {"id": name}
    if model := hub.get("model") or context.model.get("upstream"):
        made["model"] = model
    created = hub.get("created")
    made["created"] = created if type(created) is int and created > 0 else context.now
    made["parts"] = parts
    stop = hub.get("stop")
    if has_parts or stop is not None or hub.get("usage"):
        made["stop"] = settled_stop(stop if type(stop) is str else None, calls=calls > 0)
    return {**made, **hub, **made}  # `made` first for the order, and last for its values


def convert_error(source: CompiledMapping, target: CompiledMapping, body: object) -> dict[str, Any]:
    """An upstream's error body -> one of the client's format."""
    return error_from_hub(target, error_to_hub(source, body))


def error_to_hub(source: CompiledMapping, body: object, context: Context | None = None) -> dict[str, Any]:
    """Any error body -> {message, type, code, param}; the message is always there. Never raises."""
    found = error_section(source, "error.to_hub", body, context)
    error = {key: value for key, value in found.items() if type(value) in (str, int)}
    message = found.get("message")
    if type(message) is not str or not message:
        message = text_of(message if message is not None else body if body is not None else "upstream error")
    error["message"] = message[:_LONGEST_MESSAGE]
    return error


def error_from_hub(target: CompiledMapping, hub: dict[str, Any], context: Context | None = None) -> dict[str, Any]:
    """{message, type, code, param} -> an error body of the client's format."""
    made = error_section(target, "error.from_hub", hub, context)
    return made or {"error": {"message": hub.get("message", "upstream error")}}


def error_section(mapping: CompiledMapping, name: str, document: object, context: Context | None) -> dict[str, Any]:
    """The result of a section for errors; {} if the format has none, or if it fails: its failure would hide the error
    that it is about."""
    context = context or Context()
    context.lenient = True
    section = mapping.sections.get(name)
    try:
        made = section(document, context) if section is not None else None
    except (Fault, RecursionError):
        return {}
    return made if type(made) is dict else {}


def holds(client_format: CompiledMapping, name: str, body: dict[str, Any], headers: Mapping[str, str]) -> bool:
    """Whether the condition `name` of a client's format (such as `request.asked_model`) is true for a request; False if
    the format has no such condition.

    Raises `Refused` if it cannot be evaluated.
    """
    condition = client_format.sections.get(name)
    if condition is None:
        return False
    context = Context()
    context.set_headers(headers)
    with client_format.clean_request:
        return bool(condition(body, context))


def _run(mapping: CompiledMapping, name: str, document: object, context: Context, lenient: bool) -> Any:
    """The result of a section, with the context made ready for it."""
    try:
        section = mapping.sections[name]
    except KeyError:
        raise MappingFailure(f"mapping {mapping.name} has no {name}", mapping.file) from None
    context.lenient = lenient
    context.calls = 0
    made = section(document, context)
    if made is None:
        return {}
    if type(made) is not dict and (name != "request.from_hub" or type(made) not in (list, str)):
        raise Fault(f"{name} makes {type(made).__name__}, not an object")
    return made
