"""Properties for any input: a result or a clean error, an unchanged input, and the same text streamed or whole."""

from __future__ import annotations

import copy
import functools
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from mapping.answers import CALLS, CLIENTS, NAMES, QUICK, chat_answers
from mappings.support import mapping
from tollgate.config.load import plain
from tollgate.errors import TollgateError
from tollgate.mapping import (
    Context,
    StreamConverter,
    Tap,
    convert_error,
    convert_request,
    convert_response,
    request_from_hub,
    request_to_hub,
    response_to_hub,
    tap_response,
    tap_usage,
)
from tollgate.mapping.convert import error_to_hub

WORDS = st.sampled_from(
    [
        "text",
        "user",
        "assistant",
        "system",
        "tool",
        "function",
        "model",
        "type",
        "role",
        "content",
        "id",
        "name",
        "arguments",
        "tool_use",
        "tool_result",
        "thinking",
        "image_url",
        "auto",
        "stop",
        "",
        "null",
        "{}",
        "data:image/png;base64,AA",
        "tg1.WyJ4IiwieSIsbnVsbF0",
        "é\u0000\U0001f600",
        "x" * 40,
    ]
)
KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "index",
        "tools",
        "tool_choice",
        "system",
        "input",
        "output",
        "choices",
        "delta",
        "message",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "stop",
        "reasoning",
        "reasoning_details",
        "thinking",
        "signature",
        "source",
        "parts",
        "candidates",
        "functionCall",
        "args",
        "max_tokens",
        "metadata",
        "image_url",
        "url",
        "response",
        "item",
        "content_block",
        "error",
        "stream",
        "annotations",
        "summary",
        "encrypted_content",
        "call_id",
        "tool_use_id",
        "is_error",
        "cache_control",
        "n",
        "response_format",
        "format",
        "data",
        "usageMetadata",
        "finishReason",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=40
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=8)
EVENT_TYPES = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "error",
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.output_item.done",
        "response.completed",
        "response.failed",
    ]
)


MORE = settings(QUICK, max_examples=80)
"""For tests that convert each document between all formats: drawing it takes longer than all conversions."""


@MORE
@given(body=JSON | OBJECTS)
def test_any_request_is_converted_or_rejected_cleanly(body: Any) -> None:
    before = copy.deepcopy(body)
    for source, target in itertools.product(CLIENTS, NAMES):
        note(f"{source} to {target}")
        context = Context({"upstream": "up", "max_output": 99})
        try:
            made = convert_request(mapping(source), mapping(target), body, context)
        except TollgateError as error:
            assert error.status == 400
        else:
            json.dumps(made.body)
        assert body == before, "the input is never changed"


@MORE
@given(body=JSON | OBJECTS)
def test_any_answer_is_converted_or_fails_cleanly(body: Any) -> None:
    before = copy.deepcopy(body)
    for source, target in itertools.product(NAMES, CLIENTS):
        note(f"{source} to {target}")
        try:
            json.dumps(convert_response(mapping(source), mapping(target), body, Context()).body)
        except TollgateError as error:
            assert error.status == 500
        assert body == before


@MORE
@given(body=JSON | OBJECTS)
def test_any_answer_has_the_same_usage_read_alone(body: Any) -> None:
    before = copy.deepcopy(body)
    for source in NAMES:
        note(source)
        tapped = tap_response(mapping(source), body)
        assert isinstance(tapped, dict)
        alone = tap_usage(mapping(source), body)
        assert isinstance(alone, dict)
        if tapped:
            assert alone == (tapped.get("usage") or {})
        assert body == before


@MORE
@given(body=JSON)
def test_any_error_body_becomes_a_message(body: Any) -> None:
    for source in NAMES:
        note(source)
        assert isinstance(error_to_hub(mapping(source), body)["message"], str)
        for target in CLIENTS:
            json.dumps(convert_error(mapping(source), mapping(target), body))


