"""Signed thoughts of turns that called tools are found again by what any client sends back: the text and the calls."""

from typing import Any

import pytest

from tollgate.remembered.thoughts import Thoughts

MAKER = ("messages", "", "claude")
THOUGHT = {"kind": "reasoning", "text": "hm", "token": "SIG", "origin": "anthropic"}
TEXT = {"kind": "text", "text": "let me see"}
CALL = {"kind": "tool_call", "id": "c1", "name": "f", "args": '{"a":1,"b":[2]}'}
USER = {"role": "user", "parts": [{"kind": "text", "text": "q"}]}
RESULT = {"role": "user", "parts": [{"kind": "tool_result", "id": "c1", "parts": []}]}


def kept(*parts: dict[str, Any], **more: Any) -> Thoughts:
    thoughts = Thoughts(**more)
    thoughts.keep("alice", MAKER, parts)
    return thoughts


def turns(*parts: dict[str, Any], role: str = "assistant") -> dict[str, Any]:
    return {"turns": [USER, {"role": role, "parts": list(parts)}, RESULT]}


def test_what_a_client_left_out_is_put_back_in_its_order():
    thoughts = kept(THOUGHT, TEXT, {**THOUGHT, "token": "SIG2"}, CALL)
    assert thoughts.restored("alice", MAKER, turns(TEXT, CALL)) == [
        USER,
        {"role": "assistant", "parts": [THOUGHT, TEXT, {**THOUGHT, "token": "SIG2"}, CALL]},
        RESULT,
    ]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([{**TEXT, "text": " let me see\n"}, CALL], id="blanks around the text"),
        pytest.param([{**TEXT, "text": "let me"}, {**TEXT, "text": " see"}, CALL], id="the text in two"),
        pytest.param([TEXT, {**CALL, "args": '{ "b": [2], "a": 1 }'}], id="arguments written anew"),
        pytest.param([{"kind": "reasoning", "text": "hm"}, TEXT, CALL], id="the thought without its signature"),
        pytest.param([{**TEXT, "text": "<think>\nhm\n</think>"}, TEXT, CALL], id="the thought as a text"),
        pytest.param([{**TEXT, "text": "<think>h</think>let <think>m</think>me see"}, CALL], id="thoughts in the text"),
    ],
)
def test_a_client_may_write_the_turn_in_its_own_way(sent):
    found = kept(THOUGHT, TEXT, CALL).restored("alice", MAKER, turns(*sent))
    assert found is not None and found[1]["parts"] == [THOUGHT, TEXT, CALL]


@pytest.mark.parametrize(
    ("owner", "maker", "sent"),
    [
        pytest.param("bob", MAKER, [TEXT, CALL], id="another account"),
        pytest.param("alice", ("messages", "", "other"), [TEXT, CALL], id="another model"),
        pytest.param("alice", ("gemini", "", "claude"), [TEXT, CALL], id="another format"),
        pytest.param("alice", ("messages", "mine", "claude"), [TEXT, CALL], id="others sign there"),
        pytest.param("alice", MAKER, [{**TEXT, "text": "let me think"}, CALL], id="another text"),
        pytest.param("alice", MAKER, [{**TEXT, "text": "<think>hm let me see"}, CALL], id="a thought without an end"),
        pytest.param("alice", MAKER, [TEXT, {**CALL, "args": '{"a":2,"b":[2]}'}], id="other arguments"),
        pytest.param("alice", MAKER, [TEXT, {**CALL, "id": "c2"}], id="another call"),
        pytest.param("alice", MAKER, [TEXT, CALL, {**CALL, "id": "c2"}], id="a call more"),
        pytest.param("alice", MAKER, [TEXT], id="no call"),
        pytest.param("alice", MAKER, [THOUGHT, TEXT, CALL], id="the client kept them"),
        pytest.param("alice", MAKER, [TEXT, {**CALL, "token": "SIG"}], id="the client kept the call's"),
        pytest.param("alice", MAKER, [TEXT, CALL, {"kind": "image", "url": "u"}], id="something else beside it"),
    ],
)
def test_nothing_is_put_into_a_turn_that_was_not_answered_so(owner, maker, sent):
    assert kept(THOUGHT, TEXT, CALL).restored(owner, maker, turns(*sent)) is None


def test_a_users_turn_is_left_alone():
    assert kept(THOUGHT, TEXT, CALL).restored("alice", MAKER, turns(TEXT, CALL, role="user")) is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([TEXT, CALL], id="nothing signed"),
        pytest.param([THOUGHT, TEXT], id="no call"),
        pytest.param([THOUGHT, CALL, {"kind": "opaque", "raw": {}}], id="a part that no client sends back"),
    ],
)
def test_an_answer_of_which_nothing_is_needed_is_not_remembered(answer):
    thoughts = kept(*answer)
    assert thoughts.restored("alice", MAKER, turns(*[part for part in answer if part is not THOUGHT])) is None


