"""The stream state machine: parts are keyed by position and id, one is open at a time, and interleaved ones are held
back."""

from __future__ import annotations

from typing import Any

import pytest

from mapping.support import document
from tollgate.mapping import CompiledMapping, Context, StreamConverter, Tap, compile_mapping, run_examples
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


def mapping(text: str) -> CompiledMapping:
    return compile_mapping(document(text))


PLAIN, EXPLICIT, CLIENT = mapping(SOURCE), mapping(MARKED), mapping(TARGET)


def converted(events: list[Any], source: CompiledMapping = PLAIN, *, finish: bool = True) -> list[Any]:
    converter = StreamConverter(source, CLIENT, Context(run_id="r1", now=5))
    sent = [out for event in events for out in converter.feed(event)]
    if finish:
        sent += converter.finish()
    for name, data in sent:
        assert name == (data.get("type") if isinstance(data, dict) else None)
    numbers = [data["n"] for _, data in sent if isinstance(data, dict)]
    assert numbers == list(range(len(numbers))), "every event is numbered, without gaps"
    return [
        {key: value for key, value in data.items() if key != "n"} if isinstance(data, dict) else data
        for _, data in sent
    ]


def shape(sent: list[Any]) -> list[str]:
    """Events in short form: `open0 args0 close0`."""
    return [f"{event['type']}{event.get('i', '')}" if isinstance(event, dict) else event for event in sent]


def arguments(sent: list[Any]) -> dict[int, str]:
    calls: dict[int, str] = {}
    for event in sent:
        if isinstance(event, dict) and event["type"] == "args":
            calls[event["i"]] = calls.get(event["i"], "") + event["t"]
    return calls


def call(index: Any = None, id: Any = None, name: Any = None, args: Any = None) -> dict[str, Any]:
    return {"id": "a", "d": {"calls": [{"index": index, "id": id, "name": name, "args": args}]}}


def test_text_is_opened_closed_and_finished() -> None:
    sent = converted(
        [
            {"id": "a", "d": {"text": "Hel"}},
            {"id": "a", "d": {"text": "lo"}},
            {"stop": "end", "usage": {"input": 1}},
            {"usage": {"output": 2}},
        ]
    )
    assert sent == [
        {"type": "start", "id": "a"},
        {"type": "open", "i": 0, "kind": "text"},
        {"type": "text", "i": 0, "t": "Hel"},
        {"type": "text", "i": 0, "t": "lo"},
        {"type": "close", "i": 0, "all": "Hello"},
        {"type": "finish", "stop": "end", "usage": {"input": 1, "output": 2}},
        "bye",
    ]


def test_an_answer_with_too_many_parts_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollgate.mapping.streams.parts.MOST_PARTS", 3)
    sent = converted([call(index, f"c{index}", "f", "{}") for index in range(9)], finish=False)
    assert [shape(sent)[-1], *(event["nth"] for event in sent if event["type"] == "open")] == ["error", 0, 1, 2]


def test_a_null_in_a_looped_list_is_skipped() -> None:
    lines = "mapping: listed\nstream:\n  to_hub:\n    always:\n"
    each = """      - {$each: $t in $.texts, delta: {kind: text, text: "{{ $t.sent or 'nothing' }}"}}\n"""
    sent = converted([{"texts": [None, {"sent": "one"}, None, {}]}], mapping(lines + each), finish=False)
    assert [event["t"] for event in sent if event["type"] == "text"] == ["one", "nothing"]


def test_an_empty_first_event_starts_nothing() -> None:
    sent = converted([{"id": "", "created": 0}, {"id": "real", "d": {"text": "x"}}, {"stop": "end"}])
    assert sent[0] == {"type": "start", "id": "real"}


def test_a_missing_answer_id_is_generated() -> None:
    assert converted([{"d": {"text": "x"}}, {"stop": "end"}])[0] == {"type": "start", "id": "r1"}


def test_the_last_value_of_each_usage_field_wins() -> None:
    sent = converted(
        [
            {"id": "a", "usage": {"input": 3, "output": 1}},
            {"usage": {"output": 9}},
            {"usage": {"input": 4, "output": None}},
            {"stop": "end"},
        ]
    )
    assert sent[-2]["usage"] == {"input": 4, "output": 9}