@MORE
@given(
    events=st.lists(
        OBJECTS | st.builds(lambda kind, rest: {**rest, "type": kind}, EVENT_TYPES, OBJECTS) | JSON, max_size=6
    )
)
def test_any_stream_ends_in_order(events: list[Any]) -> None:
    before = copy.deepcopy(events)
    for source in NAMES:
        for target in CLIENTS:
            note(f"{source} to {target}")
            converter = StreamConverter(mapping(source), mapping(target), Context())
            events_sent = [out for event in events for out in converter.feed(event)]
            events_sent += converter.finish()
            json.dumps([data for _, data in events_sent])
            assert converter.finish() == []
        tap = Tap(mapping(source))
        for event in events:
            tap.feed(event)
        assert events == before


# -- valid documents with one invalid value


@functools.cache
def examples(name: str, of: str) -> list[Any]:
    """The inputs of a mapping file's examples."""
    items = mapping(name).examples.items if mapping(name).examples else ()
    return [plain(item.get("given"), floats=True) for item in items if item.get("of").value == of]


@st.composite
def with_one_replaced(draw: Any, document: Any) -> Any:
    """A copy of a document with one value replaced."""
    wrong = draw(JSON)
    holder: dict[str, Any] = {"": copy.deepcopy(document)}
    place: Any = holder
    key: Any = ""
    while isinstance(place[key], (dict, list)) and place[key] and draw(st.integers(0, 5)):
        place = place[key]
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = wrong
    return holder[""]


REPLACED = [
    (name, of)
    for name in NAMES
    for of in ("request.to_hub", "response.to_hub", "stream.to_hub")
    if (name, of) != ("gemini", "request.to_hub")  # no client speaks it
]


@pytest.mark.parametrize(("source", "of"), REPLACED, ids=[" ".join(case) for case in REPLACED])
@settings(QUICK, max_examples=120)
@given(data=st.data())
def test_a_valid_document_with_one_replaced_value_is_converted_or_fails_cleanly(
    source: str, of: str, data: st.DataObject
) -> None:
    document = data.draw(st.sampled_from(examples(source, of)).flatmap(with_one_replaced))
    before = copy.deepcopy(document)
    for target in CLIENTS:
        note(f"to {target}")
        one, two = mapping(source), mapping(target)
        try:
            if of == "request.to_hub":
                json.dumps(convert_request(one, two, document, Context({"upstream": "up"})).body)
            elif of == "response.to_hub":
                json.dumps(convert_response(one, two, document, Context()).body)
            else:
                converter = StreamConverter(one, two, Context())
                for event in document if isinstance(document, list) else [document]:
                    converter.feed(event)
                converter.finish()
        except TollgateError as error:
            assert error.status == (400 if of == "request.to_hub" else 500)
        assert document == before


# -- a stream equals the whole answer


