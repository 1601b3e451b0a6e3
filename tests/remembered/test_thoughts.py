"""Signed reasoning of turns with tool calls is found again by what every client sends back: the text and the calls."""

from typing import Any

import pytest

from tollgate.remembered.thoughts import Thoughts

MAKER = ("messages", "", "claude")
REASONING = {"kind": "reasoning", "text": "hm", "token": "SIG", "origin": "anthropic"}
TEXT = {"kind": "text", "text": "let me see"}
CALL = {"kind": "tool_call", "id": "c1", "name": "f", "args": '{"a":1,"b":[2]}'}
USER = {"role": "user", "parts": [{"kind": "text", "text": "q"}]}
RESULT = {"role": "user", "parts": [{"kind": "tool_result", "id": "c1", "parts": []}]}


def remembering(*parts: dict[str, Any], **more: Any) -> Thoughts:
    thoughts = Thoughts(**more)
    thoughts.keep("alice", MAKER, parts)
    return thoughts


def turns(*parts: dict[str, Any], role: str = "assistant") -> dict[str, Any]:
    return {"turns": [USER, {"role": role, "parts": list(parts)}, RESULT]}


def test_omitted_reasoning_is_restored_in_its_order():
    thoughts = remembering(REASONING, TEXT, {**REASONING, "token": "SIG2"}, CALL)
    assert thoughts.restored("alice", MAKER, turns(TEXT, CALL)) == [
        USER,
        {"role": "assistant", "parts": [REASONING, TEXT, {**REASONING, "token": "SIG2"}, CALL]},
        RESULT,
    ]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([{**TEXT, "text": " let me see\n"}, CALL], id="whitespace around the text"),
        pytest.param([{**TEXT, "text": "let me"}, {**TEXT, "text": " see"}, CALL], id="the text in two parts"),
        pytest.param([TEXT, {**CALL, "args": '{ "b": [2], "a": 1 }'}], id="arguments serialized again"),
        pytest.param([{"kind": "reasoning", "text": "hm"}, TEXT, CALL], id="the reasoning without its signature"),
        pytest.param([{**REASONING, "text": ""}, TEXT, CALL], id="the signature without the reasoning"),
        pytest.param(
            [{"kind": "reasoning", "text": "hm"}, {"kind": "reasoning", "token": "SIG"}, TEXT, CALL],
            id="the reasoning and its signature apart",
        ),
        pytest.param(
            [{"kind": "reasoning", "text": "hm"}, TEXT, {**CALL, "token": "SIG"}], id="the signature at the call"
        ),
        pytest.param([{**TEXT, "text": "<think>\nhm\n</think>"}, TEXT, CALL], id="the reasoning as text"),
        pytest.param(
            [{**TEXT, "text": "<think>h</think>let <think>m</think>me see"}, CALL], id="reasoning inside the text"
        ),
    ],
)
def test_reasoning_is_restored_if_a_client_rewrites_the_turn(sent):
    found = remembering(REASONING, TEXT, CALL).restored("alice", MAKER, turns(*sent))
    assert found is not None and found[1]["parts"] == [REASONING, TEXT, CALL]


@pytest.mark.parametrize(
    ("owner", "maker", "sent"),
    [
        pytest.param("bob", MAKER, [TEXT, CALL], id="another account"),
        pytest.param("alice", ("messages", "", "other"), [TEXT, CALL], id="another model"),
        pytest.param("alice", ("gemini", "", "claude"), [TEXT, CALL], id="another format"),
        pytest.param("alice", ("messages", "mine", "claude"), [TEXT, CALL], id="another signing key"),
        pytest.param("alice", MAKER, [{**TEXT, "text": "let me think"}, CALL], id="another text"),
        pytest.param("alice", MAKER, [{**TEXT, "text": "<think>hm let me see"}, CALL], id="an unclosed think tag"),
        pytest.param("alice", MAKER, [TEXT, {**CALL, "args": '{"a":2,"b":[2]}'}], id="other arguments"),
        pytest.param("alice", MAKER, [TEXT, {**CALL, "id": "c2"}], id="another call"),
        pytest.param("alice", MAKER, [TEXT, CALL, {**CALL, "id": "c2"}], id="an additional call"),
        pytest.param("alice", MAKER, [TEXT], id="no call"),
        pytest.param("alice", MAKER, [REASONING, TEXT, CALL], id="the client sent the reasoning back"),
        pytest.param(
            "alice", MAKER, [TEXT, {**CALL, "token": "SIG"}], id="the client sent the signature of the call back"
        ),
        pytest.param("alice", MAKER, [{**REASONING, "text": "", "token": "T"}, TEXT, CALL], id="another signature"),
        pytest.param(
            "alice",
            MAKER,
            [{"kind": "reasoning", "text": "hm", "origin": "x"}, {**REASONING, "text": "", "id": "c1"}, TEXT, CALL],
            id="reasoning with its origin, and the signature of the call",
        ),
        pytest.param("alice", MAKER, [TEXT, CALL, {"kind": "image", "url": "u"}], id="an additional part"),
    ],
)
def test_nothing_is_restored_into_a_turn_that_differs(owner, maker, sent):
    assert remembering(REASONING, TEXT, CALL).restored(owner, maker, turns(*sent)) is None


