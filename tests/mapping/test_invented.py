"""An invented wire format, unlike any real one, added by YAML alone: whole and streamed, with tools and errors."""

from __future__ import annotations

import random
import sys
import types

import pytest

from mapping.support import document
from mappings.support import mapping as shipped
from tollgate.config.load import Mark
from tollgate.config.settings import Plugin
from tollgate.errors import ConfigErrors
from tollgate.mapping import (
    Context,
    StreamConverter,
    Tap,
    compile_mapping,
    convert_error,
    convert_request,
    convert_response,
    run_examples,
)
from tollgate.mapping.plugins import load_plugins

# An answer is a score: voices with lines; notes have one-letter types; a stream consists of bars that do not name a
# part.
SCORE = """
mapping: score
about: an invented format
define:
  note($p):
    $match: $p.kind
    text: {t: $p.text}
    image: {x: image, at: {$first: [$p.url, "data:{{ $p.mime }};base64,{{ $p.data }}"]}}
    tool_call: {c: ["{{ $p.id }}", "{{ $p.name }}", "{{ $p.args | parse_json }}"]}
    tool_result: {r: ["{{ $p.id }}", "{{ $p.parts[?(@.kind == 'text')].text | join }}"]}
    $else: {$lost: "part {{ $p.kind }}"}
  heard($n):
    $first:
      - {$when: $n.t is present, kind: text, text: $n.t}
      - {$when: $n.c, kind: tool_call, id: '$n.c[0]', name: '$n.c[1]', args: "{{ $n.c[2] | json }}"}
      - {kind: opaque, of: score, raw: $n}
  counts($k): {$when: $k, input: $k.heard, output: $k.sung}
  end_in($e): {$match: $e, fine: end, dal_segno: tool, cut: length, $else: $e}
request:
  from_hub:
    instrument: $model.upstream
    bars: {$first: [$.max_tokens, 64]}
    key: "{{ $.system[*].text | join(' / ') }}"
    score:
      - $each: $t in $.turns
        voice: {$match: $t.role, user: high, $else: low}
        notes: [{$each: $p in $t.parts, $value: "{{ note($p) }}"}]
    pedals: [{$each: $t in $.tools, $when: $t.name, step: $t.name, does: $t.description, shape: $t.schema}]
    live: {$when: $.stream, $value: true}
response:
  to_hub:
    id: $.opus
    model: $.instrument
    parts: [{$each: $n in $.notes, $value: "{{ heard($n) }}"}]
    stop: "{{ end_in($.end) }}"
    usage: "{{ counts($.ears) }}"
error:
  to_hub: {message: $.wrong.note, type: $.wrong.where}
stream:
  to_hub:
    $match: $.bar
    upbeat: [{start: {id: $.opus, model: $.instrument}}]
    t: [{delta: {kind: text, text: $.la}}]
    hum: [{delta: {kind: reasoning, text: $.la}}]
    c: [{delta: {kind: tool_call, key: $.hand, id: $.id, name: $.step, text: $.la}}]
    coda:
      - {usage: "{{ counts($.ears) }}"}
      - {stop: {reason: "{{ end_in($.end) }}"}}
    wrong: [{error: {message: $.note}}]
examples:
  - name: a question
    of: request.from_hub
    given: {turns: [{role: user, parts: [{kind: text, text: hi}]}]}
    expect: {instrument: up, bars: 64, score: [{voice: high, notes: [{t: hi}]}]}
  - name: a sung call
    of: stream.to_hub
    given:
      - {bar: upbeat, opus: op1, instrument: oboe}
      - {bar: c, hand: 0, id: a, step: f, la: "{}"}
      - {bar: coda, end: fine, ears: {heard: 1, sung: 2}}
    expect: {id: op1, model: oboe, created: 1700000000, parts: [{kind: tool_call, id: a, name: f, args: "{}"}], stop: tool, usage: {input: 1, output: 2}}
"""  # noqa: E501
SCORES = compile_mapping(document(SCORE, "mappings/score.yaml"))
CLIENTS = ("chat", "messages", "responses")


def test_its_own_examples_pass() -> None:
    assert run_examples(SCORES) == [] and SCORES.warnings == ()


def test_a_request_with_tools_and_results_is_converted() -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"k": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "42"},
        ],
    }
    made = convert_request(shipped("chat"), SCORES, body, Context({"upstream": "oboe"}))
    assert made.lost == []
    assert made.body == {
        "instrument": "oboe",
        "bars": 9,
        "key": "Be brief.",
        "pedals": [{"step": "f", "shape": {"type": "object"}}],
        "score": [
            {"voice": "high", "notes": [{"t": "hi"}]},
            {"voice": "low", "notes": [{"c": ["a", "f", {"k": 1}]}]},
            {"voice": "high", "notes": [{"r": ["a", "42"]}]},
        ],
    }


ANSWER = {
    "opus": "op1",
    "instrument": "oboe",
    "notes": [{"t": "la"}, {"c": ["a", "f", {"k": 1}]}],
    "end": "fine",
    "ears": {"heard": 3, "sung": 4},
}
BARS = [
    {"bar": "upbeat", "opus": "op1", "instrument": "oboe"},
    {"bar": "t", "la": "l"},
    {"bar": "t", "la": "a"},
    {"bar": "c", "hand": 0, "id": "a", "step": "f", "la": '{"k"'},
    {"bar": "c", "hand": 0, "la": ":1}"},
    {"bar": "coda", "end": "fine", "ears": {"heard": 3, "sung": 4}},
]


