"""The stream state machine: parts keyed by place and id, one open at a time, held back when they interleave."""

from __future__ import annotations

from typing import Any

import pytest

from mapping.support import document
from tollgate.mapping import Context, Mapping, StreamConverter, Tap, compile_mapping, run_examples
from tollgate.mapping.streams.run import Run

SOURCE = """
mapping: plain
stream:
  to_hub:
    always:
      - {$when: $.error, error: {message: $.error.message}}
      - {start: {id: $.id, model: $.model, created: $.created}}
      - $let: {d: $.d}
        $when: $d
        do:
          - {delta: {kind: reasoning, text: $d.think, token: $d.sign}}
          - {delta: {kind: text, text: $d.text}}
          - $each: $c in $d.calls
            delta: {kind: tool_call, key: $c.index, id: $c.id, name: $c.name, text: $c.args}
          - {$when: $d.image, part: {kind: image, url: $d.image}}
      - {$when: $.stop, stop: {reason: $.stop}}
      - {$when: $.usage, usage: $.usage}
"""
MARKED = """
mapping: marked
stream:
  to_hub:
    $match: $.type
    begin: [{start: {id: $.id}}]
    open: [{open: {kind: $.kind, key: $.key, id: $.id, name: $.name, token: $.token}}]
    more: [{delta: {kind: $.kind, key: $.key, text: $.text}}]
    over: [{close: {key: $.key}}]
    done: [{stop: {reason: end}}]
"""
TARGET = """
mapping: told
stream:
  from_hub:
    event: type
    stamp: {n: $seq}
    start: [{type: start, id: $run.id}]
    text:
      open: [{type: open, i: $part.index, kind: text}]
      delta: [{type: text, i: $part.index, t: $delta}]
      close: [{type: close, i: $part.index, all: $part.text}]
    reasoning:
      open: [{type: open, i: $part.index, kind: reasoning}]
      delta: [{type: think, i: $part.index, t: $delta}]
      close: [{type: close, i: $part.index, token: $part.token}]
    tool_call:
      open: [{type: open, i: $part.index, kind: tool_call, nth: $part.nth, id: $part.id, name: $part.name}]
      delta: [{type: args, i: $part.index, t: $delta}]
      close: [{type: close, i: $part.index, all: $part.args}]
    finish: [{type: finish, stop: $run.stop, usage: $run.usage}]
    error: [{type: error, message: $error.message}]
    end: bye
"""


def mapping(text: str) -> Mapping:
    return compile_mapping(document(text))


PLAIN, EXPLICIT, TOLD = mapping(SOURCE), mapping(MARKED), mapping(TARGET)


def say(events: list[Any], source: Mapping = PLAIN, *, finish: bool = True) -> list[Any]:
    converter = StreamConverter(source, TOLD, Context(run_id="r1", now=5))
    said = [out for event in events for out in converter.feed(event)]
    if finish:
        said += converter.finish()
    for name, data in said:
        assert name == (data.get("type") if isinstance(data, dict) else None)
    numbers = [data["n"] for _, data in said if isinstance(data, dict)]
    assert numbers == list(range(len(numbers))), "every event is numbered, without gaps"
    return [
        {key: value for key, value in data.items() if key != "n"} if isinstance(data, dict) else data
        for _, data in said
    ]


def shape(said: list[Any]) -> list[str]:
    """Events in short: `open0 args0 close0`."""
    return [f"{event['type']}{event.get('i', '')}" if isinstance(event, dict) else event for event in said]


def arguments(said: list[Any]) -> dict[int, str]:
    calls: dict[int, str] = {}
    for event in said:
        if isinstance(event, dict) and event["type"] == "args":
            calls[event["i"]] = calls.get(event["i"], "") + event["t"]
    return calls


def call(index: Any = None, id: Any = None, name: Any = None, args: Any = None) -> dict[str, Any]:
    return {"id": "a", "d": {"calls": [{"index": index, "id": id, "name": name, "args": args}]}}


