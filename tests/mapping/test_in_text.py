"""Marks inside the text of an answer: the parts they become, for every way a stream may be split."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.places import ROOT
from tollgate.config.load import read_file, read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import Context, StreamConverter, compile_mapping, convert_response, run_examples
from tollgate.mapping.convert import response_to_hub
from tollgate.mapping.streams.handlers import NO_WRITER
from tollgate.mapping.streams.marked import run_of

MAPPINGS = ROOT / "mappings"


@functools.cache
def shipped(name: str):
    return compile_mapping(read_file(MAPPINGS / f"{name}.yaml"))


SOURCE = """
mapping: plain
define:
  call($c): {$when: $c.name, kind: tool_call, name: $c.name, args: $c.arguments}
response:
  to_hub: {parts: [{$each: $t in $.texts, kind: text, text: $t}, {$each: $c in $.calls, kind: tool_call, name: $c}], stop: $.stop}
stream:
  to_hub:
    always:
      - {delta: {kind: text, key: $.key, text: $.text, steady: true}}
      - {$when: $.closed, close: {key: $.closed}}
      - {$when: $.call, part: {kind: tool_call, name: $.call}}
      - {$when: $.stop, stop: {reason: $.stop}}
in_text:
"""  # noqa: E501
THINK = "  - {from: <think>, to: </think>, kind: reasoning}\n"
CALL = """
  - from: <tool_call>
    to: </tool_call>
    parts: "{{ call($ | parse_json) }}"
"""
LIST = """
  - {from: "[CALLS]", parts: [{$each: $c in $ | parse_json, $value: "{{ call($c) }}"}]}