def test_a_user_turn_is_unchanged():
    assert remembering(REASONING, TEXT, CALL).restored("alice", MAKER, turns(TEXT, CALL, role="user")) is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([TEXT, CALL], id="nothing signed"),
        pytest.param([REASONING, TEXT], id="no call"),
        pytest.param([REASONING, CALL, {"kind": "opaque", "raw": {}}], id="a part that no client sends back"),
    ],
)
def test_an_answer_without_a_signed_turn_to_restore_is_not_remembered(answer):
    thoughts = remembering(*answer)
    assert thoughts.restored("alice", MAKER, turns(*[part for part in answer if part is not REASONING])) is None


def test_the_signature_of_a_call_is_restored():
    signed = {**CALL, "token": "T", "origin": "gemini"}
    found = remembering(signed).restored("alice", MAKER, turns(CALL))
    assert found is not None and found[1]["parts"] == [signed]


def test_the_clients_cache_breakpoints_are_kept():
    mark = {"type": "ephemeral"}
    found = remembering(REASONING, TEXT, CALL).restored(
        "alice", MAKER, turns({**TEXT, "cache": mark}, {**CALL, "cache": {**mark, "ttl": "1h"}})
    )
    assert found is not None
    assert found[1]["parts"] == [REASONING, {**TEXT, "cache": mark}, {**CALL, "cache": {**mark, "ttl": "1h"}}]


def test_annotations_of_a_text_are_not_sent_back():
    found = remembering(REASONING, {**TEXT, "annotations": [{"url": "u"}]}, CALL).restored(
        "alice", MAKER, turns(TEXT, CALL)
    )
    assert found is not None and found[1]["parts"] == [REASONING, TEXT, CALL]


def test_the_least_recently_used_turns_are_dropped_first():
    def call(number: int) -> dict[str, Any]:
        return {**CALL, "id": f"c{number}"}

    thoughts = Thoughts(most=3 * 1_100)
    for number in (1, 2, 3):
        thoughts.keep("alice", MAKER, [REASONING, call(number)])
    assert thoughts.restored("alice", MAKER, turns(call(1)))  # now the most recently used
    thoughts.keep("alice", MAKER, [REASONING, call(4)])
    found = [number for number in (1, 2, 3, 4) if thoughts.restored("alice", MAKER, turns(call(number)))]
    assert found == [1, 3, 4]


def test_a_turn_larger_than_the_memory_is_not_remembered():
    assert (
        remembering({**REASONING, "text": "x" * 5_000}, CALL, most=5_000).restored("alice", MAKER, turns(CALL)) is None
    )


def test_a_repeated_answer_is_counted_once():
    thoughts = Thoughts(most=2 * 1_100)
    for _ in range(50):
        thoughts.keep("alice", MAKER, [REASONING, CALL])
    other = {**CALL, "id": "c2"}
    thoughts.keep("alice", MAKER, [REASONING, other])
    assert all(thoughts.restored("alice", MAKER, turns(call)) for call in (CALL, other))


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("let me see", id="not an object"),
        pytest.param({"text": "let me see"}, id="no kind"),
        pytest.param({"kind": {}, "text": "x"}, id="a kind that is no string"),
        pytest.param({"kind": "text", "text": {"value": "x"}}, id="a text that is no string"),
        pytest.param({"kind": "text"}, id="a text part without text"),
        pytest.param({"kind": "tool_call", "id": ["c1"], "name": "f"}, id="an id that is no string"),
        pytest.param({"kind": "tool_call", "id": "c1", "name": None}, id="a call without a name"),
    ],
)
def test_an_invalid_turn_is_neither_remembered_nor_changed(part):
    assert remembering(REASONING, part, CALL).restored("alice", MAKER, turns(part, CALL)) is None
    assert remembering(REASONING, CALL).restored("alice", MAKER, turns(part, CALL)) is None


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        1.5,
        {"a": [1]},
        "{",
        b"{}",
        pytest.param("[" * 300 + "]" * 300, id="deep"),
        pytest.param("[" * 2000 + "]" * 2000, id="very deep"),
    ],
)
def test_turns_with_different_arguments_are_distinguished(arguments):
    call = {**CALL, "args": arguments}
    found = remembering(REASONING, call).restored("alice", MAKER, turns(call))
    assert found is not None and found[1]["parts"] == [REASONING, call]
    assert remembering(REASONING, call).restored("alice", MAKER, turns(CALL)) is None


def test_a_call_with_an_invalid_cache_breakpoint_keeps_it():
    marked = {**CALL, "cache": "yes"}
    found = remembering(REASONING, CALL).restored("alice", MAKER, turns(marked))
    assert found is not None and found[1]["parts"] == [REASONING, marked]


@pytest.mark.parametrize("hub", [{}, {"turns": {}}, {"turns": [None, "x", {"role": "assistant", "parts": {}}]}])
def test_an_invalid_request_is_unchanged(hub):
    assert remembering(REASONING, CALL).restored("alice", MAKER, hub) is None