def test_text_then_finish() -> None:
    said = say(
        [
            {"id": "a", "d": {"text": "Hel"}},
            {"id": "a", "d": {"text": "lo"}},
            {"stop": "end", "usage": {"input": 1}},
            {"usage": {"output": 2}},
        ]
    )
    assert said == [
        {"type": "start", "id": "a"},
        {"type": "open", "i": 0, "kind": "text"},
        {"type": "text", "i": 0, "t": "Hel"},
        {"type": "text", "i": 0, "t": "lo"},
        {"type": "close", "i": 0, "all": "Hello"},
        {"type": "finish", "stop": "end", "usage": {"input": 1, "output": 2}},
        "bye",
    ]


def test_an_answer_of_parts_without_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollgate.mapping.streams.parts.MOST_PARTS", 3)
    said = say([call(index, f"c{index}", "f", "{}") for index in range(9)], finish=False)
    assert [shape(said)[-1], *(event["nth"] for event in said if event["type"] == "open")] == ["error", 0, 1, 2]


def test_a_null_in_a_list_that_an_operation_walks_over_is_no_item() -> None:
    lines = "mapping: listed\nstream:\n  to_hub:\n    always:\n"
    each = """      - {$each: $t in $.texts, delta: {kind: text, text: "{{ $t.said or 'nothing' }}"}}\n"""
    said = say([{"texts": [None, {"said": "one"}, None, {}]}], mapping(lines + each), finish=False)
    assert [event["t"] for event in said if event["type"] == "text"] == ["one", "nothing"]


def test_a_hollow_first_event_starts_nothing() -> None:
    said = say([{"id": "", "created": 0}, {"id": "real", "d": {"text": "x"}}, {"stop": "end"}])
    assert said[0] == {"type": "start", "id": "real"}


def test_an_id_that_never_comes_is_made() -> None:
    assert say([{"d": {"text": "x"}}, {"stop": "end"}])[0] == {"type": "start", "id": "r1"}


def test_usage_last_value_wins_per_member() -> None:
    said = say(
        [
            {"id": "a", "usage": {"input": 3, "output": 1}},
            {"usage": {"output": 9}},
            {"usage": {"input": 4, "output": None}},
            {"stop": "end"},
        ]
    )
    assert said[-2]["usage"] == {"input": 4, "output": 9}


def test_a_part_of_another_kind_closes_the_open_one() -> None:
    said = say([{"id": "a", "d": {"think": "a"}}, {"d": {"text": "b"}}, {"d": {"think": "c"}}, {"stop": "end"}])
    assert shape(said) == [
        "start",
        "open0",
        "think0",
        "close0",
        "open1",
        "text1",
        "close1",
        "open2",
        "think2",
        "close2",
        "finish",
        "bye",
    ]


def test_reasoning_with_only_a_signature_is_kept() -> None:
    said = say([{"id": "a", "d": {"sign": "S1"}}, {"d": {"sign": "S2"}}, {"d": {"text": "b"}}, {"stop": "end"}])
    assert said[1:3] == [{"type": "open", "i": 0, "kind": "reasoning"}, {"type": "close", "i": 0, "token": "S2"}]


def test_empty_deltas_and_empty_parts_say_nothing() -> None:
    said = say([{"id": "a", "d": {"text": ""}}, {"d": {"think": "", "calls": []}}, {"stop": "end"}])
    assert shape(said) == ["start", "finish", "bye"]
    assert shape(
        say([{"type": "open", "kind": "text", "key": 0}, {"type": "over", "key": 0}, {"type": "done"}], EXPLICIT)
    ) == ["start", "finish", "bye"]


TOOL_SHAPES = {
    "id and name first, then fragments": [
        call(0, "c1", "f", ""),
        call(0, None, None, '{"a"'),
        call(0, None, None, ":1}"),
    ],
    "whole in one event": [call(0, "c1", "f", '{"a":1}')],
    "without index": [call(None, "c1", "f", '{"a":1}')],
    "null arguments first, null name later": [call(0, "c1", "f", None), call(0, "c1", None, '{"a":1}')],
    "id and name repeated": [call(0, "c1", "f", '{"a"'), call(0, "c1", "f", ":1}")],
    "neither index nor id continues": [call(0, "c1", "f", '{"a"'), call(None, None, None, ":1}")],
    "empty id and name on later fragments": [call(0, "c1", "f", '{"a"'), call(0, "", "", ":1}")],
    "name after the first fragment": [call(0, "c1", None, '{"a"'), call(0, None, "f", ":1}")],
}


