"""Explain and coverage: the YAML's own line numbers, in what ran and in what did not."""

from __future__ import annotations

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
    body = {"model": "m", "odd": 1, "messages": [{"content": [{"type": "text", "text": "hi"}, {"type": "video"}]}]}
    told = explain_whole("request", TINY, TINY, body, TraceContext({"upstream": "up"}))
    first, second = told.stages
    assert [(step.line, step.path, step.value) for step in first.steps] == [
        (9, "model", "m"),
        (10, "turns.role", "user"),
        (5, "turns.parts.kind", "text"),
        (5, "turns.parts.text", "hi"),
        (10, "turns.parts", {"kind": "text", "text": "hi"}),
    ]
    assert first.unread == ["odd"]
    assert [(step.line, step.path, step.value) for step in second.steps] == [(12, "model", "up"), (13, "effort", "min")]
    assert told.lost == ["part video", "odd", "messages[].content"] and not told.error
    assert "9  model" in told.text() and "never read by the mapping: odd" in told.text()


def test_a_failure_names_the_line() -> None:
    told = explain_whole("request", TINY, TINY, {"model": "m"}, TraceContext({"upstream": "up"}))
    assert not told.error
    explained = explain_whole("request", TINY, TINY, {"model": "m", "max_tokens": 3}, TraceContext())
    assert explained.result is not None  # the document has no max_tokens in its hub: nothing to add


def test_an_answer_an_error_and_a_stream() -> None:
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


def test_coverage_names_the_lines_no_example_reaches() -> None:
    watch = Watch([TINY.file])
    with watch.watching():
        assert run_examples(TINY) == []
    [found] = covered([TINY], watch)
    assert {9, 10} <= found.reached and not {5, 12, 25} & found.reached
    assert {5, 6, 9, 10, 12, 13, 14, 16, 24, 25, 28} <= live_lines(TINY)
    assert found.text().startswith("mappings/tiny.yaml: ") and "never reached: 3-6, 12-14" in found.text()
