"""YAML text becomes a tree, or is rejected with a place."""

from __future__ import annotations

import pytest
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from tollgate.config import load, yaml_tree


class PurePython(Reader, Scanner, Parser):
    """PyYAML's parser without libyaml."""

    def __init__(self, text):
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


@pytest.fixture(params=["libyaml", "pure python"], autouse=True)
def parser(request, monkeypatch):
    if request.param == "pure python":
        monkeypatch.setattr(yaml_tree, "Parser", PurePython)


def problems_of(text):
    return [
        f"{problem.mark.line}:{problem.mark.column}: {problem.message}"
        for problem in load.read_text(text, "x.yaml").problems
    ]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", {}),
        (
            "a: &x {b: [1, no]}\nc: *x\nd: [*x, *x]\n",
            {"a": {"b": [1, "no"]}, "c": {"b": [1, "no"]}, "d": [{"b": [1, "no"]}] * 2},
        ),
        ("&k key: 1\nother: {*k : 2}\n", {"key": 1, "other": {"key": 2}}),
        ("a: '1'\nb: !!str 1\nc: ! 1\nd: ~\ne: !!str\n", {"a": "1", "b": "1", "c": "1", "d": None, "e": ""}),
    ],
    ids=["empty", "aliases", "alias of a key", "tags of text"],
)
def test_a_text_is_read(text, tree):
    document = load.read_text(text, "x.yaml")
    assert load.plain(document.root) == tree and not document.problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: *x\n", ["1:4: not readable as YAML: found undefined alias"]),
        ("a: &x 1\nb: &x 2\n", ["2:4: not readable as YAML: second occurrence"]),
        ("a: &x [1, *x]\n", ["1:11: `*x` stands inside of what it stands for"]),
        ("? [a, {b: c}]\n: [d]\ne: 1\n", ["1:3: a key must be a word"]),
        ("a: &x [1]\n*x : 2\n", ["2:1: a key must be a word"]),
        (
            "a: 1\na: {b: 2}\nc: !!set {d}\ne: !!int 3\nf: !!bool '4'\n",
            [
                "2:1: key `a` is written twice (first at line 1)",
                "4:4: tag `!!int` is not read",
                "5:4: tag `!!bool` is not read",
            ],
        ),
        ("a: " + "[" * 101 + "]" * 101, ["1:104: nested more than 100 levels deep"]),
        ("a: 1\n---\nb: 2\n", ["2:1: not readable as YAML: found another document"]),
        ("a: 1\nb: \x07\nc: 2\n", ["2:1: character U+0007 is not allowed in YAML"]),
    ],
    ids=[
        "undefined alias",
        "anchor twice",
        "alias of itself",
        "list as key",
        "alias of a list as key",
        "key twice",
        "too deep",
        "two documents",
        "a control character",
    ],
)
def test_an_invalid_text_is_rejected_with_a_place(text, problems):
    assert problems_of(text) == problems


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ('a: [{$each: $v in $.c[0], b: "{{ $v }}"}]\n', "1:22", "put quotes around a value with brackets"),
        ("a: {b: {{ $.z }} x}\n", "1:18", "put quotes around a value with {{ }}"),
        ('a: {when: "$.a" == 1}\n', "1:17", "a value ends with its closing quotation mark"),
        ('a: 1\nb: "{{ $x }}\nc: 2\n', "2:4", "a quotation mark is not closed"),
        ('a: "x\nc: "y"\n', "2:5", "a quotation mark is not closed"),
        ('a: "x\nb: 1\nc: "y"\n', "3:5", "a quotation mark is not closed, probably that in line 1"),
        ("a:\n  b: 1\n \u00a0c: 2\n  d: 3\n", "3:2", "line 3 has a character that only looks like a blank (U+00A0)"),
        ("a:\n  b:1\n  c: 2\n", "3:4", "the line before has no blank behind its `:`, as in `b: ...`"),
        ("a: [1, 2\nb: 3\n", "2:2", "a bracket before it is not closed"),
        ("a: [*-mini, @b]\n", "1:5", "put quotes around a value that begins with such a character"),
        ("a: [{set: {$.b[*].c: 1}}]\n", "1:17", "a `*` or `&` begins an alias or anchor here"),
        ("a:\n  b/c\nd: 1\ne\nf: 1\n", "5:1", "the line before has no `:`"),
        ('a: "\\d+"\n', "1:", "between double quotes a backslash is written twice"),
    ],
)
def test_a_yaml_mistake_has_a_hint_at_its_usual_cause(text, place, hint):
    (problem,) = load.read_text(text, "x.yaml").problems
    assert str(problem.mark).startswith(f"x.yaml:{place}")
    assert problem.hint.startswith(hint)


def test_invalid_yaml_is_the_only_problem_reported():
    (problem,) = problems_of("a: 1\na: 2\nb: [\n")
    assert problem.startswith("4:1: not readable as YAML: ")


def test_nested_aliases_do_not_exhaust_memory(monkeypatch):
    monkeypatch.setattr(yaml_tree, "MAX_NODES", 100)
    text = "a: &a [1, 2, 3]\n" + "".join(
        f"{after}: &{after} [*{before}, *{before}, *{before}, *{before}]\n"
        for before, after in zip("abcde", "bcdef", strict=True)
    )
    assert problems_of(text) == ["4:8: more than 100 values in one file"]