"""


def made(marks: str):
    return compile_mapping(read_text(SOURCE + marks, "mappings/plain.yaml"))


ALL = made(THINK + CALL.replace("    to:", "    at: anywhere\n    to:"))


def whole(mapping, *texts, **more):
    context = Context(run_id="r", now=1)
    return response_to_hub(mapping, {"texts": list(texts), "stop": "end", **more}, context)


def streamed(mapping, pieces, **more):
    run = run_of(mapping, NO_WRITER, Context(run_id="r", now=1))
    for piece in pieces:
        mapping.stream_in(piece if isinstance(piece, dict) else {"text": piece}, run, run.context)
        run.settle()
    mapping.stream_in({"stop": "end", **more}, run, run.context)
    run.finish()
    assert run.error is None
    return run.whole()


def cut(text: str, *places: int) -> list[str]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def text(words):
    return {"kind": "text", "text": words}


def reasoning(words):
    return {"kind": "reasoning", "text": words}


def call(name, args="{}", number=0):
    return {"kind": "tool_call", "id": f"call_r_{number}", "name": name, "args": args}


CASES = {
    "reasoning first": (THINK, "<think>\nhm\n</think>\n\nHi", [reasoning("hm"), text("Hi")]),
    "empty reasoning": (THINK, "<think>\n\n</think>\n\nHi", [text("Hi")]),
    "no marks": (THINK, " Hi <thin> there \n", [text(" Hi <thin> there \n")]),
    "in the middle": (THINK, "So <think>hm</think> Hi", [text("So"), reasoning("hm"), text("Hi")]),
    "two": (THINK, "<think>a</think><think>b</think>c", [reasoning("a"), reasoning("b"), text("c")]),
    "never closed": (THINK, "<think>hm </thin", [reasoning("hm </thin")]),
    "at the start only": (
        THINK.replace("kind", "at: start, kind"),
        " \n<think>a</think>b <think>c</think>",
        [reasoning("a"), text("b <think>c</think>")],
    ),
    "not at the start": (THINK.replace("kind", "at: start, kind"), "The <think> tag", [text("The <think> tag")]),
    "opened in the prompt": (
        THINK.replace("kind", "at: inside, kind"),
        "\nhm\n</think>\n\nHi",
        [reasoning("hm"), text("Hi")],
    ),
    "opened in the answer although the prompt did": (
        THINK.replace("kind", "at: inside, kind"),
        "\n<think>hm</think>Hi </think>",
        [reasoning("hm"), text("Hi </think>")],
    ),
    "opened in the prompt, and the opening mark quoted": (
        THINK.replace("kind", "at: inside, kind"),
        "So <think> is a tag</think>Hi",
        [reasoning("So <think> is a tag"), text("Hi")],
    ),
    "opened in the prompt and never closed": (THINK.replace("kind", "at: inside, kind"), "Hi", [reasoning("Hi")]),
    "marks around text": ("  - {from: <answer>, to: </answer>, kind: text}\n", "<answer>Hi</answer>", [text("Hi")]),
    "a call": (
        CALL,
        'Now:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        [text("Now:"), call("f", '{"a":1}')],
    ),
    "two calls": (
        CALL,
        '<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"name": "g"}</tool_call>\n',
        [call("f"), call("g", number=1)],
    ),
    "a call never closed": (CALL, '<tool_call>{"name": "f"}', [call("f")]),
    "a truncated call": (CALL, 'a <tool_call> {"name": "f', [text("a"), text(' <tool_call> {"name": "f')]),
    "a call never closed is text": (
        CALL + "    unclosed: text\n",
        'a <tool_call>{"name": "f"} ',
        [text("a"), text(' <tool_call>{"name": "f"} ')],
    ),
    "a call that is not JSON": (CALL, "<tool_call>what?</tool_call> b", [text("<tool_call>what?</tool_call> b")]),
    "calls to the end": (
        LIST,
        '[CALLS][{"name": "f"}, {"name": "g", "arguments": "{}"}]',
        [call("f"), call("g", number=1)],
    ),
    "no calls to the end": (LIST, "[CALLS] soon", [text("[CALLS] soon")]),
    "reasoning and a call": (
        THINK + CALL,
        '<think>hm</think>\n<tool_call>{"name": "f"}</tool_call>',
        [reasoning("hm"), call("f")],
    ),
    "an empty list": ("  []\n", "<think>hm", [text("<think>hm")]),
}


def joined(parts):
    """Merges adjacent texts: a stream returns them as they arrive."""
    out = []
    for part in parts:
        if out and part["kind"] == "text" == out[-1]["kind"]:
            out[-1] = text(out[-1]["text"] + part["text"])
        else:
            out.append(part)
    return out


@pytest.mark.parametrize("name", CASES)
def test_text_between_marks_becomes_a_part_for_any_split(name):
    marks, given, parts = CASES[name]
    mapping = made(marks)
    assert joined(whole(mapping, given)["parts"]) == joined(parts)
    for size in range(1, len(given) + 1):
        pieces = [given[at : at + size] for at in range(0, len(given), size)]
        assert joined(streamed(mapping, pieces)["parts"]) == joined(parts), pieces


WORDS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "f"}',
    " ",
    "\n",
    "hm",
    "<",
    "</",
    "<tool",
    "é",
    "think>",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same_parts_as_the_whole_text(words, places):
    given = "".join(words)
    if given:
        in_pieces, at_once = streamed(ALL, cut(given, *places)), whole(ALL, given)
        assert joined(in_pieces["parts"]) == joined(at_once["parts"])
        assert in_pieces["stop"] == at_once["stop"]


@given(st.text("ab <>/\n", max_size=40), st.lists(st.integers(0, 50), max_size=6))
def test_text_without_marks_is_returned_unchanged(given, places):
    if given:
        assert "".join(part["text"] for part in streamed(ALL, cut(given, *places))["parts"]) == given


@pytest.mark.parametrize("place", ["anywhere", "start", "inside"])
def test_text_is_sent_as_soon_as_it_cannot_be_a_mark(place):
    mapping = made(THINK.replace("kind", f"at: {place}, kind"))
    converter = StreamConverter(mapping, shipped("chat"), Context())

    def sent(piece):
        deltas = [data["choices"][0]["delta"] for _, data in converter.feed({"text": piece}) if data["choices"]]
        return "".join(
            delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in deltas
        )

    assert (
        sent("<thi") == ""
        and sent("nk>I ") == "I"
        and sent("see") == " see"
        and sent("</") == ""
        and sent("thing") == "</thing"
    )
    assert sent("</think>") == "" and sent("Hi") == "Hi" and sent(" you") == " you"


def test_a_call_in_the_text_sets_the_stop_reason():
    given = '<tool_call>{"name": "f"}</tool_call>'
    assert whole(ALL, given)["stop"] == streamed(ALL, [given])["stop"] == "tool"


def test_each_text_of_an_answer_is_searched_separately():
    assert whole(ALL, "a<think>b", "c</think>")["parts"] == [text("a"), reasoning("b"), text("c</think>")]
    pieces = [{"key": 1, "text": "a<th"}, {"key": 1, "text": "ink>b"}, {"closed": 1}, {"key": 2, "text": "c</think>"}]
    assert streamed(ALL, pieces)["parts"] == [text("a"), reasoning("b"), text("c</think>")]


def test_another_part_ends_the_text():
    assert streamed(ALL, ["<think>a", {"call": "g"}, "b</think>"])["parts"] == [
        reasoning("a"),
        call("g"),
        text("b</think>"),
    ]


@pytest.mark.parametrize("place", ["anywhere", "start", "inside"])
def test_endless_line_breaks_are_held_back_in_linear_time(place):
    """A model that loops writes them one by one; searching the held text again for each one took minutes."""
    mapping = made(THINK.replace("kind", f"at: {place}, kind"))
    breaks = ["\n"] * 100_000
    given = [*breaks, "<think>", "hm", *breaks, "well", *breaks, "</think>", *breaks, "Hi"]
    middle = [reasoning("hm" + "\n" * 100_000 + "well"), text("Hi")]
    assert streamed(mapping, given)["parts"] == middle
    received = streamed(mapping, ["a", *breaks])["parts"]
    assert "".join(part["text"] for part in received).rstrip() == "a"


def test_held_back_text_counts_as_received_and_is_sent_before_an_error():
    converter = StreamConverter(ALL, shipped("chat"), Context())
    converter.feed({"text": 'a <tool_call>{"name'})
    assert [part["text"] for part in converter.parts()] == ["a", '<tool_call>{"name']
    events = converter.fail("gone")
    assert '<tool_call>{\\"name' in str(events[0][1]).replace('"name', '\\"name')


def test_events_with_marks_are_not_converted_together():
    converter = StreamConverter(ALL, shipped("chat"), Context(), frames=True)
    converter.feed({"text": "a"})
    converter.follow(None, b'{"text":"a"}')
    assert not converter.follows and converter.pattern is None


def test_a_template_may_depend_on_the_text_between_marks():
    mapping = made(
        "  - {from: <a>, to: </a>, parts: {$match: $, hm: {kind: reasoning, text: $}, $else: {kind: refusal, text: "
        "$}}}\n"
    )
    assert whole(mapping, "<a>hm</a><a>no</a>")["parts"] == [reasoning("hm"), {"kind": "refusal", "text": "no"}]


def test_a_whole_answer_with_marks_is_converted_to_a_client_format():
    answer = convert_response(
        ALL,
        shipped("messages"),
        {"texts": ['<think>hm</think>Hi<tool_call>{"name": "f"}</tool_call>'], "stop": "end"},
        Context(),
    )
    assert [block["type"] for block in answer.body["content"]] == ["thinking", "text", "tool_use"]


def test_examples_of_a_mapping_file_apply_its_marks():
    good = (
        SOURCE
        + THINK
        + """