@pytest.mark.parametrize("name", TOOL_SHAPES)
def test_tool_call_shapes(name: str) -> None:
    said = say([*TOOL_SHAPES[name], {"stop": "end"}])
    assert arguments(said) == {0: '{"a":1}'}
    assert [event for event in said if event != "bye" and event["type"] == "open"] == [
        {"type": "open", "i": 0, "kind": "tool_call", "nth": 0, "id": "c1", "name": "f"}
    ]
    assert said[-2]["stop"] == "tool", "the content decides the stop reason"


PARALLEL = {
    "in order": [call(0, "c1", "f", '{"a":1}'), call(1, "c2", "g", '{"b":2}')],
    "new id under a used index": [call(0, "c1", "f", '{"a":1}'), call(0, "c2", "g", '{"b":2}')],
    "two ids without index": [call(None, "c1", "f", '{"a":1}'), call(None, "c2", "g", '{"b":2}')],
    "interleaved": [
        call(0, "c1", "f", '{"a"'),
        call(1, "c2", "g", '{"b"'),
        call(0, None, None, ":1}"),
        call(1, None, None, ":2}"),
    ],
    "announced first": [
        call(0, "c1", "f", ""),
        call(1, "c2", "g", ""),
        call(0, None, None, '{"a":1}'),
        call(1, None, None, '{"b":2}'),
    ],
    "announced first, answered backwards": [
        call(0, "c1", "f", ""),
        call(1, "c2", "g", ""),
        call(1, None, None, '{"b":2}'),
        call(0, None, None, '{"a":1}'),
    ],
}


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_calls_are_never_merged(name: str) -> None:
    said = say([*PARALLEL[name], {"stop": "end"}])
    assert arguments(said) == {0: '{"a":1}', 1: '{"b":2}'}
    order = [step for step in shape(said) if not step.startswith("args")]
    assert order == ["start", "open0", "close0", "open1", "close1", "finish", "bye"]
    assert [event["id"] for event in said if event != "bye" and event["type"] == "open"] == ["c1", "c2"]


def test_parallel_calls_stream_while_they_come() -> None:
    said = say([call(0, "c1", "f", '{"a":1}'), call(1, "c2", "g", '{"b"')], finish=False)
    assert shape(said)[-3:] == ["close0", "open1", "args1"], "a call whose arguments are whole needs no waiting"


def test_calls_told_in_turns_are_not_read_again_for_each_piece() -> None:
    """Quadratic, these take a minute."""
    turns = [call(0, None, None, ',"x":{}'), call(1, None, None, ',"y":{}')] * 50_000
    begun = [call(0, "c1", "f", '{"a":1'), call(1, "c2", "g", '{"b":2')]
    said = say([*begun, *turns, call(0, None, None, "}"), call(1, None, None, "}")], finish=False)
    assert arguments(said) == {0: '{"a":1' + ',"x":{}' * 50_000 + "}", 1: '{"b":2' + ',"y":{}' * 50_000 + "}"}
    assert shape(said)[-3:] == ["open1", "args1", "args1"], "the second was told when the first was whole"


@pytest.mark.parametrize("first", ["", None])
def test_a_call_without_arguments_has_an_empty_object(first: str | None) -> None:
    assert arguments(say([call(0, "0", "f", first), {"stop": "tool"}])) == {0: "{}"}


def test_a_fragment_with_another_id_and_no_name_goes_on() -> None:
    said = say([call(0, "c1", "f", '{"a":'), call(0, "c2", None, "1}"), call(0, "c3", "g", "{}"), {"stop": "tool"}])
    assert arguments(said) == {0: '{"a":1}', 1: "{}"}
    assert [event["id"] for event in said if isinstance(event, dict) and event["type"] == "open"] == ["c1", "c3"]


def test_a_call_without_id_gets_one() -> None:
    said = say([call(0, None, "f", "{}"), {"stop": "end"}])
    assert said[1]["id"] == "call_a_0"


def test_text_beside_a_call_keeps_both() -> None:
    said = say(
        [
            {"id": "a", "d": {"text": "hm", "calls": [{"index": 0, "id": "c", "name": "f", "args": "{}"}]}},
            {"stop": "length"},
        ]
    )
    assert shape(said) == ["start", "open0", "text0", "close0", "open1", "args1", "close1", "finish", "bye"]
    assert said[-2]["stop"] == "length"


