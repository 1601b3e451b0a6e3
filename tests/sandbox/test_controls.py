"""Reading markers and the header; other text stays as it is."""

from __future__ import annotations

import pytest

from support.places import ROOT
from tollgate.sandbox import MARKERS
from tollgate.sandbox.controls import Call, Controls, Failure, read_controls, seconds

READ = {
    "a count": ("hi [[tokens=50]] there", Controls(tokens=50), "hi there"),
    "milliseconds": ("[[pace=20ms]]x", Controls(pace=0.02), "x"),
    "seconds": ("x [[delay=2s]]", Controls(delay=2.0), "x"),
    "two markers": ("[[tokens=3]] [[no-usage]] x", Controls(tokens=3, no_usage=True), "x"),
    "spaces inside": ("[[ tokens=3 ]]", Controls(tokens=3), ""),
    "an error with options": (
        "[[error=429 retry-after=2 code=slow message=be_slow times=1]]",
        Controls(error=Failure(429, "2", "slow", None, "be slow", 1)),
        "",
    ),
    "a tool": ("[[tool]] x", Controls(calls=(Call(),)), "x"),
    "a named tool": ("[[tool=get]]", Controls(calls=(Call("get"),)), ""),
    "a tool with brackets in its arguments": (
        'a [[tool=get {"a":[[1]]}]] b',
        Controls(calls=(Call("get", {"a": [[1]]}),)),
        "a b",
    ),
    "arguments without a name": ('[[tool={"a":1}]]', Controls(calls=(Call(None, {"a": 1}),)), ""),
    "two tools": ("[[tool=a]][[tool=b]]", Controls(calls=(Call("a"), Call("b"))), ""),
    "a cut at once": ("[[cut]]", Controls(cut=0), ""),
    "a tidy cut": ("[[cut=5 clean]]", Controls(cut=5, clean=True), ""),
    "for this model": ("[[error=500 model=echo]] x", Controls(error=Failure(500)), "x"),
    "for another model": ("[[error=500 model=other]] x", Controls(), "x"),
    "an unknown marker": ("[[wiki]] x", Controls(), "[[wiki]] x"),
    "an invalid number": ("[[tokens=many]]", Controls(), "[[tokens=many]]"),
    "an invalid duration": ("[[pace=nan]] [[delay=-1]]", Controls(), "[[pace=nan]] [[delay=-1]]"),
    "an unclosed bracket": ("[[tokens=5 x", Controls(), "[[tokens=5 x"),
    "invalid arguments": ('[[tool=get {"a":]]', Controls(), '[[tool=get {"a":]]'),
    "a huge count is limited": ("[[tokens=999999999]]", Controls(tokens=200_000), ""),
    "spaces of plain text are kept": ("a  b", Controls(), "a  b"),
}


@pytest.mark.parametrize(("text", "controls", "plain"), READ.values(), ids=READ.keys())
def test_markers_are_read_and_removed(text, controls, plain):
    assert read_controls(text, {}, "echo") == (controls, plain)


def test_the_header_has_the_same_words_separated_by_commas():
    header = 'error=429 retry-after=2, pace=20ms, tool=get {"a":1,"b":2}, tokens=4'
    found, _ = read_controls("", {"x-sandbox": header}, "echo")
    assert found == Controls(error=Failure(429, "2"), pace=0.02, calls=(Call("get", {"a": 1, "b": 2}),), tokens=4)


def test_the_header_wins_over_the_text():
    assert read_controls("[[tokens=3]]", {"x-sandbox": "tokens=4"}, "echo")[0].tokens == 4


@pytest.mark.parametrize("header", ["", ",", "what=1", "tokens=many", "tool={", "=,=,="])
def test_an_invalid_header_is_ignored(header):
    assert read_controls("hi", {"x-sandbox": header}, "echo") == (Controls(), "hi")


def test_a_header_is_read_around_what_is_missing_in_it():
    assert read_controls("", {"x-sandbox": "tokens=3,,, ,"}, "echo")[0] == Controls(tokens=3)
    assert read_controls("", {"x-sandbox": "error="}, "echo")[0] == Controls(error=Failure(500))


def test_durations_are_read_in_milliseconds_and_seconds():
    assert (seconds("20ms"), seconds("2s"), seconds("2")) == (0.02, 2.0, 2.0)


def test_every_marker_is_documented():
    page = (ROOT / "docs" / "sandbox.md").read_text()
    assert [m for m, meaning in MARKERS.items() if f"| `{m}` | {meaning} |" not in page] == []
