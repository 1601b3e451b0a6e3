"""Parts of one kind that follow each other are one part for the client, where its format says `joined: true`."""

from __future__ import annotations

from typing import Any

import pytest

from mapping.support import document
from tollgate.mapping import CompiledMapping, Context, StreamConverter, compile_mapping
from tollgate.mapping.join_parts import join_parts

PLAIN = compile_mapping(
    document("""
mapping: plain
stream:
  to_hub:
    always:
      - {start: {id: $.id}}
      - {delta: {kind: text, text: $.text}}
      - {$when: $.stop, stop: {reason: $.stop}}
""")
)
EXPLICIT = compile_mapping(
    document("""
mapping: explicit
stream:
  to_hub:
    $match: $.type
    begin: [{start: {id: $.id}}]
    open: [{open: {kind: $.kind, key: $.key, id: $.id, name: $.name}}]
    more: [{delta: {kind: $.kind, key: $.key, text: $.text, annotations: $.notes}}]
    over: [{close: {key: $.key}}]
    done: [{stop: {reason: end}}]
""")
)
CLIENT = compile_mapping(
    document("""
mapping: told
stream:
  from_hub:
    event: type
    start: [{type: start, id: $run.id}]
    text:
      joined: true
      name: t{{ $part.index }}
      open: [{type: open, i: $part.index, kind: text}]
      delta: [{type: text, i: $part.index, t: $delta}]
      close: [{type: close, i: $part.index, all: $part.text}]
    reasoning:
      open: [{type: open, i: $part.index, kind: reasoning}]
    tool_call:
      open: [{type: open, i: $part.index, kind: tool_call}]
      close: [{type: close, i: $part.index, all: $part.args}]
    finish: [{type: finish, parts: $whole.parts}]
    error: [{type: error, parts: $whole.parts}]
""")
)


def told(events: list[Any], source: CompiledMapping = EXPLICIT) -> list[Any]:
    converter = StreamConverter(source, CLIENT, Context(run_id="r1", now=5))
    sent = [out for event in events for out in converter.feed(event)] + converter.finish()
    return [data for _, data in sent]


def text(key: int, *pieces: str) -> list[Any]:
    return [
        {"type": "open", "kind": "text", "key": key},
        *({"type": "more", "kind": "text", "key": key, "text": piece} for piece in pieces),
        {"type": "over", "key": key},
    ]


BEGIN: list[Any] = [{"type": "begin", "id": "a"}]
DONE: list[Any] = [{"type": "done"}]


def test_texts_that_follow_each_other_are_opened_and_closed_once() -> None:
    sent = told([*BEGIN, *text(0, "a", "b"), *text(1), *text(2, "c"), *DONE])
    assert sent == [
        {"type": "start", "id": "a"},
        {"type": "open", "i": 0, "kind": "text"},
        {"type": "text", "i": 0, "t": "a"},
        {"type": "text", "i": 0, "t": "b"},
        {"type": "text", "i": 0, "t": "c"},
        {"type": "close", "i": 0, "all": "abc"},
        {
            "type": "finish",
            "parts": [{"kind": "text", "text": "ab", "item": "t0"}, {"kind": "text", "text": "c", "item": "t0"}],
        },
    ]


def test_what_stands_between_two_texts_keeps_them_apart() -> None:
    thought = [
        {"type": "open", "kind": "reasoning", "key": 1},
        {"type": "more", "kind": "reasoning", "key": 1, "text": "x"},
    ]
    sent = told([*BEGIN, *text(0, "a"), *thought, {"type": "over", "key": 1}, *text(2, "b"), *DONE])
    assert [event["all"] for event in sent if event["type"] == "close" and "all" in event] == ["a", "b"]


def test_texts_with_an_opaque_part_between_them_are_apart_in_the_whole_answer_too() -> None:
    opaque = [{"type": "open", "kind": "opaque", "key": 1}, {"type": "over", "key": 1}]
    sent = told([*BEGIN, *text(0, "a"), *opaque, *text(2, "b"), *text(3, "c"), *DONE])
    assert [(event["i"], event["all"]) for event in sent if event["type"] == "close"] == [(0, "a"), (1, "bc")]
    assert [part["text"] for part in join_parts(sent[-1]["parts"], "text") or []] == ["a", "bc"]


def test_a_text_that_waits_for_another_one_continues_it() -> None:
    first, second = text(0, "a"), text(1, "b")
    sent = told([*BEGIN, first[0], first[1], *second, first[2], *DONE])
    assert [(event["i"], event["all"]) for event in sent if event["type"] == "close"] == [(0, "ab")]


def test_texts_that_wait_until_the_end_are_one() -> None:
    opaque = [{"type": "open", "kind": "opaque", "key": 1}]  # whose end is never said
    sent = told([*BEGIN, *opaque, *text(2, "a"), *text(3, "b"), *DONE])
    assert [(event["i"], event["all"]) for event in sent if event["type"] == "close"] == [(0, "ab")]