examples:
  - {of: response.to_hub, given: {texts: [<think>a</think>b]}, expect: {parts: [{kind: reasoning, text: a}, {kind: text, text: b}]}}
  - {of: stream.to_hub, given: [{text: <th}, {text: ink>a}, {stop: end}], expect: {id: run, parts: [{kind: reasoning, text: a}], stop: end}}
"""  # noqa: E501
    )
    mapping = compile_mapping(read_text(good, "mappings/plain.yaml"))
    problems = run_examples(mapping, {})
    assert all("id" in problem.message or "created" in problem.message for problem in problems), [
        each.render() for each in problems
    ]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("  - {form: <a>, kind: text}\n", ["15:6", "unknown key `form`", "did you mean `from`?"]),
        ("  - {from: <a>, kind: thinking}\n", ["15:23", "`kind` cannot be `thinking`", "reasoning, text, refusal"]),
        ("  - {from: <a>, kind: text, parts: $}\n", ["15:5", "found both"]),
        ("  - {from: <a>}\n", ["15:5", "found neither"]),
        ("  - {to: <a>, kind: text}\n", ["15:5", "a mark needs `from`"]),
        ("  - {from: ' <a>', kind: text}\n", ["15:12", "without blanks at its ends"]),
        ("  - {from: <a>, kind: text, at: begin}\n", ["15:33", "`at` cannot be `begin`", "anywhere, start, inside"]),
        ("  - {from: <a>, kind: text, native: no}\n", ["15:37", "`native` cannot be", "convert, keep"]),
        ("  - {from: <a>, kind: text, unclosed: text}\n", ["15:29", "`unclosed` is for `parts`"]),
        ("  - {from: <a>, kind: text}\n  - {from: <a>b, kind: text}\n", ["16:5", "begin alike"]),
        (
            "  - {from: <a>, kind: text, at: inside}\n  - {from: <b>, kind: text, at: inside}\n",
            ["16:5", "one mark only"],
        ),
        ("  - {from: <a>, parts: '{{ cal($) }}'}\n", ["15:", "cal", "did you mean `call`?"]),
        (
            "  - {from: <a>, parts: {kind: tool_call, nam: $}}\n",
            ["15:42", "a part has no field `nam`", "did you mean `name`?"],
        ),
        (
            "  - {from: <a>, parts: [{$each: $x in $, kind: tool_cal}]}\n",
            ["15:48", "unknown kind of part `tool_cal`", "did you mean `tool_call`?"],
        ),
        ("  from: <a>\n", ["15:3", "`in_text` is a list of marks"]),
        ("  - <a>\n", ["15:5", "a mark has keys"]),
    ],
    ids=[
        "key",
        "kind",
        "both",
        "neither",
        "from",
        "blanks",
        "at",
        "native",
        "unclosed",
        "alike",
        "inside",
        "function",
        "field",
        "kind of part",
        "map",
        "text",
    ],
)
def test_an_invalid_mark_is_a_config_error(marks, words):
    with pytest.raises(ConfigErrors) as caught:
        made(marks)
    found = "\n".join(problem.render(source=False) for problem in caught.value.problems)
    assert all(word in found for word in words), found
