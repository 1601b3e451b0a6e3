"""Explain and coverage: line numbers of the YAML for steps that ran and for lines that did not."""

from __future__ import annotations

import pytest

from mapping.support import document
from tollgate.mapping import compile_mapping, run_examples
from tollgate.mapping.coverage import Watch, covered, live_lines
from tollgate.mapping.explain import explain_stream, explain_whole
from tollgate.mapping.tracing import TraceContext

TEXT = """\
mapping: tiny
define:
  part($p):
    $match: $p.type
    text: {kind: text, text: $p.text}
    $else: {$lost: "part {{ $p.type }}"}
request:
  to_hub:
    model: $.model
    turns: [{$each: $m in $.messages, role: user, parts: [{$each: $p in $m.content, $value: "{{ part($p) }}"}]}]
  from_hub:
    model: $model.upstream
    effort: {$match: $.reasoning.effort, high: max, $else: min}
    broken: "{{ $.max_tokens + $.model }}"
response:
  to_hub: {id: $.id, parts: [{kind: text, text: $.text}], stop: $.stop}
  from_hub: {id: $.id, text: "{{ $.parts[*].text | join }}"}
error:
  to_hub: {message: $.why}
  from_hub: {error: $.message}
stream:
  to_hub:
    always:
      - {start: {id: $.id}}
      - {delta: {kind: text, text: $.t}}
      - {$when: $.stop, stop: {reason: $.stop}}
  from_hub:
    text: {delta: [{t: $delta}]}
    finish: [{done: $run.stop}]
examples:
  - {name: one, of: request.to_hub, given: {model: m}, expect: {model: m}}
"""
TINY = compile_mapping(document(TEXT, "mappings/tiny.yaml"))


def test_a_request_is_explained_line_by_line() -> None:
    body = {"model": "m", "extra": 1, "messages": [{"content": [{"type": "text", "text": "hi"}, {"type": "video"}]}]}
    explained = explain_whole("request", TINY, TINY, body, TraceContext({"upstream": "up"}))
    first, second = explained.stages
    assert [(step.line, step.path, step.value) for step in first.steps] == [
        (9, "model", "m"),
        (10, "turns.role", "user"),
        (5, "turns.parts.kind", "text"),
        (5, "turns.parts.text", "hi"),
        (10, "turns.parts", {"kind": "text", "text": "hi"}),
    ]
    assert first.unread == ["extra"]
    assert [(step.line, step.path, step.value) for step in second.steps] == [(12, "model", "up"), (13, "effort", "min")]
    assert explained.lost == ["part video", "extra", "messages[].content"] and not explained.error
    assert "9  model" in explained.text() and "never read by the mapping: extra" in explained.text()


def test_a_failure_names_its_line_and_has_no_result() -> None:
    both = compile_mapping(
        document(TEXT.replace("model: $.model\n", "$copy: [model, max_tokens]\n"), "mappings/tiny.yaml")
    )
    explained = explain_whole("request", both, both, {"model": "m", "max_tokens": 3}, TraceContext())
    assert explained.error.startswith("mappings/tiny.yaml:14: ") and "cannot add" in explained.error
    assert explained.result is None


@pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "max_tokens": 3}], ids=["absent", "not in the hub"])
def test_a_sum_with_an_absent_value_is_no_failure(body: dict[str, object]) -> None:
    explained = explain_whole("request", TINY, TINY, body, TraceContext({"upstream": "up"}))
    assert not explained.error and explained.result == {"model": "up", "effort": "min"}


def test_an_answer_an_error_and_a_stream_are_explained() -> None:
    answer = explain_whole("response", TINY, TINY, {"id": "a", "text": "x", "stop": "end"}, TraceContext())
    assert answer.result == {"id": "a", "text": "x"}
    error = explain_whole("error", TINY, TINY, {"why": "boom"}, TraceContext())
    assert error.result == {"error": "boom"} and error.stages[0].steps[0].line == 19
    stream = explain_stream(TINY, TINY, [{"id": "a", "t": "x"}, {"stop": "end"}], TraceContext())
    assert stream.result == [{"t": "x"}, {"done": "end"}]
    assert [(step.line, step.path) for step in stream.stages[0].steps] == [
        (24, "start.id"),
        (25, "delta.text"),
        (25, "delta.kind"),
        (28, "text.delta.t"),
    ]
    assert stream.plain()["stages"][0]["said"] == [{"t": "x"}]


def test_coverage_lists_the_lines_that_no_example_reaches() -> None:
    watch = Watch([TINY.file])
    with watch.watching():
        assert run_examples(TINY) == []
    [found] = covered([TINY], watch)
    assert {9, 10} <= found.reached and not {5, 12, 25} & found.reached
    assert {5, 6, 9, 10, 12, 13, 14, 16, 24, 25, 28} <= live_lines(TINY)
    assert found.text().startswith("mappings/tiny.yaml: ") and "never reached: 3-6, 12-14" in found.text()
