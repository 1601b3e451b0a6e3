"""`request.harmless`: places that may go unread without being named as lost;
and what the shipped lists leave to say."""

from __future__ import annotations

from typing import Any

import pytest

from mappings.support import context, mapping
from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import compile_mapping, convert_request

FILE = """
mapping: odd
request:
  harmless: {{to_hub: {places}}}
  to_hub: {{model: $.model, turns: [{{$each: $i in $.input, role: user, parts: [{{kind: text, text: $i.text}}]}}]}}
  from_hub: {{model: $model.upstream, input: [{{$each: $t in $.turns, text: "$t.parts[*].text"}}]}}
"""


def lost(places: str, body: dict[str, Any]) -> list[str]:
    odd = compile_mapping(read_text(FILE.format(places=places), "odd.yaml"))
    return convert_request(odd, odd, body, context()).lost


BODY = {"model": "m", "colour": "red", "input": [{"text": "a", "id": "i1", "extra": 1}]}


def test_what_nobody_reads_is_named() -> None:
    assert lost("[]", BODY) == ["colour", "input[].id", "input[].extra", "turns[].role"]


def test_a_harmless_place_is_not() -> None:
    assert lost("[colour, 'input[].id']", BODY) == ["input[].extra", "turns[].role"]


@pytest.mark.parametrize(
    ("says", "named"),
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
def test_a_place_may_be_harmless_with_one_value_alone(says: dict[str, Any], named: list[str]) -> None:
    places = "[{min_p: 0}, {tell: {usage: true}}, {deep.down: a}, {deep.down: b}, deep.read, turns]"
    body = {"model": "m", "input": [{"text": "a"}], **says}
    assert [words for words in lost(places, body) if words != "turns[].role"] == named


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_what_is_empty_says_nothing(empty: object) -> None:
    assert lost("[]", {"model": "m", "colour": empty, "input": [{"text": "a", "id": empty}]}) == ["turns[].role"]


def test_what_holds_anyway_loses_nothing_towards_claude() -> None:
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
    told = {"min_p": 0.1, "repetition_penalty": 1.1, "include_reasoning": False}
    assert convert_request(mapping("chat"), mapping("messages"), chat | told, context()).lost == [
        "min_p",
        "repetition_penalty",
        "include_reasoning",
    ]


@pytest.mark.parametrize("upstream", ["messages", "responses", "bedrock"])
def test_a_penalty_of_nothing_is_none(upstream: str) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    none = {"presence_penalty": 0, "frequency_penalty": 0.0}
    assert convert_request(mapping("chat"), mapping(upstream), chat | none, context()).lost == []
    some = {"presence_penalty": 0.1, "frequency_penalty": -1}
    assert set(convert_request(mapping("chat"), mapping(upstream), chat | some, context()).lost) == set(some)


@pytest.mark.parametrize("upstream", ["messages", "responses", "gemini", "bedrock"])
def test_what_the_official_library_parsed_of_an_answer_is_a_copy_of_it(upstream: str) -> None:
    # Its `parse` and `stream` put these into the message, and sending that back sends them.
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
    ("written", "said"),
    [
        ("[{'a[].b': 1}]", "outside of lists"),
        ("colour", "list of places"),
        ("['$.colour']", "field names with dots"),
        ("[1]", "field names with dots"),
        ("['input[0]']", "field names with dots"),
    ],
    ids=["a value in a list", "no list", "a path", "a number", "an index"],
)
def test_a_wrong_list_is_a_mistake(written: str, said: str) -> None:
    with pytest.raises(ConfigErrors, match=said):
        compile_mapping(read_text(FILE.format(places=written), "odd.yaml"))


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
def test_an_agents_everyday_request_loses_only_its_cache_key(upstream: str) -> None:
    named = convert_request(mapping("responses"), mapping(upstream), AGENT, context()).lost
    thinking = [words for words in named if words.startswith("thinking")]  # its tool turn carries no signature
    assert [words for words in named if words not in thinking] == ([] if upstream == "chat" else ["prompt_cache_key"])
