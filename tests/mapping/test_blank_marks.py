"""Cache marks on blank texts apply to the content before them."""

from __future__ import annotations

from typing import Any

import pytest

from tollgate.mapping import Context
from tollgate.mapping.blank_marks import move_marks

MARK = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}


def text(words: str, mark: object = None) -> dict[str, Any]:
    return {"kind": "text", "text": words} | ({"cache": mark} if mark else {})


def result(*parts: dict[str, Any], mark: object = None) -> dict[str, Any]:
    return {"kind": "tool_result", "id": "1", "parts": list(parts)} | ({"cache": mark} if mark else {})


THOUGHT = {"kind": "reasoning", "text": "hm"}
CALL = {"kind": "tool_call", "id": "1", "name": "f"}
CASES: dict[str, tuple[list[Any], list[Any] | None]] = {
    "on a text": ([text("Hi", MARK), text("")], None),
    "on a blank text": ([text("Hi"), text(" \n", MARK)], [text("Hi", MARK), text(" \n")]),
    "after two blank texts": ([text("Hi"), text(""), text("", MARK)], [text("Hi", MARK), text(""), text("")]),
    "the content has a mark": ([text("Hi", LONG), text("", MARK)], [text("Hi", LONG), text("")]),
    "after a call": ([CALL, text("", MARK)], [{**CALL, "cache": MARK}, text("")]),
    "the last in a result": ([result(text("x"), text("", MARK))], [result(text("x", MARK), text(""))]),
    "alone in a result": ([result(text("", MARK))], [result(text(""), mark=MARK)]),
    "alone in a result that has one": ([result(text("", MARK), mark=LONG)], [result(text(""), mark=LONG)]),
    "beside what is no object": (["hm", text("Hi"), text("", MARK)], ["hm", text("Hi", MARK), text("")]),
    "nothing at all": ([], None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("place", ["system", "turns"])
def test_a_mark_on_a_blank_text_applies_to_the_content_before_it(name: str, place: str) -> None:
    given, wanted = CASES[name]
    context = Context()
    hub = {"system": given} if place == "system" else {"turns": [{"role": "user", "parts": given}, "odd"]}
    move_marks(hub, context)
    made = hub["system"] if place == "system" else hub["turns"][0]["parts"]  # type: ignore[index]
    assert made == (given if wanted is None else wanted) and context.lost == []
    assert wanted is not None or made is given


@pytest.mark.parametrize("before", [[], [text("")], [THOUGHT]], ids=["nothing", "a blank text", "reasoning"])
def test_a_mark_without_a_place_is_named(before: list[Any]) -> None:
    context = Context()
    hub = {"turns": [{"role": "assistant", "parts": [*before, text("", MARK)]}]}
    move_marks(hub, context)
    assert hub["turns"][0]["parts"] == [*before, text("")]
    assert list(context.lost) == ["a cache mark with nothing before it"]
