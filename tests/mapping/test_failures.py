"""Failures while a mapping runs: clean errors that name the YAML line, limits, sealed tokens, lenient handling of
answers."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import orjson
import pytest

from mapping.support import document, template
from tollgate.errors import BadRequest, TollgateError
from tollgate.mapping import (
    Context,
    MappingFailure,
    StreamConverter,
    compile_mapping,
    convert_error,
    convert_request,
    convert_response,
    tap_response,
)
from tollgate.mapping.convert import response_to_hub
from tollgate.mapping.failures import UnfitRequest
from tollgate.mapping.pieces import compile_expression, compile_url
from tollgate.mapping.seal import seal, unseal

TEXT = """\
mapping: m
define:
  block($p):
    $match: $p.kind
    tool_call:
      id: $p.id
      name: $p.name
      input: "{{ $p.args | parse_json }}"
    tool_result: {inner: [{$each: $c in $p.parts, $value: "{{ block($c) }}"}]}
    text: $p.text
request:
  to_hub:
    $copy: [model]
    max_tokens: "{{ $.limit - 1 }}"
    turns: [{$each: $t in $.turns, role: user, parts: $t.parts}]
  from_hub:
    max_tokens: $.max_tokens
    blocks:
      - $each: $t in $.turns
        $value: [{$each: $p in $t.parts, $value: "{{ block($p) }}"}]
response:
  to_hub: {id: $.id, parts: $.parts, stop: $.stop, usage: {input: "{{ $.used + 1 }}"}}
  from_hub: {blocks: [{$each: $p in $.parts, $value: "{{ block($p) }}"}]}
error:
  to_hub: {message: "{{ $.a - $.b }}"}
  from_hub: {error: {message: "{{ $.message + 1 }}"}}
stream:
  to_hub:
    always:
      - {delta: {kind: text, text: $.t}}
      - {$when: $.bad, stop: {reason: "{{ $.bad - 1 }}"}}
  from_hub:
    text: {delta: [{t: $delta}]}
    error: [{error: $error.message}]