def test_a_whole_answer_is_converted_for_every_client() -> None:
    chat = convert_response(SCORES, shipped("chat"), ANSWER, Context()).body
    message = chat["choices"][0]["message"]
    assert message["content"] == "la" and message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"k":1}'}
    assert chat["choices"][0]["finish_reason"] == "tool_calls" and chat["usage"]["total_tokens"] == 7
    messages = convert_response(SCORES, shipped("messages"), ANSWER, Context()).body
    assert [block["type"] for block in messages["content"]] == ["text", "tool_use"] and messages[
        "stop_reason"
    ] == "tool_use"
    responses = convert_response(SCORES, shipped("responses"), ANSWER, Context()).body
    assert [item["type"] for item in responses["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_streamed_answer_has_the_parts_of_the_whole_one(client: str) -> None:
    converter = StreamConverter(SCORES, shipped(client), Context())
    events = [out for bar in BARS for out in converter.feed(bar)] + converter.finish()
    assert events and converter.error is None
    assert [(part["kind"], part.get("text") or part.get("args")) for part in converter.parts()] == [
        ("text", "la"),
        ("tool_call", '{"k":1}'),
    ]
    assert converter.usage == {"input": 3, "output": 4}


def test_its_errors_and_its_usage_are_read() -> None:
    assert (
        convert_error(SCORES, shipped("messages"), {"wrong": {"note": "flat", "where": "bar 3"}})["error"]["message"]
        == "flat"
    )
    tap = Tap(SCORES)
    for bar in BARS:
        tap.feed(bar)
    assert tap.usage == {"input": 3, "output": 4} and tap.stop == "tool"


# -- the one escape hatch


def plugin(**functions: object) -> Plugin:
    module = types.ModuleType(f"score_plugin_{random.randrange(10**9)}")
    for name, function in functions.items():
        function.__module__ = module.__name__  # type: ignore[attr-defined]
        setattr(module, name, function)
    sys.modules[module.__name__] = module
    return Plugin(module.__name__, Mark("gateway.yaml", 1, 1))


def test_a_plugin_adds_a_filter() -> None:
    def backwards(value: str) -> str:
        return value[::-1]

    text = (
        'mapping: p\nrequest:\n  to_hub: {user: "{{ $.a | backwards }}"}\nexamples:\n  - {name: one, of: '
        "request.to_hub, given: {a: xyz}, expect: {user: zyx}}\n"
    )
    mapping = compile_mapping(document(text), plugins=load_plugins([plugin(backwards=backwards)]))
    assert run_examples(mapping) == []
    with pytest.raises(ConfigErrors, match="unknown filter `backwards`"):
        compile_mapping(document(text))


def test_a_plugin_that_is_not_pure_is_found_by_the_examples() -> None:
    def count(value: list[int]) -> int:
        value.append(1)
        return len(value)

    numbers = iter(range(100))

    def tick(value: str) -> str:
        return f"{value}{next(numbers)}"

    plugins = load_plugins([plugin(count=count, tick=tick)])
    changing_input = (
        'mapping: p\nrequest:\n  to_hub: {max_tokens: "{{ $.a | count }}"}\nexamples:\n  - {name: one, of: '
        "request.to_hub, given: {a: []}, expect: {max_tokens: 1}}\n"
    )
    assert (
        "changes what it is given"
        in run_examples(compile_mapping(document(changing_input), plugins=plugins))[0].message
    )
    changing_result = (
        'mapping: p\nrequest:\n  to_hub: {user: "{{ $.a | tick }}"}\nexamples:\n  - {name: one, of: request.to_hub, '
        "given: {a: x}, lost: []}\n"
    )
    assert "the second time" in run_examples(compile_mapping(document(changing_result), plugins=plugins))[0].message


LOOSE = """
mapping: loose
response:
  to_hub:
    parts:
      - {kind: text, text: $.say}
      - {$each: $c in $.calls, kind: tool_call, id: $c.no, name: $c.fn, args: $c.in}
    stop: $.why
stream:
  to_hub:
    always:
      - {delta: {kind: text, text: $.say}}
      - {$each: $c in $.calls, part: {kind: tool_call, id: $c.no, name: $c.fn, args: $c.in}}
      - {stop: {reason: $.why}}
"""


@pytest.mark.parametrize("said", [5, 0.5, True, ["a"], {"x": 1}], ids=str)
def test_a_text_of_another_kind_is_the_same_text_in_a_whole_answer_and_in_a_stream(said: object) -> None:
    source, answer = compile_mapping(document(LOOSE)), {"say": said, "why": "end"}
    streamed = StreamConverter(source, shipped("messages"), Context())
    events = [*streamed.feed(answer), *streamed.finish()]
    text = "".join(event["delta"]["text"] for _, event in events if event["type"] == "content_block_delta")
    for client, read in (
        ("messages", lambda made: made["content"][0]["text"]),
        ("responses", lambda made: made["output"][0]["content"][0]["text"]),
        ("chat", lambda made: made["choices"][0]["message"]["content"]),
    ):
        made = convert_response(source, shipped(client), answer, Context()).body
        assert read(made) == text, client


def test_the_id_of_a_call_is_a_text_where_the_upstream_has_a_number() -> None:
    source = compile_mapping(document(LOOSE))
    made = convert_response(source, shipped("messages"), {"calls": [{"no": 5, "fn": "f", "in": "{}"}]}, Context()).body
    assert made["content"] == [{"type": "tool_use", "id": "5", "name": "f", "input": {}}]


@pytest.mark.parametrize(("why", "complete"), [(3, True), (0, True), (True, True), (False, False), (None, False)])
def test_a_stop_without_a_word_ends_a_stream(why: object, complete: bool) -> None:
    streamed = StreamConverter(compile_mapping(document(LOOSE)), shipped("messages"), Context())
    events = [*streamed.feed({"say": "Hi", "why": why}), *streamed.finish()]
    assert events[-1][0] == ("message_stop" if complete else "error")