def test_a_joined_text_that_ends_empty_is_closed_with_what_it_has() -> None:
    call = [{"type": "open", "kind": "tool_call", "key": 2, "id": "c", "name": "f"}, {"type": "over", "key": 2}]
    sent = told([*BEGIN, *text(0, "a"), *text(1), *call, *DONE])
    assert [(event["i"], event.get("all")) for event in sent if event["type"] == "close"] == [(0, "a"), (1, "{}")]
    assert [part["kind"] for part in sent[-1]["parts"]] == ["text", "tool_call"]


def test_a_citation_without_a_text_of_its_own_is_in_the_whole_answer_too() -> None:
    cited = {"type": "more", "kind": "text", "key": 1, "notes": [{"type": "url", "url": "u"}]}
    begin, end = text(1)
    sent = told([*BEGIN, *text(0, "ab"), begin, cited, end, *DONE])
    joined = join_parts(sent[-1]["parts"], "text") or []
    assert [part["text"] for part in joined] == ["ab"]
    assert [(note["url"], note["start"], note["end"]) for note in joined[0]["annotations"]] == [("u", 2, 2)]


def test_a_text_that_begins_again_before_its_end_is_one_part() -> None:
    begin, piece, end = text(0, "a")
    sent = told([*BEGIN, piece, begin, piece, begin, piece, end, *text(0, "b"), *DONE], EXPLICIT)
    assert [event["t"] for event in sent if event["type"] == "text"] == ["a", "a", "a", "b"]


def test_the_last_of_joined_texts_is_cut_off_by_an_error() -> None:
    sent = told([*BEGIN, *text(0, "a"), *text(1, "b")[:2]])  # which never says `done`
    assert [(part["text"], part.get("cut")) for part in join_parts(sent[-1]["parts"], "text") or []] == [("ab", True)]


def test_deltas_of_one_text_need_no_joining() -> None:
    sent = told([{"id": "a", "text": "a"}, {"id": "a", "text": "b"}, {"stop": "end"}], PLAIN)
    assert [event["all"] for event in sent if event["type"] == "close"] == ["ab"]


NOTE = {"type": "url", "url": "u"}
JOINED = {
    "nothing to join": (
        [{"kind": "text", "text": "a"}, {"kind": "image"}, {"kind": "text", "text": "b"}],
        [{"kind": "text", "text": "a"}, {"kind": "image"}, {"kind": "text", "text": "b"}],
    ),
    "lists grow, and the last of other fields counts": (
        [
            {"kind": "text", "text": "a", "logprobs": [1], "item": "x"},
            {"kind": "text", "text": "b", "logprobs": [2], "cut": True},
        ],
        [{"kind": "text", "text": "ab", "logprobs": [1, 2], "item": "x", "cut": True}],
    ),
    "a citation without a range covers its text": (
        [
            {"kind": "text", "text": "ab"},
            {"kind": "text", "text": "cde", "annotations": [NOTE, {**NOTE, "start": 0, "end": 0}]},
        ],
        [
            {
                "kind": "text",
                "text": "abcde",
                "annotations": [{**NOTE, "start": 2, "end": 5}, {**NOTE, "start": 2, "end": 5}],
            }
        ],
    ),
    "places are moved": (
        [
            {"kind": "text", "text": "ab", "annotations": [{**NOTE, "start": 1, "end": 2}]},
            {"kind": "text", "text": "cde", "annotations": [{**NOTE, "start": 1, "end": 3}]},
        ],
        [
            {
                "kind": "text",
                "text": "abcde",
                "annotations": [{**NOTE, "start": 1, "end": 2}, {**NOTE, "start": 3, "end": 5}],
            }
        ],
    ),
    "a text that is apart begins anew": (
        [{"kind": "text", "text": "a"}, {"kind": "text", "text": "b", "apart": True}, {"kind": "text", "text": "c"}],
        [{"kind": "text", "text": "a"}, {"kind": "text", "text": "bc", "apart": True}],
    ),
    "what is no part stays": ([1, {"kind": "text"}, None], [1, {"kind": "text"}, None]),
    "notes that are no objects stay": (
        [{"kind": "text", "text": "a"}, {"kind": "text", "annotations": [7]}],
        [{"kind": "text", "text": "a", "annotations": [7]}],
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_parts_are_joined(name: str) -> None:
    given, wanted = JOINED[name]
    before = repr(given)
    assert join_parts(given, "text") == wanted and repr(given) == before


def test_a_list_without_neighbours_is_the_same_list() -> None:
    given = [{"kind": "text", "text": "a"}]
    assert join_parts(given, "text") is given and join_parts("a", "text") is None


WRONG = {
    "no truth": ("text: {joined: sometimes, open: []}", "`joined` of `text` is true, or not written"),
    "no text": ("image: {joined: true, open: []}", "parts of kind `image` cannot be joined"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_joined_is_a_mistake(name: str) -> None:
    written, words = WRONG[name]
    with pytest.raises(Exception, match=words):
        compile_mapping(document(f"mapping: x\nstream:\n  from_hub:\n    {written}\n"))