def test_a_signature_on_a_call_is_put_back_on_it():
    signed = {**CALL, "token": "T", "origin": "gemini"}
    found = kept(signed).restored("alice", MAKER, turns(CALL))
    assert found is not None and found[1]["parts"] == [signed]


def test_the_clients_cache_marks_stay():
    mark = {"type": "ephemeral"}
    found = kept(THOUGHT, TEXT, CALL).restored(
        "alice", MAKER, turns({**TEXT, "cache": mark}, {**CALL, "cache": {**mark, "ttl": "1h"}})
    )
    assert found is not None
    assert found[1]["parts"] == [THOUGHT, {**TEXT, "cache": mark}, {**CALL, "cache": {**mark, "ttl": "1h"}}]


def test_notes_on_a_text_are_not_sent_back():
    found = kept(THOUGHT, {**TEXT, "annotations": [{"url": "u"}]}, CALL).restored("alice", MAKER, turns(TEXT, CALL))
    assert found is not None and found[1]["parts"] == [THOUGHT, TEXT, CALL]


def test_the_longest_unused_go_first_and_the_memory_has_an_end():
    def call(number: int) -> dict[str, Any]:
        return {**CALL, "id": f"c{number}"}

    thoughts = Thoughts(most=3 * 1_100)
    for number in (1, 2, 3):
        thoughts.keep("alice", MAKER, [THOUGHT, call(number)])
    assert thoughts.restored("alice", MAKER, turns(call(1)))  # used just now
    thoughts.keep("alice", MAKER, [THOUGHT, call(4)])
    found = [number for number in (1, 2, 3, 4) if thoughts.restored("alice", MAKER, turns(call(number)))]
    assert found == [1, 3, 4]


def test_one_turn_that_is_larger_than_all_there_may_be_is_not_remembered():
    assert kept({**THOUGHT, "text": "x" * 5_000}, CALL, most=5_000).restored("alice", MAKER, turns(CALL)) is None


def test_an_answer_given_twice_is_counted_once():
    thoughts = Thoughts(most=2 * 1_100)
    for _ in range(50):
        thoughts.keep("alice", MAKER, [THOUGHT, CALL])
    other = {**CALL, "id": "c2"}
    thoughts.keep("alice", MAKER, [THOUGHT, other])
    assert all(thoughts.restored("alice", MAKER, turns(call)) for call in (CALL, other))


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param("let me see", id="no object"),
        pytest.param({"text": "let me see"}, id="no kind"),
        pytest.param({"kind": {}, "text": "x"}, id="a kind that is no string"),
        pytest.param({"kind": "text", "text": {"value": "x"}}, id="a text that is no string"),
        pytest.param({"kind": "text"}, id="a text without one"),
        pytest.param({"kind": "tool_call", "id": ["c1"], "name": "f"}, id="an id that is no string"),
        pytest.param({"kind": "tool_call", "id": "c1", "name": None}, id="a call without a name"),
    ],
)
def test_a_turn_in_a_strange_shape_is_neither_remembered_nor_changed(odd):
    assert kept(THOUGHT, odd, CALL).restored("alice", MAKER, turns(odd, CALL)) is None
    assert kept(THOUGHT, CALL).restored("alice", MAKER, turns(odd, CALL)) is None


@pytest.mark.parametrize("arguments", [None, 1.5, {"a": [1]}, "{", b"{}"])
def test_arguments_of_any_shape_are_told_apart(arguments):
    call = {**CALL, "args": arguments}
    found = kept(THOUGHT, call).restored("alice", MAKER, turns(call))
    assert found is not None and found[1]["parts"] == [THOUGHT, call]
    assert kept(THOUGHT, call).restored("alice", MAKER, turns(CALL)) is None


def test_a_call_of_a_strange_cache_mark_keeps_it():
    marked = {**CALL, "cache": "yes"}
    found = kept(THOUGHT, CALL).restored("alice", MAKER, turns(marked))
    assert found is not None and found[1]["parts"] == [THOUGHT, marked]


@pytest.mark.parametrize("hub", [{}, {"turns": {}}, {"turns": [None, "x", {"role": "assistant", "parts": {}}]}])
def test_a_request_in_a_strange_shape_stays_as_it_is(hub):
    assert kept(THOUGHT, CALL).restored("alice", MAKER, hub) is None
