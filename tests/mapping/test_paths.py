"""Parsing a path into its steps."""

from __future__ import annotations

import pytest

from mapping.support import run
from tollgate.mapping import jsonpath, paths

QUICK = (
    "$.a[*].b",
    "$[*]",
    "$.a[?(@.kind == 'text')].text",
    "$.a[?(@.kind!='tool_call')]",
    "$.a[0][?(@.index == 0)].b[*]",
    "$.a[?(@.n != 12)]",
    "$.a[?(@.custom == true)]",
    "$['a-b'][?(@.custom == false)][-1]",
    "$[\"a\"][?(@.v == '1-2')]",
)


@pytest.mark.parametrize("text", QUICK)
def test_the_fast_parser_of_simple_paths_agrees_with_jsonpath(text, monkeypatch):
    steps = jsonpath.steps_of(text, text[1:])
    paths.parse_path.cache_clear()
    monkeypatch.setattr(jsonpath, "steps_of", None)  # which takes a millisecond per path
    assert paths.parse_path(text).steps == steps


def test_a_field_may_be_named_like_a_keyword_of_jsonpath():
    assert paths.parse_path("$.where[*].parent").steps == ("where", paths.Every(), "parent")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$.l[?(@.k & @.m)].n", [3]),
        ("$.l[?(@.k & @.m == 2)].n", [3]),
        ("$.l[?(@.m == 2 & @.k)].n", [3]),
        ("$.l[?(@.n > 1 & @.o.p & @.o.q != 7)].n", [2]),
        ("$.l[?(@.k & @.m & @.o)].n", None),
    ],
)
def test_conditions_are_joined_in_any_order(text, found):
    """The library reads `@.k & @.m` as one path, which it cannot evaluate."""
    items = [{"n": 1, "k": 0, "m": None}, {"n": 2, "o": {"p": 1}}, {"n": 3, "k": 1, "m": 2}]
    assert run(f'{{made: "{text}"}}', {"l": items}) == ({"made": found} if found else None)