def test_a_tool_stop_without_calls_is_an_end() -> None:
    assert say([{"id": "a", "d": {"text": "x"}}, {"stop": "tool"}])[-2]["stop"] == "end"


def test_explicit_parts_that_interleave_are_held() -> None:
    said = say(
        [
            {"type": "begin", "id": "a"},
            {"type": "open", "kind": "text", "key": 0},
            {"type": "open", "kind": "tool_call", "key": 1, "id": "c", "name": "f"},
            {"type": "more", "kind": "text", "key": 0, "text": "one"},
            {"type": "more", "kind": "tool_call", "key": 1, "text": "{}"},
            {"type": "over", "key": 1},
            {"type": "more", "kind": "text", "key": 0, "text": " two"},
            {"type": "over", "key": 0},
            {"type": "done"},
        ],
        EXPLICIT,
    )
    assert shape(said) == ["start", "open0", "text0", "text0", "close0", "open1", "args1", "close1", "finish", "bye"]


def test_an_upstream_that_dies_is_told() -> None:
    said = say([{"id": "a", "d": {"text": "x"}}])
    assert said[-2:] == [
        {"type": "close", "i": 0, "all": "x"},
        {"type": "error", "message": "the upstream ended before the answer was finished"},
    ]


def test_an_end_mark_without_a_stop_reason_is_an_end() -> None:
    said = say([{"id": "a", "d": {"text": "x"}}, "[DONE]"])
    assert said[-2]["type"] == "finish" and said[-2]["stop"] == "end"


def test_an_error_ends_the_stream_and_usage_still_counts() -> None:
    converter = StreamConverter(PLAIN, TOLD, Context())
    converter.feed({"id": "a", "d": {"text": "x"}})
    said = converter.feed({"error": {"message": "boom"}, "d": {"text": "more"}})
    assert [data["type"] for _, data in said] == ["close", "error"]
    assert converter.feed({"d": {"text": "y"}, "usage": {"output": 3}}) == []
    assert converter.finish() == [] and converter.fail("again") == []
    assert converter.usage == {"output": 3} and converter.error == {"message": "boom"}


def test_an_error_before_anything_does_not_start_the_answer() -> None:
    converter = StreamConverter(PLAIN, TOLD, Context())
    said = converter.feed({"error": {"message": "boom"}})
    assert [data["type"] for _, data in said] == ["error"] and not converter.started


@pytest.mark.parametrize("error", [{"message": ""}, {"type": "overloaded_error"}])
def test_an_error_without_words_is_told_in_ours(error: dict[str, str]) -> None:
    converter = StreamConverter(PLAIN, TOLD, Context())
    assert [data["message"] for _, data in converter.feed({"error": error})] == ["upstream error"]


def test_fail_is_told_once() -> None:
    converter = StreamConverter(PLAIN, TOLD, Context())
    converter.feed({"id": "a", "d": {"text": "x"}})
    assert [data["type"] for _, data in converter.fail("gone", "timeout_error")] == ["close", "error"]
    assert converter.fail("gone") == []


def test_a_kind_the_client_has_no_words_for_is_lost_and_said() -> None:
    converter = StreamConverter(PLAIN, TOLD, Context())
    converter.feed({"id": "a", "d": {"image": "https://x"}})
    assert converter.lost == ["image of the answer"]


def test_unknown_events_are_counted() -> None:
    converter = StreamConverter(EXPLICIT, TOLD, Context())
    converter.feed({"type": "novelty"})
    converter.feed({"type": "novelty"})
    assert converter.unmatched == {"novelty": 2} and converter.lost == ["stream event novelty"]


@pytest.mark.parametrize(("label", "told"), [(True, {"true": 1}), (7, {"7": 1}), (None, {}), ({"a": 1}, {})])
def test_an_event_is_named_by_what_no_label_can_be_too(label: object, told: dict[str, int]) -> None:
    converter = StreamConverter(EXPLICIT, TOLD, Context())
    converter.feed({"type": label})
    assert converter.unmatched == told