def test_a_part_of_another_kind_closes_the_open_one() -> None:
    sent = converted([{"id": "a", "d": {"think": "a"}}, {"d": {"text": "b"}}, {"d": {"think": "c"}}, {"stop": "end"}])
    assert shape(sent) == [
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
    sent = converted([{"id": "a", "d": {"sign": "S1"}}, {"d": {"sign": "S2"}}, {"d": {"text": "b"}}, {"stop": "end"}])
    assert sent[1:3] == [{"type": "open", "i": 0, "kind": "reasoning"}, {"type": "close", "i": 0, "token": "S2"}]


def test_empty_deltas_and_empty_parts_send_nothing() -> None:
    sent = converted([{"id": "a", "d": {"text": ""}}, {"d": {"think": "", "calls": []}}, {"stop": "end"}])
    assert shape(sent) == ["start", "finish", "bye"]
    assert shape(
        converted([{"type": "open", "kind": "text", "key": 0}, {"type": "over", "key": 0}, {"type": "done"}], EXPLICIT)
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
    "arguments under another index, with its id": [call(0, "c1", "f", ""), call(1, "c1", None, '{"a":1}')],
    "name after the first fragment": [call(0, "c1", None, '{"a"'), call(0, None, "f", ":1}")],
}


@pytest.mark.parametrize("name", TOOL_SHAPES)
def test_a_tool_call_of_any_shape_is_one_call(name: str) -> None:
    sent = converted([*TOOL_SHAPES[name], {"stop": "end"}])
    assert arguments(sent) == {0: '{"a":1}'}
    assert [event for event in sent if event != "bye" and event["type"] == "open"] == [
        {"type": "open", "i": 0, "kind": "tool_call", "nth": 0, "id": "c1", "name": "f"}
    ]
    assert sent[-2]["stop"] == "tool", "the content determines the stop reason"


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
    "announced first, filled in reverse order": [
        call(0, "c1", "f", ""),
        call(1, "c2", "g", ""),
        call(1, None, None, '{"b":2}'),
        call(0, None, None, '{"a":1}'),
    ],
}


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_calls_are_never_merged(name: str) -> None:
    sent = converted([*PARALLEL[name], {"stop": "end"}])
    assert arguments(sent) == {0: '{"a":1}', 1: '{"b":2}'}
    order = [step for step in shape(sent) if not step.startswith("args")]
    assert order == ["start", "open0", "close0", "open1", "close1", "finish", "bye"]
    assert [event["id"] for event in sent if event != "bye" and event["type"] == "open"] == ["c1", "c2"]


def test_calls_of_one_tool_that_share_an_index_are_not_merged() -> None:
    sent = converted([call(0, "c1", "f", '{"a":1}'), call(0, "c2", "f", '{"a":2}'), {"stop": "end"}])
    assert arguments(sent) == {0: '{"a":1}', 1: '{"a":2}'}


def test_calls_without_ids_that_share_an_index_are_told_apart_by_their_names() -> None:
    sent = converted([call(0, None, "f", '{"a":1}'), call(0, None, "g", '{"a":2}'), {"stop": "end"}])
    assert arguments(sent) == {0: '{"a":1}', 1: '{"a":2}'}


def test_a_call_that_is_sent_once_more_under_another_index_is_one_call() -> None:
    sent = converted([call(0, "c1", "f", '{"a":1}'), call(1, "c1", "f", '{"a":1}'), {"stop": "end"}])
    assert arguments(sent) == {0: '{"a":1}'}


def test_a_call_that_never_gets_a_name_is_lost_and_reported() -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context(run_id="r1", now=5))
    events = [call(0, "c1", None, "{}"), {"d": {"text": "hm"}}, {"stop": "end"}]
    sent = [out for event in events for out in converter.feed(event)] + converter.finish()
    assert shape([data for _, data in sent]) == ["start", "open0", "text0", "close0", "finish", "bye"]
    assert converter.lost == ["a tool call without a name"]


def test_an_id_that_is_a_number_is_sent_as_text() -> None:
    sent = converted([call(0, 7, "f", "{}"), {"stop": "end"}])
    assert [event["id"] for event in sent if event != "bye" and event["type"] == "open"] == ["7"]