"""
M = compile_mapping(document(TEXT, "mappings/m.yaml"))


def request(turns: list[Any], **more: Any) -> Any:
    return convert_request(M, M, {"turns": turns, **more}, Context())


def call(arguments: str) -> dict[str, Any]:
    return {"kind": "tool_call", "id": "c", "name": "f", "args": arguments}


def test_a_value_that_an_expression_cannot_use_is_a_400_with_its_line() -> None:
    with pytest.raises(UnfitRequest) as found:
        request([], limit="many")
    error = found.value
    assert isinstance(error, BadRequest) and error.status == 400
    assert error.place == "mappings/m.yaml:14" and "cannot subtract a text and a number" in error.message
    assert "mappings/m.yaml" not in error.message, "the file is for the log, not for the caller"
    assert str(error).startswith("mappings/m.yaml:14: ")


def test_the_traceback_contains_the_line_of_the_yaml() -> None:
    with pytest.raises(UnfitRequest) as found:
        request([], limit="many")
    frames = traceback.extract_tb(found.value.__cause__.__traceback__)
    assert ("mappings/m.yaml", 14) in [(frame.filename, frame.lineno) for frame in frames]


def test_arguments_that_are_not_json_are_rejected_in_a_request() -> None:
    with pytest.raises(UnfitRequest, match="not JSON: '{oops'") as found:
        request([{"parts": [call("{oops")]}])
    assert found.value.place == "mappings/m.yaml:8"
    assert found.value.param == "turns[0].parts[0].args", "the field in the client's format"


def test_arguments_read_by_their_filter_keep_text_that_is_not_json() -> None:
    """A client sends them back with every turn: refused, they would end its conversation."""
    lenient = compile_mapping(document(TEXT.replace("parse_json", "arguments"), "mappings/m.yaml"))
    turns = [{"parts": [call("{oops"), call('{"a":1}')]}]
    made = convert_request(lenient, lenient, {"turns": turns}, Context())
    assert [block["input"] for block in made.body["blocks"]] == [{"INVALID_JSON": "{oops"}, {"a": 1}]
    assert "arguments that are not JSON" not in made.lost


def test_arguments_that_are_not_json_become_an_empty_object_in_an_answer() -> None:
    made = convert_response(M, M, {"id": "a", "parts": [call("{oops"), call('{"a":1}')], "stop": "tool"}, Context())
    assert [block["input"] for block in made.body["blocks"]] == [{}, {"a": 1}]
    assert made.lost == ["arguments that are not JSON"]


def test_arguments_nested_too_deep_to_serialize_are_handled_as_invalid_json() -> None:
    def nested(levels: int) -> str:
        return '{"a":' * levels + "1" + "}" * levels

    made = convert_response(
        M, M, {"id": "a", "parts": [call(nested(241)), call(nested(240))], "stop": "tool"}, Context()
    )
    assert made.body["blocks"][0]["input"] == {} and made.body["blocks"][1]["input"] != {}
    assert made.lost == ["arguments that are nested too deeply"]
    assert orjson.dumps(made.body)
    with pytest.raises(UnfitRequest, match="nested too deeply"):
        request([{"parts": [call(nested(241))]}])


def test_arguments_with_too_many_values_are_handled_as_invalid_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollgate.mapping.filters._MOST_VALUES", 100)
    crowded = '{"a":[%s0]}' % ("[]," * 100)
    made = convert_response(
        M, M, {"id": "a", "parts": [call(crowded), call(orjson.dumps(crowded).decode())], "stop": "tool"}, Context()
    )
    assert [block["input"] for block in made.body["blocks"]] == [{}, crowded]
    assert set(made.lost) == {"arguments that are more than 100 values", "arguments that are not an object"}
    with pytest.raises(UnfitRequest, match="more than 100 values"):
        request([{"parts": [call(crowded)]}])


def test_an_empty_text_of_an_answer_is_not_a_part() -> None:
    empty = {"kind": "text", "text": ""}
    made = response_to_hub(M, {"id": "a", "parts": [empty, call("{}"), {**empty, "token": "T"}]}, Context())
    assert [part["kind"] for part in made["parts"]] == ["tool_call", "text"]
    made = response_to_hub(M, {"id": "a", "parts": [empty]}, Context())
    assert made["parts"] == [] and made["stop"] == "end"


def test_an_answer_that_cannot_be_read_is_a_500() -> None:
    with pytest.raises(MappingFailure) as found:
        convert_response(M, M, {"used": "x"}, Context())
    assert (
        found.value.status == 500
        and found.value.place == "mappings/m.yaml:22"
        and not isinstance(found.value, BadRequest)
    )
    assert tap_response(M, {"used": "x"}) == {}


def test_a_stream_that_cannot_be_converted_ends_with_an_error_event() -> None:
    converter = StreamConverter(M, M, Context())
    converter.feed({"t": "x"})
    events = converter.feed({"bad": "y"})
    assert events == [(None, {"error": "this answer cannot be converted"})]
    assert converter.failure is not None and converter.failure.place == "mappings/m.yaml:31"
    assert converter.feed({"t": "more"}) == [] and converter.finish() == []


def test_an_error_mapping_that_fails_still_returns_an_error() -> None:
    assert convert_error(M, M, {"a": [], "b": {}}) == {"error": {"message": '{"a":[],"b":{}}'}}


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": "text", "text": "x"}
    for _ in range(depth):
        part = {"kind": "tool_result", "parts": [part]}
    return part


def test_deep_nesting_is_a_clean_400() -> None:
    assert request([{"parts": [nested(100)]}]).body["blocks"]
    with pytest.raises(UnfitRequest, match="nested too deeply"):
        request([{"parts": [nested(100_000)]}])


def test_the_work_for_one_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollgate.mapping.context._MAX_CALLS", 50)
    with pytest.raises(UnfitRequest, match="too many nested parts"):
        request([{"parts": [{"kind": "tool_result", "parts": [{"kind": "text", "text": "x"}] * 60}]}])


@pytest.mark.parametrize("body", [None, [], "x", 3, True], ids=repr)
def test_a_body_that_is_not_an_object_is_rejected(body: Any) -> None:
    with pytest.raises(BadRequest):
        convert_request(M, M, body, Context())
    with pytest.raises(TollgateError):
        convert_response(M, M, body, Context())


# -- sealed tokens


def test_a_sealed_token_can_be_unsealed() -> None:
    sealed = seal({"token": "T" * 5000, "origin": "openai", "id": "rs_1"})
    assert sealed and sealed.startswith("tg1.")
    assert unseal(sealed) == {"token": "T" * 5000, "origin": "openai", "id": "rs_1"}
    assert unseal(seal({"token": "t"})) == {"token": "t"}
    signed = {"token": "t", "origin": "openai", "id": "rs_1", "text": "some reasoning, 日本"}
    assert unseal(seal(signed, signed["text"])) == signed
    for invalid in (3, [], "x" * 257):
        for text in (3, ""):
            assert unseal(seal({"token": "t", "origin": invalid, "id": invalid}, text)) == {"token": "t"}
    for unsealable in ({"origin": "x"}, "x", {"token": 3}, {"token": ""}, {"token": "\ud800"}):
        assert seal(unsealable) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        3,
        "",
        "plain",
        "tg1.",
        "tg1.!!!",
        "tg1.e30",
        "tg1.WzEsMiwzXQ",
        "tg1.WyJhIiwiIixudWxsXQ",
        "tg1.ImFiYyI",
        "tg1.W251bGwsInQiXQ",
        "tg1.WyJhIiwidCIsbnVsbCwieCIsInkiXQ",
        "tg2.WyJ4IiwieSIsbnVsbF0",
        "tg1.é",
    ],
    ids=repr,
)
def test_a_damaged_token_is_ignored(text: Any) -> None:
    assert unseal(text) is None


# -- pieces of provider files


def test_values_in_a_url_are_escaped() -> None:
    read = document(
        "a: https://{{ $vars.host }}/m/{{ $model.upstream }}:go?v={{ $vars.v }}\nb: https://h/{{ $model.upstream | raw "
        "}}"
    )
    one = compile_url(read, read.root.get("a"), names=["model", "vars"])
    assert one(model={"upstream": "a/b:c d?"}, vars={"host": "h", "v": 1}) == "https://h/m/a%2Fb%3Ac%20d%3F:go?v=1"
    assert one(model={}, vars={"host": "h", "v": 1}) is None, "no URL without every value"
    assert compile_url(read, read.root.get("b"), names=["model"])(model={"upstream": "a/b"}) == "https://h/a/b"


def test_a_condition_has_a_value_and_a_truth_value() -> None:
    read = document("a: $.n\nb: true")
    condition = compile_expression(read, read.root.get("a"), names=["$"])
    assert (
        condition({"n": 0}) == 0
        and condition.test({"n": 0})
        and not condition.test({"n": []})
        and not condition.test({})
    )
    assert compile_expression(read, read.root.get("b"), names=["$"]).test({})


def test_a_literal_template_is_returned_as_it_is() -> None:
    assert template("$$5")({}) == "$5" and template("7")({}) == 7


def test_threads_share_a_mapping() -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(200):
            made = convert_response(
                M, M, {"id": "a", "parts": [call(f'{{"n":{number}}}')], "stop": "tool", "odd": 1}, Context()
            )
            if made.body != {"blocks": [{"id": "c", "name": "f", "input": {"n": number}}]}:
                wrong.append(made.body)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


UNCHANGED = compile_mapping(
    document("mapping: p\nrequest:\n  to_hub: {turns: $.turns}\n  from_hub: {turns: $.turns}\n", "mappings/p.yaml")
)


@pytest.mark.parametrize(
    ("turns", "sent", "lost"),
    [
        (["a", "b"], [], ["a turn that the mapping made no object"]),
        ([{"role": "user"}, 5], [{"role": "user"}], ["a turn that the mapping made no object"]),
        ([{"parts": 5}, {"parts": "ab"}], [{"parts": 5}, {"parts": "ab"}], []),
    ],
    ids=["strings", "a number after a turn", "parts that are not a list"],
)
def test_invalid_turns_do_not_fail_a_request(turns: list[Any], sent: list[Any], lost: list[str]) -> None:
    made = convert_request(UNCHANGED, UNCHANGED, {"turns": turns}, Context())
    assert (made.body.get("turns"), made.lost) == (sent, lost)
