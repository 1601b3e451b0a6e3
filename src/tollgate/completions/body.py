"""Parsing and checking a client's body before anything else happens: JSON, nesting, and the fields the gateway uses.

The checks are a table of functions (a `jsonschema` validation costs half a millisecond a request). Only values that no
upstream could accept are refused; every other field passes, known or unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tollgate.completions.field_types import (
    BOOLEAN,
    COUNT,
    COUNT_OR_0,
    INTEGER,
    LIST,
    LOGPROBS,
    NUMBER,
    OBJECT,
    TEXT,
    TEXT_OR_LIST,
    TEXT_OR_OBJECT,
    Rule,
    found_in,
    kind_of,
    unfit,
)
from tollgate.errors import BadRequest
from tollgate.json_bounds import MOST_LEVELS, too_many

if TYPE_CHECKING:
    from tollgate.config.settings import Server

_SHORT = 2048
"""A body below this size is its own outline: searching it costs less than making one."""
MOST_TOOLS = 5000
"""Models take 128 to some hundreds of tools. Every tool is compared with the names in `tool_choice`; 200,000 of each
would block the interpreter for minutes."""
_TEXT_OR_PARTS = "text or a list of parts"


def read_json(raw: bytes, server: Server) -> tuple[dict[str, Any], str]:
    """The body parsed, and its outline. Raises `BadRequest` for malformed JSON, for anything but an object, and for
    more values or deeper nesting than the limits allow."""
    if len(raw) > server.max_values and too_many(raw, server.max_values):
        raise _crowded(server)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if not raw.strip():
            raise BadRequest("the request body is empty; a JSON object is wanted") from None
        raise BadRequest(
            f"the request body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    if not isinstance(body, dict):
        raise BadRequest(f"the request body is {kind_of(body)}; a JSON object is wanted")
    return body, outline_of(raw, body, server)


def write_json(body: dict[str, Any], server: Server) -> bytes:
    """The bytes of a body that the gateway made in place of the client's. Raises `BadRequest` if it exceeds the
    limits."""
    try:
        raw = orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise _deep(server) from None
    if too_many(raw, server.max_values):
        raise _crowded(server)
    return raw


def outline_of(raw: bytes, body: dict[str, Any], server: Server) -> str:
    """The body without its plain text turns and with only the heads of other long strings, decoded byte by byte
    (latin-1). Raises `BadRequest` for a body that is nested too deep.

    The abilities and the state that a request needs are found by some two dozen substring searches. In a long
    conversation, which is nearly all texts, results of tools and pictures, they would cost more than everything else.
    They look for names, and for values by their first letters. It is a `str` because `in` takes three times as long
    for bytes: CPython first tries the needle as a number and catches the error.
    """
    if len(raw) < _SHORT:
        outline = raw.decode("latin-1")
        if outline.count("{") + outline.count("[") <= server.max_nesting:
            return outline
    rest: Any = _without_texts(body)
    around = MOST_LEVELS - server.max_nesting
    for _ in range(around):  # so that it is orjson that counts the levels
        rest = [rest]
    try:
        return orjson.dumps(rest)[around:-around].decode("latin-1")
    except orjson.JSONEncodeError:
        raise _deep(server) from None


def may_have_large_numbers(outline: str) -> bool:
    """Whether the arguments of calls in a body may have whole numbers beyond 64 bits: orjson reads them as floats, and
    writes these in an outline with an exponent. Only the messages format has arguments that are not text."""
    return '"tool_use"' in outline and ("e+" in outline or len(outline) < _SHORT)


def _crowded(server: Server) -> BadRequest:
    return BadRequest(
        f"the request body holds more than {server.max_values} values (numbers, texts, lists and objects)"
    )


def _deep(server: Server) -> BadRequest:
    return BadRequest(f"the request body is nested more than {server.max_nesting} levels deep")


def _without_texts(body: dict[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name, value in body.items():
        if name in _TURNS and type(value) is list:
            rest[name] = _without_text_turns(value)
        elif name not in _TEXT_FIELDS or type(value) is not str:
            rest[name] = _heads(value, _CUT.get(name, 0))
    return rest


_TURNS = frozenset({"messages", "input"})
_TEXT_FIELDS = frozenset({"system", "instructions", "input"})


def _without_text_turns(turns: list[Any]) -> list[Any]:
    """The turns that are not plain text. A plain text turn has only `role` and `content`, and its content is a text or
    a list of text parts."""
    found = []
    for turn in turns:
        if type(turn) is dict:
            if len(turn) == 2 and type(turn.get("role")) is str:
                content = turn.get("content")
                if type(content) is str or type(content) is list and all(map(_is_text_part, content)):
                    continue
            found.append(_heads(turn, _TURN))
        elif type(turn) is not str:
            found.append(turn)
    return found


_HEAD = 64
"""Letters of a long string that an outline keeps: sealed tokens, addresses and data are known by fewer."""
_TURN = 6
"""Levels of a turn in which strings are cut, as deep as the picture in a tool's result:
{"content": [{"content": [{"source": {"data": ...}}]}]}"""
_CUT = {"system": 2, "tools": 3}
"""The same of other fields: parts, and tools with their descriptions, but not their schemas, whose strings are many and
short."""

_HELD = frozenset({dict, list})


def _heads(value: Any, levels: int) -> Any:
    """The value, with its long strings cut on so many levels."""
    if not levels:
        return value
    if type(value) is dict:
        return {
            name: each[:_HEAD] if type(each) is str else _heads(each, levels - 1) if type(each) in _HELD else each
            for name, each in value.items()
        }
    if type(value) is list:
        return [each[:_HEAD] if type(each) is str else _heads(each, levels - 1) for each in value]
    return value


def _is_text_part(part: Any) -> bool:
    return type(part) is dict and len(part) == 2 and type(part.get("text")) is str and type(part.get("type")) is str


def check_fields(dialect: str, body: dict[str, Any]) -> None:
    """Refuse a body whose known fields have an impossible type. Raises `BadRequest` naming the field."""
    required, known = _TABLES[dialect]
    for name in required:
        if body.get(name) is None:
            if name not in body:
                raise BadRequest(f"missing required field: {name}", param=name)
            raise unfit(name, "null", known[name][1])
    for name, value in body.items():
        rule = known.get(name)
        if rule is None:
            plain = name.casefold()
            if plain in known:  # some parsers ignore case, and would read this field
                raise BadRequest(f"unknown field {name[:100]}; did you mean {plain}?", param=name[:100])
        elif value is not None and not rule[0](value):
            raise unfit(name, found_in(value, rule[1]), rule[1])
    if tools := body.get("tools"):
        _check_tools(tools)
    if choice := body.get("tool_choice"):
        _check_choice(choice)
    if dialect == "responses":
        if type(body.get("input")) is list:
            _check_items(body["input"])
    else:
        _check_messages(body["messages"])
        if dialect != "chat" and type(body.get("system")) is list:
            _check_parts("system", body["system"])


def _check_messages(messages: list[Any]) -> None:
    if not messages:
        raise unfit("messages", "empty", "at least one message")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise unfit(f"messages[{place}]", kind_of(message), "an object")
        if not isinstance(message.get("role"), str):
            raise unfit(f"messages[{place}].role", kind_of(message["role"]) if "role" in message else "missing", "text")
        content = message.get("content")
        if content is None or isinstance(content, str):
            # an assistant's message may consist of tool calls only
            if content is None and message["role"] == "user" and "content" not in message:
                raise unfit(f"messages[{place}].content", "missing", _TEXT_OR_PARTS)
            continue
        if not isinstance(content, list):
            raise unfit(f"messages[{place}].content", kind_of(content), _TEXT_OR_PARTS)
        _check_parts(f"messages[{place}].content", content)


def _check_items(items: list[Any]) -> None:
    """Check the items of a responses request: the content of messages is text or parts, and so is the output of a
    call; other items pass."""
    for at, item in enumerate(items):
        if type(item) is dict:
            content = item.get("content")
            if type(content) is list:
                _check_parts(f"input[{at}].content", content)
            elif content is not None and type(content) is not str and "role" in item:
                raise unfit(f"input[{at}].content", kind_of(content), _TEXT_OR_PARTS)
            if type(item.get("output")) is list:
                _check_parts(f"input[{at}].output", item["output"])
        elif type(item) is not str:
            raise unfit(f"input[{at}]", kind_of(item), "an object")


def _check_tools(tools: list[Any]) -> None:
    if len(tools) > MOST_TOOLS:
        raise BadRequest(f"the request has more than {MOST_TOOLS} tools", param="tools")
    for at, tool in enumerate(tools):
        if type(tool) is not dict:
            raise unfit(f"tools[{at}]", kind_of(tool), "an object")


def _check_choice(choice: Any) -> None:
    if type(choice) is not dict:
        return
    among = choice.get("allowed_tools")
    for names in (choice.get("tools"), among.get("tools") if type(among) is dict else None):
        if type(names) is list and len(names) > MOST_TOOLS:
            raise BadRequest(f"tool_choice names more than {MOST_TOOLS} tools", param="tool_choice")


_TEXTS = frozenset({"text", "input_text", "output_text"})


def _check_parts(where: str, parts: list[Any]) -> None:
    """Check content parts. A text part without text would silently disappear in a conversion."""
    for at, part in enumerate(parts):
        if type(part) is dict:
            kind = part.get("type")
            if type(kind) is str and kind in _TEXTS:
                if type(part.get("text")) is not str:
                    raise unfit(f"{where}[{at}].text", kind_of(part["text"]) if "text" in part else "missing", "text")
            elif kind == "tool_result":
                content = part.get("content")
                if type(content) is list:
                    _check_parts(f"{where}[{at}].content", content)
                elif content is not None and type(content) is not str:
                    raise unfit(f"{where}[{at}].content", kind_of(content), _TEXT_OR_PARTS)
        elif type(part) is not str:
            raise unfit(f"{where}[{at}]", kind_of(part), "an object")


_COMMON: dict[str, Rule] = {
    "model": TEXT,
    "stream": BOOLEAN,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "tools": LIST,
    "metadata": OBJECT,
}
_TABLES: dict[str, tuple[tuple[str, ...], dict[str, Rule]]] = {
    "chat": (
        ("model", "messages"),
        _COMMON
        | {
            "messages": LIST,
            "max_tokens": COUNT,
            "max_completion_tokens": COUNT,
            "stop": TEXT_OR_LIST,
            "response_format": OBJECT,
            "seed": INTEGER,
            "frequency_penalty": NUMBER,
            "presence_penalty": NUMBER,
            "logprobs": LOGPROBS,
            "tool_choice": TEXT_OR_OBJECT,
            "n": COUNT,
            "stream_options": OBJECT,
        },
    ),
    "responses": (
        ("model",),
        _COMMON
        | {
            "input": TEXT_OR_LIST,
            "instructions": TEXT_OR_LIST,
            "max_output_tokens": COUNT,
            "text": OBJECT,
            "reasoning": OBJECT,
            "tool_choice": TEXT_OR_OBJECT,
            "previous_response_id": TEXT,
        },
    ),
    "messages": (
        ("model", "messages", "max_tokens"),
        _COMMON
        | {
            "messages": LIST,
            "max_tokens": COUNT_OR_0,
            "system": TEXT_OR_LIST,
            "stop_sequences": LIST,
            "tool_choice": OBJECT,
            "thinking": OBJECT,
            "output_config": OBJECT,
        },
    ),
}
_TABLES["count_tokens"] = (("model", "messages"), _TABLES["messages"][1])