KEYED = mapping("""
mapping: keyed
stream:
  to_hub:
    always:
      - {$when: $.over, close: {key: $.key}}
      - {$when: $.kind, delta: {kind: $.kind, key: $.key, id: $.id, name: $.name, text: $.text}}
      - {$when: $.stop, stop: {reason: $.stop}}
""")
"""An upstream whose texts and calls have keys, and which never says that one begins."""
CALL = {"kind": "tool_call", "key": 0, "id": "c1", "name": "f", "text": '{"a":1}'}


def test_a_text_in_the_block_of_a_call_is_a_text_of_its_own() -> None:
    sent = converted([CALL, {"kind": "text", "key": 0, "text": "hm"}, {"stop": "end"}], KEYED)
    assert [event["t"] for event in sent if event != "bye" and event["type"] == "text"] == ["hm"]
    assert arguments(sent) == {0: '{"a":1}'}
    blank = converted([CALL, {"kind": "text", "key": 0, "text": "\n"}, {"stop": "end"}], KEYED)
    assert shape(blank) == ["start", "open0", "args0", "close0", "finish", "bye"]


def test_a_call_under_the_key_of_a_text_that_has_ended_is_a_call() -> None:
    sent = converted([{"kind": "text", "key": 0, "text": "hm"}, {"key": 0, "over": True}, CALL, {"stop": "end"}], KEYED)
    assert arguments(sent) == {1: '{"a":1}'}


def test_parallel_calls_are_sent_as_they_arrive() -> None:
    sent = converted([call(0, "c1", "f", '{"a":1}'), call(1, "c2", "g", '{"b"')], finish=False)
    assert shape(sent)[-3:] == ["close0", "open1", "args1"], "a call with complete arguments does not delay the next"


def test_interleaved_calls_take_linear_time() -> None:
    """In quadratic time this would take a minute."""
    turns = [call(0, None, None, ',"x":{}'), call(1, None, None, ',"y":{}')] * 50_000
    opening = [call(0, "c1", "f", '{"a":1'), call(1, "c2", "g", '{"b":2')]
    sent = converted([*opening, *turns, call(0, None, None, "}"), call(1, None, None, "}")], finish=False)
    assert arguments(sent) == {0: '{"a":1' + ',"x":{}' * 50_000 + "}", 1: '{"b":2' + ',"y":{}' * 50_000 + "}"}
    assert shape(sent)[-3:] == ["open1", "args1", "args1"], "the second is sent once the first is complete"


@pytest.mark.parametrize("first", ["", None])
def test_a_call_without_arguments_has_an_empty_object(first: str | None) -> None:
    assert arguments(converted([call(0, "0", "f", first), {"stop": "tool"}])) == {0: "{}"}


def test_a_fragment_with_another_id_and_no_name_continues_the_call() -> None:
    sent = converted(
        [call(0, "c1", "f", '{"a":'), call(0, "c2", None, "1}"), call(0, "c3", "g", "{}"), {"stop": "tool"}]
    )
    assert arguments(sent) == {0: '{"a":1}', 1: "{}"}
    assert [event["id"] for event in sent if isinstance(event, dict) and event["type"] == "open"] == ["c1", "c3"]


def test_a_call_without_an_id_gets_one() -> None:
    sent = converted([call(0, None, "f", "{}"), {"stop": "end"}])
    assert sent[1]["id"] == "call_a_0"


def test_text_and_a_call_in_one_event_are_both_kept() -> None:
    sent = converted(
        [
            {"id": "a", "d": {"text": "hm", "calls": [{"index": 0, "id": "c", "name": "f", "args": "{}"}]}},
            {"stop": "length"},
        ]
    )
    assert shape(sent) == ["start", "open0", "text0", "close0", "open1", "args1", "close1", "finish", "bye"]
    assert sent[-2]["stop"] == "length"


def test_a_tool_stop_without_calls_is_an_ordinary_end() -> None:
    assert converted([{"id": "a", "d": {"text": "x"}}, {"stop": "tool"}])[-2]["stop"] == "end"