@pytest.mark.parametrize("target", CLIENTS)
@QUICK
@given(answer=chat_answers())
def test_a_stream_has_the_parts_of_the_whole_answer(
    target: str, answer: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    whole, chunks = answer
    hub = response_to_hub(mapping("chat"), whole, Context())
    converter = StreamConverter(mapping("chat"), mapping(target), Context())
    events_sent = [data for chunk in chunks for _, data in converter.feed(chunk)]
    events_sent += [data for _, data in converter.finish()]
    streamed = converter.hub
    assert [without_origin(part) for part in streamed["parts"]] == [
        without_origin(part) for part in hub["parts"] if part.get("text") != ""
    ]
    assert (converter.stop, converter.usage) == (hub["stop"], hub["usage"])
    wanted = [part["args"] for part in hub["parts"] if part["kind"] == "tool_call"]
    assert arguments_of_calls(target, events_sent) == wanted


def without_origin(part: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in part.items()
        if key in ("kind", "text", "name", "args", "id") and not (key == "id" and part["kind"] != "tool_call")
    }


def arguments_of_calls(target: str, events_sent: list[Any]) -> list[str]:
    """The arguments of every call, joined from a client's events as its library would."""
    calls: dict[Any, str] = {}
    for event in events_sent:
        if not isinstance(event, dict):
            continue
        if target == "chat":
            for choice in event.get("choices", []):
                for call in choice["delta"].get("tool_calls", []):
                    calls[call["index"]] = calls.get(call["index"], "") + call["function"].get("arguments", "")
        elif target == "messages":
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls[event["index"]] = ""
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
                calls[event["index"]] += event["delta"]["partial_json"]
        elif event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call":
            calls[event["output_index"]] = ""
        elif event["type"] == "response.function_call_arguments.delta":
            calls[event["output_index"]] += event["delta"]
    return list(calls.values())


# -- hub documents converted to a format and back

SCHEMAS = st.just({"type": "object", "properties": {"a": {"type": "string"}}})
TOOLS = st.lists(
    st.builds(
        lambda n, d, s: {"name": f"t{n}", "description": d, "schema": s},
        st.integers(0, 3),
        st.sampled_from(["x", "y"]),
        SCHEMAS,
    ),
    max_size=2,
    unique_by=lambda tool: tool["name"],
)
USER_PARTS = st.lists(
    st.builds(lambda t: {"kind": "text", "text": t}, st.text("abc", min_size=1, max_size=5))
    | st.just({"kind": "image", "mime": "image/png", "data": "AAAA"}),
    min_size=1,
    max_size=2,
)


@st.composite
def hub_requests(draw: Any) -> dict[str, Any]:
    """Hub requests with fields that every protocol can express."""
    turns: list[dict[str, Any]] = [{"role": "user", "parts": draw(USER_PARTS)}]
    for number in range(draw(st.integers(0, 2))):
        calls = [
            {
                "kind": "tool_call",
                "id": f"c{number}_{i}",
                "name": name,
                "args": json.dumps(json.loads(args), separators=(",", ":"), ensure_ascii=False),
            }
            for i, (name, args) in enumerate(draw(CALLS))
        ]
        text = draw(st.sampled_from(["", "so"]))
        parts = ([{"kind": "text", "text": text}] if text else []) + calls or [{"kind": "text", "text": "ok"}]
        turns.append({"role": "assistant", "parts": parts})
        results = [
            {"kind": "tool_result", "id": call["id"], "parts": [{"kind": "text", "text": "42"}]} for call in calls
        ]
        turns.append({"role": "user", "parts": results or [{"kind": "text", "text": "go on"}]})
    made: dict[str, Any] = {"turns": turns, "max_tokens": draw(st.integers(16, 99))}
    if draw(st.booleans()):
        made["system"] = [{"kind": "text", "text": "Be brief."}]
    if tools := draw(TOOLS):
        made["tools"] = tools
        made["tool_choice"] = draw(
            st.sampled_from(
                [
                    {"mode": "auto"},
                    {"mode": "none"},
                    {"mode": "any"},
                    {"mode": "one", "name": tools[0]["name"]},
                ]
            )
        )
    if draw(st.booleans()):
        made["temperature"] = draw(st.sampled_from([0, 0.5, 1]))
    return made


@pytest.mark.parametrize("protocol", CLIENTS)
@QUICK
@given(hub=hub_requests())
def test_a_hub_request_survives_a_conversion_to_a_format_and_back(protocol: str, hub: dict[str, Any]) -> None:
    before = copy.deepcopy(hub)
    body = request_from_hub(mapping(protocol), hub, Context({"upstream": "up"}))
    back = request_to_hub(mapping(protocol), body, Context())
    for part in (part for turn in back.get("turns", []) for part in turn["parts"]):
        if part["kind"] == "image" and part.get("detail") == "auto":
            del part["detail"]  # the default in a protocol that requires a value
    for field in ("system", "turns", "tool_choice", "max_tokens", "temperature"):
        assert back.get(field) == hub.get(field), field
    assert [{key: tool[key] for key in ("name", "description", "schema")} for tool in back.get("tools", [])] == hub.get(
        "tools", []
    )
    assert hub == before
