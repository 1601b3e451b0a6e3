"""JSON written leaf by leaf: its text grows in the order of its leaves, and is complete at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgate.mapping.streams.leafwise import LeafwiseJson, Step, steps_of


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a", ["a"]),
        ("$.a[0].b", ["a", 0, "b"]),
        ("$['b c'][1]", ["b c", 1]),
        ('$["it\\"s"]', ['it"s']),
        ("$['it\\'s'].größe", ["it's", "größe"]),
        ("$[2]", [2]),
        ("$", None),
        ("a", None),
        ("$.", None),
        ("$.a[", None),
        ("$.a[-1]", None),
        ("$..a", None),
        ("$[*]", None),
        ("$.a[" + "9" * 5000 + "]", None),
    ],
)
def test_a_path_is_read_as_steps(path: str, steps: list[Step] | None) -> None:
    assert steps_of(path) == steps


def test_a_string_in_pieces_is_one_string() -> None:
    grown = LeafwiseJson()
    written = [
        grown.add("$.a", 'x"', more=True),
        grown.add("$.a", "\n", more=True),
        grown.add("$.a", ""),
        grown.add("$.b[0]", 1),
        grown.end(),
    ]
    assert written == ['{"a":"x\\"', "\\n", '"', ',"b":[1', "]}"]


def test_an_unfinished_string_ends_at_the_next_leaf() -> None:
    grown = LeafwiseJson()
    assert [grown.add("$.a", "x", more=True), grown.add("$.b", None), grown.end()] == ['{"a":"x', '","b":null', "}"]
    cut = LeafwiseJson()
    assert [cut.add("$.a.b", "x", more=True), cut.end()] == ['{"a":{"b":"x', '"}}']


def test_no_leaves_are_an_empty_object() -> None:
    assert LeafwiseJson().end() == "{}"


@pytest.mark.parametrize(
    ("leaves", "late"),
    [
        (["$.a"], "$.a"),
        (["$.a"], "$.a.b"),
        (["$.a.b"], "$.a"),
        (["$.a.b", "$.c"], "$.a.d"),
        (["$.a", "$.b"], "$.a"),
        (["$.a[0]"], "$.a[2]"),
        (["$.a[0]", "$.a[1]"], "$.a[0]"),
        (["$.a[0]"], "$.a.b"),
        ([], "$.a[1]"),
        ([], "$[9999999999]"),
        ([], "no path"),
    ],
)
def test_a_leaf_at_an_impossible_place_is_rejected_and_changes_nothing(leaves: list[str], late: str) -> None:
    grown = LeafwiseJson()
    text = "".join(grown.add(path, 1) or "" for path in leaves)
    assert grown.add(late, 2) is None
    json.loads(text + grown.end())


_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.text("ab.'[\"ü", min_size=1, max_size=3), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict | list))


def leaves_of(tree: Any, path: str = "$") -> list[tuple[str, Any]]:
    """Every leaf with its path, in order."""
    if isinstance(tree, dict):
        quoted = {key: key.replace("\\", "\\\\").replace("'", "\\'") for key in tree}
        return [leaf for key, value in tree.items() for leaf in leaves_of(value, f"{path}['{quoted[key]}']")]
    if isinstance(tree, list):
        return [leaf for place, value in enumerate(tree) for leaf in leaves_of(value, f"{path}[{place}]")]
    return [(path, tree)]


@given(_trees, st.integers(1, 3))
def test_all_leaves_in_order_give_the_whole_document(tree: Any, size: int) -> None:
    grown, text = LeafwiseJson(), ""
    for path, value in leaves_of(tree):
        pieces = [value[at : at + size] for at in range(0, len(value), size)] or [""] if isinstance(value, str) else []
        for piece in pieces[:-1]:
            text += grown.add(path, piece, more=True) or ""
        text += grown.add(path, pieces[-1] if pieces else value) or ""
    assert json.loads(text + grown.end()) == tree