def test_explicit_parts_that_interleave_are_held_back() -> None:
    sent = converted(
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
    assert shape(sent) == ["start", "open0", "text0", "text0", "close0", "open1", "args1", "close1", "finish", "bye"]


def test_a_part_that_the_upstream_ends_is_closed_at_once() -> None:
    begun = [{"type": "begin", "id": "a"}, {"type": "open", "kind": "text", "key": 0}]
    told = [{"type": "more", "kind": "text", "key": 0, "text": "one"}, {"type": "over", "key": 0}]
    assert shape(converted([*begun, *told], EXPLICIT, finish=False)) == ["start", "open0", "text0", "close0"]


CITED = mapping(
    MARKED.replace("over: [{close: {key: $.key}}]", "over: [{close: {key: $.key, late: true}}]")
    + "    cite: [{delta: {kind: text, key: $.key, annotations: $.cites}}]\n"
)
"""An upstream whose texts may be cited after their end."""


def parts_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of an answer of `CITED`, and that every part of the client's stream was closed once and in order."""
    converter = StreamConverter(CITED, CLIENT, Context(run_id="r1", now=5))
    sent = [out for event in ({"type": "begin", "id": "a"}, *events, {"type": "done"}) for out in converter.feed(event)]
    sent += converter.finish()
    ends = [name for name in shape([data for _, data in sent]) if name.startswith(("open", "close"))]
    assert ends == [f"{end}{place}" for place in range(len(ends) // 2) for end in ("open", "close")]
    return [{name: value for name, value in part.items() if name != "item"} for part in converter.parts()]


def test_a_citation_after_the_end_of_a_text_belongs_to_it() -> None:
    one, two, three = ({"type": "url", "url": f"https://x/{place}"} for place in (1, 2, 3))
    assert parts_of(
        {"type": "more", "kind": "text", "key": 0, "text": "first"},
        {"type": "over", "key": 0},
        {"type": "cite", "cites": [one]},
        {"type": "cite", "cites": [two]},
        {"type": "over", "key": 1},
        {"type": "more", "kind": "text", "key": 2, "text": "second"},
        {"type": "over", "key": 2},
        {"type": "open", "kind": "tool_call", "key": 3, "id": "c", "name": "f"},
        {"type": "over", "key": 3},
        {"type": "more", "kind": "text", "key": 4, "text": "third"},
        {"type": "over", "key": 4},
        {"type": "cite", "cites": [three]},
    ) == [
        {"kind": "text", "text": "first", "annotations": [one, two]},
        {"kind": "text", "text": "second"},
        {"kind": "tool_call", "id": "c", "name": "f", "args": "{}"},
        {"kind": "text", "text": "third", "annotations": [three]},
    ]


def test_a_citation_with_a_key_belongs_to_the_text_that_follows() -> None:
    cite = {"type": "url", "url": "https://x"}
    assert parts_of(
        {"type": "more", "kind": "text", "key": 0, "text": "first"},
        {"type": "over", "key": 0},
        {"type": "cite", "key": 1, "cites": [cite]},
        {"type": "more", "kind": "text", "key": 1, "text": "second"},
        {"type": "over", "key": 1},
    ) == [{"kind": "text", "text": "first"}, {"kind": "text", "text": "second", "annotations": [cite]}]


def test_an_ended_text_that_waits_for_citations_is_complete_when_the_upstream_fails() -> None:
    converter = StreamConverter(CITED, CLIENT, Context(run_id="r1", now=5))
    for event in ({"type": "begin", "id": "a"}, {"type": "more", "kind": "text", "key": 0, "text": "first"}):
        converter.feed(event)
    converter.feed({"type": "over", "key": 0})
    assert [data["type"] for _, data in converter.finish()] == ["close", "error"]


def test_an_upstream_that_breaks_off_is_reported() -> None:
    sent = converted([{"id": "a", "d": {"text": "x"}}])
    assert sent[-2:] == [
        {"type": "close", "i": 0, "all": "x"},
        {"type": "error", "message": "the upstream ended before the answer was finished"},
    ]


def test_an_end_mark_without_a_stop_reason_is_an_end() -> None:
    sent = converted([{"id": "a", "d": {"text": "x"}}, "[DONE]"])
    assert sent[-2]["type"] == "finish" and sent[-2]["stop"] == "end"


def test_an_error_ends_the_stream_and_later_usage_still_counts() -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context())
    converter.feed({"id": "a", "d": {"text": "x"}})
    sent = converter.feed({"error": {"message": "boom"}, "d": {"text": "more"}})
    assert [data["type"] for _, data in sent] == ["close", "error"]
    assert converter.feed({"d": {"text": "y"}, "usage": {"output": 3}}) == []
    assert converter.finish() == [] and converter.fail("again") == []
    assert converter.usage == {"output": 3} and converter.error == {"message": "boom"}


def test_an_error_before_the_first_event_does_not_start_the_answer() -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context())
    sent = converter.feed({"error": {"message": "boom"}})
    assert [data["type"] for _, data in sent] == ["error"] and not converter.started


@pytest.mark.parametrize("error", [{"message": ""}, {"type": "overloaded_error"}])
def test_an_error_without_a_message_has_a_default_message(error: dict[str, str]) -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context())
    assert [data["message"] for _, data in converter.feed({"error": error})] == ["upstream error"]


