"""`request.harmless`: fields that may go unread without being reported as lost, and the lists that ship."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, mapping
from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import compile_mapping, convert_request

FILE = """
mapping: own
request:
  harmless: {{to_hub: {places}}}
  to_hub: {{model: $.model, turns: [{{$each: $i in $.input, role: user, parts: [{{kind: text, text: $i.text}}]}}]}}
  from_hub: {{model: $model.upstream, input: [{{$each: $t in $.turns, text: "$t.parts[*].text"}}]}}
"""


def lost(places: str, body: dict[str, Any]) -> list[str]:
    own = compile_mapping(read_text(FILE.format(places=places), "own.yaml"))
    return convert_request(own, own, body, context()).lost


BODY = {"model": "m", "colour": "red", "input": [{"text": "a", "id": "i1", "extra": 1}]}


def test_fields_that_are_not_read_are_reported() -> None:
    assert lost("[]", BODY) == ["colour", "input[].id", "input[].extra", "turns[].role"]


def test_harmless_fields_are_not_reported() -> None:
    assert lost("[colour, 'input[].id']", BODY) == ["input[].extra", "turns[].role"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"min_p": 0}, []),
        ({"min_p": 0.0}, []),
        ({"min_p": 0.1}, ["min_p"]),
        ({"min_p": False}, ["min_p"]),
        ({"tell": {"usage": True}}, []),
        ({"tell": {"usage": True, "time": True}}, ["tell"]),
        ({"tell": {"usage": 1}}, []),
        ({"deep": {"down": "a", "read": 1}}, []),
        ({"deep": {"down": "b", "read": 1}}, []),
        ({"deep": {"down": "c", "read": 1}}, ["deep.down"]),
    ],
)
def test_a_field_may_be_harmless_with_one_value_only(fields: dict[str, Any], named: list[str]) -> None:
    places = "[{min_p: 0}, {tell: {usage: true}}, {deep.down: a}, {deep.down: b}, deep.read, turns]"
    body = {"model": "m", "input": [{"text": "a"}], **fields}
    assert [words for words in lost(places, body) if words != "turns[].role"] == named


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_empty_values_are_not_reported(empty: object) -> None:
    assert lost("[]", {"model": "m", "colour": empty, "input": [{"text": "a", "id": empty}]}) == ["turns[].role"]


def test_default_values_are_not_reported_as_lost_to_claude() -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    idle = {
        "min_p": 0,
        "repetition_penalty": 1,
        "top_k": -1,
        "user": "",
        "include_reasoning": True,
        "reasoning": {"exclude": False},
        "usage": {"include": True},
    }
    assert convert_request(mapping("chat"), mapping("messages"), chat | idle, context()).lost == []
    set_values = {"min_p": 0.1, "repetition_penalty": 1.1, "include_reasoning": False}
    assert convert_request(mapping("chat"), mapping("messages"), chat | set_values, context()).lost == [
        "min_p",
        "repetition_penalty",
        "include_reasoning",
    ]


@pytest.mark.parametrize("upstream", ["messages", "responses", "bedrock"])
def test_a_penalty_of_zero_is_not_reported(upstream: str) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    none = {"presence_penalty": 0, "frequency_penalty": 0.0}
    assert convert_request(mapping("chat"), mapping(upstream), chat | none, context()).lost == []
    some = {"presence_penalty": 0.1, "frequency_penalty": -1}
    assert set(convert_request(mapping("chat"), mapping(upstream), chat | some, context()).lost) == set(some)


@pytest.mark.parametrize("upstream", ["messages", "responses", "gemini", "bedrock"])
def test_fields_added_by_the_official_librarys_parser_are_not_reported(upstream: str) -> None:
    # `parse` and `stream` add these to the message, and the client sends them back
    call = {"name": "f", "arguments": '{"a": 1}', "parsed_arguments": {"a": 1}}
    turns = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": '{"b": 2}',
            "parsed": {"b": 2},
            "tool_calls": [{"id": "c1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    body = {"model": "m", "messages": turns, "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert convert_request(mapping("chat"), mapping(upstream), body, context()).lost == []


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[{'a[].b': 1}]", "outside of lists"),
        ("colour", "list of places"),
        ("['$.colour']", "field names with dots"),
        ("[1]", "field names with dots"),
        ("['input[0]']", "field names with dots"),
    ],
    ids=["a value in a list", "not a list", "a path", "a number", "an index"],
)
def test_an_invalid_list_is_a_config_error(written: str, message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        compile_mapping(read_text(FILE.format(places=written), "own.yaml"))


AGENT = {
    "model": "m",
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "instructions": "Be an agent.",
    "parallel_tool_calls": True,
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "client_metadata": {"a": "b"},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "tool_choice": "auto",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ],
}


@pytest.mark.parametrize("upstream", ["chat", "messages", "gemini"])
def test_an_agents_usual_request_only_loses_its_cache_key(upstream: str) -> None:
    named = convert_request(mapping("responses"), mapping(upstream), AGENT, context()).lost
    thinking = [words for words in named if words.startswith("thinking")]  # its tool turn is not signed
    assert [words for words in named if words not in thinking] == ([] if upstream == "chat" else ["prompt_cache_key"])
