"""Each call has one result, directly behind it, whatever a client sends twice or between them."""

from __future__ import annotations

import pytest

from tollgate.mapping.tool_results import distinct_calls, results_behind_calls, single_results, tidy_calls


def turns(*compact: str) -> list[dict]:
    """`a:call 1 call 2`, `u:hm result 1`, `s:so` -> hub turns."""
    made = []
    for turn in compact:
        words, parts = turn[2:].split(), []
        while words:
            word = words.pop(0)
            kind = {"call": "tool_call", "result": "tool_result"}.get(word)
            parts.append({"kind": kind, "id": words.pop(0)} if kind else {"kind": "text", "text": word})
        made.append({"role": {"a": "assistant", "u": "user", "s": "system"}[turn[0]], "parts": parts})
    return made


CASES = {
    "in order": (["u:hi", "a:call 1", "u:result 1 hm", "a:so"], None),
    "instructions between": (["a:call 1", "s:so", "u:result 1"], ["a:call 1", "u:result 1", "s:so"]),
    "text and instructions between": (
        ["a:call 1", "u:hm", "s:so", "u:result 1 yes"],
        ["a:call 1", "u:result 1 hm", "s:so", "u:yes"],
    ),
    "one of two is late": (
        ["a:call 1 call 2", "u:result 1", "s:so", "u:result 2"],
        ["a:call 1 call 2", "u:result 2 result 1", "s:so"],
    ),
    "another answer between": (
        ["a:call 1", "u:hm", "a:wait", "u:result 1", "a:so"],
        ["a:call 1", "u:result 1 hm", "a:wait so"],
    ),
    "an id that is used again": (
        ["a:call 1", "u:result 1", "s:so", "a:call 1", "s:no", "u:result 1"],
        ["a:call 1", "u:result 1", "s:so", "a:call 1", "u:result 1", "s:no"],
    ),
    "a result without a call": (["u:result 9", "s:so", "u:hm"], None),
    "a call without a result": (["a:call 1", "s:so", "u:hm"], None),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_moved_behind_their_calls(name: str) -> None:
    given, wanted = CASES[name]
    assert results_behind_calls(turns(*given)) == turns(*(wanted or given))


def test_a_long_conversation_of_late_results_takes_linear_time() -> None:
    given = turns(*(turn for n in range(20_000) for turn in (f"a:call {n}", "s:so", f"u:result {n}")))
    assert [turn["role"] for turn in results_behind_calls(given)][:3] == ["assistant", "user", "system"]


REPEATED = {
    "no repeated id": (["a:call 1 call 2", "u:result 2 result 1"], None),
    "twice in one turn": (["a:call 1 call 1", "u:result 1 result 1"], ["a:call 1 call 1_2", "u:result 1 result 1_2"]),
    "in every turn": (
        ["a:call 1", "u:result 1", "a:call 1", "u:result 1", "a:call 1", "u:result 1"],
        ["a:call 1", "u:result 1", "a:call 1_2", "u:result 1_2", "a:call 1_3", "u:result 1_3"],
    ),
    "a name that is taken": (
        ["a:call 1 call 1_2 call 1", "u:result 1 result 1"],
        ["a:call 1 call 1_2 call 1_3", "u:result 1 result 1_3"],
    ),
    "a name that is taken later": (
        ["a:call 1 call 1 call 1_2", "u:result 1 result 1 result 1_2"],
        ["a:call 1 call 1_3 call 1_2", "u:result 1 result 1_3 result 1_2"],
    ),
    "a result too many": (
        ["a:call 1", "u:result 1 result 1", "a:call 1"],
        ["a:call 1", "u:result 1 result 1", "a:call 1_2"],
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_call_ids_are_made_distinct(name: str) -> None:
    given, wanted = REPEATED[name]
    assert distinct_calls(turns(*given)) == turns(*(wanted or given))


@pytest.mark.parametrize("name", [*CASES, *REPEATED])
def test_a_request_has_each_call_once_and_its_result_behind_it(name: str) -> None:
    given = turns(*(CASES | REPEATED)[name][0])
    assert tidy_calls(given) == results_behind_calls(single_results(distinct_calls(given)))


def answer(*texts: str) -> list[dict]:
    """A conversation in which one call has these results."""
    results = [{"kind": "tool_result", "id": "1", "parts": [{"kind": "text", "text": text}]} for text in texts]
    return [*turns("a:call 1"), {"role": "user", "parts": results}]


def test_a_tool_that_ran_twice_has_one_result() -> None:
    assert tidy_calls(answer("x", "x")) == answer("x")
    [_, answered] = tidy_calls(answer("x", "y", "x"))
    assert [[part["text"] for part in result["parts"]] for result in answered["parts"]] == [["x", "y"]]


def test_a_second_result_in_a_later_turn_is_joined_with_the_first() -> None:
    again = answer("y")[1]
    made = tidy_calls([*answer("x"), *turns("a:so"), again, *turns("a:well")])
    assert made == [*tidy_calls(answer("x", "y")), *turns("a:so well")]


def test_results_without_a_call_stay_as_they_are() -> None:
    given = turns("u:result 9 result 9", "a:hm")
    assert tidy_calls(given) == given


def test_turns_that_are_no_objects_are_left_out_of_an_untidy_request_and_parts_that_are_none_ignored() -> None:
    [call, result] = turns("a:call 1", "u:result 1")
    assert tidy_calls([call, "hm", result]) == [call, result]  # type: ignore[list-item]
    odd = {"role": "user", "parts": ["hm", {"kind": "tool_call"}]}
    assert tidy_calls([call, result, odd]) == [call, result, odd]


def test_a_signature_keeps_the_id_of_its_call() -> None:
    call = [{"kind": "reasoning", "id": "1", "token": "S", "origin": "gemini"}, {"kind": "tool_call", "id": "1"}]
    made = distinct_calls([{"role": "assistant", "parts": [*call, *call]}])
    assert [part["id"] for part in made[0]["parts"]] == ["1", "1", "1_2", "1_2"]