def test_a_failure_is_sent_once() -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context())
    converter.feed({"id": "a", "d": {"text": "x"}})
    assert [data["type"] for _, data in converter.fail("gone", "timeout_error")] == ["close", "error"]
    assert converter.fail("gone") == []


def test_a_kind_that_the_client_format_lacks_is_lost_and_reported() -> None:
    converter = StreamConverter(PLAIN, CLIENT, Context())
    converter.feed({"id": "a", "d": {"image": "https://x"}})
    assert converter.lost == ["image of the answer"]


def test_unknown_events_are_counted() -> None:
    converter = StreamConverter(EXPLICIT, CLIENT, Context())
    converter.feed({"type": "novelty"})
    converter.feed({"type": "novelty"})
    assert converter.unmatched == {"novelty": 2} and converter.lost == ["stream event novelty"]


@pytest.mark.parametrize(("label", "counts"), [(True, {"true": 1}), (7, {"7": 1}), (None, {}), ({"a": 1}, {})])
def test_unknown_events_are_counted_by_labels_of_other_types(label: object, counts: dict[str, int]) -> None:
    converter = StreamConverter(EXPLICIT, CLIENT, Context())
    converter.feed({"type": label})
    assert converter.unmatched == counts


def test_a_tap_reads_the_stream_and_never_raises() -> None:
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


def converted_so_far(*events: dict[str, Any]) -> StreamConverter:
    converter = StreamConverter(compile_mapping(document(SO_FAR)), compile_mapping(document(TARGET)), Context())
    for event in events:
        converter.feed(event)
    converter.finish()
    return converter