def test_a_tap_watches_and_never_raises() -> None:
    tap = Tap(PLAIN)
    for event in (
        {"id": "a", "d": {"text": "four"}},
        [],
        None,
        "x",
        {"d": 3},
        call(0, "c", "f", "{}"),
        {"stop": "end", "usage": {"input": 1}},
    ):
        tap.feed(event)
    assert (tap.usage, tap.stop) == ({"input": 1}, "tool")
    assert tap.parts()[0] == {"kind": "text", "text": "four"}


SO_FAR = """
mapping: so-far
stream:
  to_hub:
    always:
      - {delta: {kind: text, so_far: $.all}}
      - {$each: $c in $.calls, delta: {kind: tool_call, key: $c.nr, name: $c.name, so_far: $c.args}}
      - {stop: {reason: $.why}}
"""


def told_so_far(*events: dict[str, Any]) -> StreamConverter:
    converter = StreamConverter(compile_mapping(document(SO_FAR)), compile_mapping(document(TARGET)), Context())
    for event in events:
        converter.feed(event)
    converter.finish()
    return converter


def test_of_a_text_told_from_its_beginning_each_time_only_the_news_is_told() -> None:
    converter = told_so_far(
        {"all": "Hel"},
        {"all": "Hel"},
        {},
        {"all": "Hello"},
        {"all": "Hello", "calls": [{"nr": 0, "name": "f", "args": '{"a"'}, {"nr": 1, "name": "g", "args": "{"}]},
        {
            "all": "Hello",
            "calls": [{"nr": 0, "name": "f", "args": '{"a":1}'}, {"nr": 1, "name": "g", "args": "{}"}],
            "why": "tool",
        },
    )
    assert [(part["kind"], part.get("text") or part.get("args")) for part in converter.parts()] == [
        ("text", "Hello"),
        ("tool_call", '{"a":1}'),
        ("tool_call", "{}"),
    ]
    assert converter.lost == []


def test_text_that_was_changed_after_it_was_told_is_named() -> None:
    converter = told_so_far({"all": "Hello"}, {"all": "Hi"}, {"all": "Hello!"}, {"why": "end"})
    assert converter.parts()[0]["text"] == "Hello!"
    assert converter.lost == ["text that the provider changed after it was sent"]


LEAFWISE = """
mapping: leafwise
stream:
  to_hub:
    always:
      - $each: $c in $.calls
        delta:
          kind: tool_call
          key: $c.nr
          name: $c.name
          leaves: [{$each: $l in $c.leaves, $copy: {$l: [path, value, more]}}, {$when: $c.done, last: true}]
      - {stop: {reason: $.why}}
"""


def test_calls_told_leaf_by_leaf_grow_side_by_side_and_a_leaf_out_of_place_is_named() -> None:
    converter = StreamConverter(compile_mapping(document(LEAFWISE)), compile_mapping(document(TARGET)), Context())
    for event in (
        {"calls": [{"nr": 0, "name": "f"}, {"nr": 1, "name": "g"}]},
        {"calls": [{"nr": 0, "leaves": [{"path": "$.a", "value": "x", "more": True}]}]},
        {"calls": [{"nr": 1, "leaves": [{"path": "$.b[0]", "value": 1}, {"path": "$.b[5]", "value": 2}]}]},
        {"calls": [{"nr": 0, "leaves": [{"path": "$.a", "value": "y"}], "done": True}, {"nr": 1, "done": True}]},
        {"why": "tool"},
    ):
        converter.feed(event)
    converter.finish()
    assert [part["args"] for part in converter.parts()] == ['{"a":"xy"}', '{"b":[1]}']
    assert converter.lost == ["tool_call at $.b[5]"]


def test_an_example_may_give_an_event_its_name() -> None:
    text = """
mapping: named
stream:
  to_hub:
    $match: $event
    output: [{delta: {kind: text, text: $}}]
    done: [{stop: {reason: end}}]
examples:
  - name: plain texts under names
    of: stream.to_hub
    given: [{$event: output, data: "Hel"}, {$event: output, data: "lo"}, {$event: done, data: {}}]
    expect: {id: run_1, model: up, created: 1700000000, parts: [{kind: text, text: Hello}], stop: end}
"""
    assert run_examples(compile_mapping(document(text))) == []


