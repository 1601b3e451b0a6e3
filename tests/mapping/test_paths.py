"""Text becomes the steps of a path."""

from __future__ import annotations

import pytest

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
def test_what_most_paths_are_made_of_reads_as_jsonpath_does(text, monkeypatch):
    said = jsonpath.steps_of(text, text[1:])
    paths.parse_path.cache_clear()
    monkeypatch.setattr(jsonpath, "steps_of", None)  # which takes a millisecond for each
    assert paths.parse_path(text).steps == said


def test_a_field_may_have_the_name_of_a_word_of_jsonpath():
    assert paths.parse_path("$.where[*].parent").steps == ("where", paths.Every(), "parent")