def test_of_cumulative_text_only_the_new_part_is_sent() -> None:
    converter = converted_so_far(
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


def test_cumulative_text_that_changes_is_reported() -> None:
    converter = converted_so_far({"all": "Hello"}, {"all": "Hi"}, {"all": "Hello!"}, {"why": "end"})
    assert converter.parts()[0]["text"] == "Hello!"
    assert converter.lost == ["text that the provider changed after it was sent"]


PATCHES = """
mapping: patches
stream:
  to_hub:
    $let: {at: "{{ $.path | split('/') }}"}
    always:
      - {$when: $.add, open: {kind: $.add.kind, key: "$at[2]", id: $.add.id, name: $.add.name}}
      - {$when: $.value is string, delta: {key: "$at[2]", text: $.value}}
      - {$when: $.all, delta: {key: "$at[2]", so_far: $.all}}
      - {stop: {reason: $.why}}
"""


def converted_patches(*events: dict[str, Any]) -> StreamConverter:
    converter = StreamConverter(compile_mapping(document(PATCHES)), compile_mapping(document(TARGET)), Context())
    for event in events:
        converter.feed(event)
    converter.finish()
    return converter


def test_a_delta_without_kind_continues_the_part_with_its_key_or_the_last_one() -> None:
    converter = converted_patches(
        {"path": "/parts/0", "add": {"kind": "reasoning"}},
        {"path": "/parts/0/text", "value": "Hm"},
        {"value": "m."},
        {"path": "/parts/1", "add": {"kind": "text"}},
        {"path": "/parts/1/text", "value": "Hel"},
        {"value": "lo"},
        {"path": "/parts/2", "add": {"kind": "tool_call", "id": "c1", "name": "f"}},
        {"path": "/parts/3", "add": {"kind": "tool_call", "id": "c2", "name": "g"}},
        {"path": "/parts/2/args", "value": '{"a"'},
        {"value": ":1"},
        {"path": "/parts/3/args", "value": '{"b"'},
        {"value": ":2}"},
        {"path": "/parts/2/args", "value": "}", "why": "tool"},
    )
    assert [(part["kind"], part.get("text") or part.get("args")) for part in converter.parts()] == [
        ("reasoning", "Hmm."),
        ("text", "Hello"),
        ("tool_call", '{"a":1}'),
        ("tool_call", '{"b":2}'),
    ]
    assert converter.lost == []


def test_a_cumulative_delta_without_kind_grows_the_part_with_its_key() -> None:
    converter = converted_patches(
        {"path": "/parts/0", "add": {"kind": "text"}},
        {"path": "/parts/0", "all": "Hel"},
        {"path": "/parts/0", "all": "Hello", "why": "end"},
    )
    assert [part["text"] for part in converter.parts()] == ["Hello"]


def test_a_delta_without_kind_for_a_part_that_was_not_opened_is_reported() -> None:
    converter = converted_patches({"path": "/parts/7/text", "value": "Hi"}, {"value": "Ho", "why": "end"})
    assert converter.parts() == []
    assert converter.lost == ["text of a part that was not opened"]


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


def test_calls_sent_leaf_by_leaf_are_joined_and_a_misplaced_leaf_is_reported() -> None:
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


def test_an_example_may_name_an_event() -> None:
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


def test_the_answer_so_far_is_computed_only_if_a_condition_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "$.last and $whole.parts[*].text"
    source = (
        f"mapping: looking\nstream:\n  to_hub:\n    always:\n      - {{delta: {{kind: text, text: $.t}}}}\n      - "
        f"{{$when: '{rule}', stop: {{reason: end}}}}\n"
    )
    looks: list[int] = []
    whole = Run.whole
    monkeypatch.setattr(Run, "whole", lambda run: looks.append(1) or whole(run))
    converter = StreamConverter(compile_mapping(document(source)), CLIENT, Context())
    for event in ({"t": "a"}, {"t": "b"}, {"t": "c", "last": True}):
        converter.feed(event)
    assert converter.stop == "end" and len(looks) == 1


def test_a_lost_part_is_not_sent_and_takes_no_index() -> None:
    lost = "    reasoning:\n      lost: \"{{ 'an afterthought' if not $part.text and $whole.parts }}\"\n"
    client = mapping(TARGET.replace("    reasoning:\n", lost))
    converter = StreamConverter(PLAIN, client, Context())
    events = [
        {"d": {"think": "hm"}},
        {"d": {"text": "a"}},
        {"d": {"sign": "S"}},
        call("0", "c", "f", "{}"),
        {"stop": "tool"},
    ]
    sent = [data for event in events for _, data in converter.feed(event)]
    assert shape(sent)[1:] == ["open0", "think0", "close0", "open1", "text1", "close1", "open2", "args2"]
    assert converter.lost == ["an afterthought"]
    assert [part["kind"] for part in converter.parts()] == ["reasoning", "text", "reasoning", "tool_call"]


def test_names_beside_the_rules_apply_to_all_of_them() -> None:
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
    sent = converted([{"choices": [{"text": "Hi"}]}, {"choices": [{"text": "!", "end": "length"}]}], source)
    assert [data["t"] for data in sent if isinstance(data, dict) and data["type"] == "text"] == ["Hi", "!"]
    assert sent[-2]["stop"] == "length"


def test_a_call_opened_again_with_every_piece_is_one_call() -> None:
    pieces = [("a", "{"), ("b", '{"y":'), ("a", "}"), ("b", "2}")]
    events = [
        event
        for id, text in pieces
        for event in (
            {"type": "open", "kind": "tool_call", "key": "one for all", "id": id, "name": f"f_{id}"},
            {"type": "more", "kind": "tool_call", "key": "one for all", "text": text},
        )
    ]
    sent = converted([*events, {"type": "done"}], EXPLICIT)
    assert [data["id"] for data in sent if isinstance(data, dict) and data["type"] == "open"] == ["a", "b"]
    assert [data["all"] for data in sent if isinstance(data, dict) and data["type"] == "close"] == ["{}", '{"y":2}']


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
    ids=["between rules", "between iterations of a loop"],
)
def test_rules_read_the_effects_of_earlier_rules(rules: str, event: dict[str, Any]) -> None:
    context = Context()
    converter = StreamConverter(mapping(f"mapping: s\nstream:\n  to_hub:{rules}"), CLIENT, context)
    converter.feed(event)
    assert converter.failure is None and context.lost == ["one", "two"]