def test_the_answer_so_far_is_looked_at_only_where_a_condition_comes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "$.last and $whole.parts[*].text"
    source = (
        f"mapping: looking\nstream:\n  to_hub:\n    always:\n      - {{delta: {{kind: text, text: $.t}}}}\n      - "
        f"{{$when: '{rule}', stop: {{reason: end}}}}\n"
    )
    looks: list[int] = []
    whole = Run.whole
    monkeypatch.setattr(Run, "whole", lambda run: looks.append(1) or whole(run))
    converter = StreamConverter(compile_mapping(document(source)), TOLD, Context())
    for event in ({"t": "a"}, {"t": "b"}, {"t": "c", "last": True}):
        converter.feed(event)
    assert converter.stop == "end" and len(looks) == 1


def test_a_part_that_is_lost_is_not_told_and_takes_no_place() -> None:
    lost = "    reasoning:\n      lost: \"{{ 'an afterthought' if not $part.text and $whole.parts }}\"\n"
    told = mapping(TARGET.replace("    reasoning:\n", lost))
    converter = StreamConverter(PLAIN, told, Context())
    events = [
        {"d": {"think": "hm"}},
        {"d": {"text": "a"}},
        {"d": {"sign": "S"}},
        call("0", "c", "f", "{}"),
        {"stop": "tool"},
    ]
    said = [data for event in events for _, data in converter.feed(event)]
    assert shape(said)[1:] == ["open0", "think0", "close0", "open1", "text1", "close1", "open2", "args2"]
    assert converter.lost == ["an afterthought"]
    assert [part["kind"] for part in converter.parts()] == ["reasoning", "text", "reasoning", "tool_call"]


def test_names_beside_the_rules_hold_for_all_of_them() -> None:
    source = mapping("""
mapping: named
stream:
  to_hub:
    $let: {c: "$.choices[0]"}
    always: [{delta: {kind: text, text: $c.text}}]
    $match: $c.end
    $absent: []
    $else: [{stop: {reason: $c.end}}]
""")
    said = say([{"choices": [{"text": "Hi"}]}, {"choices": [{"text": "!", "end": "length"}]}], source)
    assert [data["t"] for data in said if isinstance(data, dict) and data["type"] == "text"] == ["Hi", "!"]
    assert said[-2]["stop"] == "length"


def test_a_call_that_is_opened_again_with_every_piece_is_one_call() -> None:
    pieces = [("a", "{"), ("b", '{"y":'), ("a", "}"), ("b", "2}")]
    events = [
        event
        for id, text in pieces
        for event in (
            {"type": "open", "kind": "tool_call", "key": "one for all", "id": id, "name": f"f_{id}"},
            {"type": "more", "kind": "tool_call", "key": "one for all", "text": text},
        )
    ]
    said = say([*events, {"type": "done"}], EXPLICIT)
    assert [data["id"] for data in said if isinstance(data, dict) and data["type"] == "open"] == ["a", "b"]
    assert [data["all"] for data in said if isinstance(data, dict) and data["type"] == "close"] == ["{}", '{"y":2}']


READ_BETWEEN_RULES = """
    - {$when: $.u, usage: {input: $.u}}
    - {$when: $whole.usage.input == 1, lost: one}
    - {$when: $.v, usage: {input: $.v}}
    - {$when: $whole.usage.input == 2, lost: two}
"""
READ_IN_A_LOOP = """
    - {$when: "$whole.parts[0].text", lost: none yet}
    - $each: $t in $.t
      do:
        - {$when: "$whole.parts[0].text == 'a'", lost: one}
        - {delta: {kind: text, text: $t}}
    - {$when: "$whole.parts[0].text == 'ab'", lost: two}
"""


@pytest.mark.parametrize(
    ("rules", "event"),
    [(READ_BETWEEN_RULES, {"u": 1, "v": 2}), (READ_IN_A_LOOP, {"t": ["a", "b"]})],
    ids=["between rules", "between the rounds of a loop"],
)
def test_rules_read_what_the_rules_before_them_did(rules: str, event: dict[str, Any]) -> None:
    context = Context()
    converter = StreamConverter(mapping(f"mapping: s\nstream:\n  to_hub:{rules}"), TOLD, context)
    converter.feed(event)
    assert converter.failure is None and context.lost == ["one", "two"]
