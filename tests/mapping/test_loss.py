"""The losses of a conversion are computed from what the mappings read, at every depth."""

from __future__ import annotations

import pytest

from mapping.support import document
from tollgate.mapping import CompiledMapping, Context, Refused, compile_mapping, convert_request, convert_response, loss
from tollgate.mapping.client_words import in_client_words
from tollgate.mapping.context import Context as RawContext
from tollgate.mapping.tracing import TraceContext

SOURCE = """
mapping: source
define:
  part($p):
    $match: $p.type
    $absent: {kind: text, text: $p}
    text: {kind: text, text: $p.text, cache: $p.cache_control}
    image: {kind: image, url: $p.source.url}
    tool: {kind: tool_result, id: $p.id, parts: [{$each: $c in $p.content, $value: "{{ part($c) }}"}]}
    video: {$lost: "{{ $p.type }} of {{ $p.maker }}"}
    sound: {$lost: $p.name}
    $else: {kind: opaque, of: source, raw: $p}
request:
  to_hub:
    $copy: [model, stream, max_tokens, stop, metadata]
    turns: [{$each: $m in $.messages, role: $m.role, parts: [{$each: $p in $m.content, $value: "{{ part($p) }}"}]}]
    tools:
      - $each: $t in $.tools
        $when: $t.type == 'function'
        name: $t.function.name
        $else: {of: source, raw: $t}
    parallel: "{{ $.parallel if $.tools }}"
response:
  to_hub: {id: $.id, model: $.model, parts: [{$each: $p in $.parts, $value: "{{ part($p) }}"}], stop: $.stop}
"""
TARGET = """
mapping: target
request:
  from_hub:
    model: $model.upstream
    max: $.max_tokens
    messages:
      - $each: $t in $.turns
        who: $t.role
        text: "{{ $t.parts[?(@.kind == 'text')].text | join }}"
    tools: [{$each: $t in $.tools, $match: $t.of, $absent: {name: $t.name}, $else: {$lost: "hosted tool {{ $t.raw.type }}"}}]
response:
  from_hub: {id: $.id, text: "{{ $.parts[?(@.kind == 'text')].text | join }}", stop: $.stop, model: $.model, at: $.created}
"""  # noqa: E501


def compiled(text: str) -> CompiledMapping:
    return compile_mapping(document(text))


ONE, TWO = compiled(SOURCE), compiled(TARGET)
FREE = compiled("mapping: free\nrequest:\n  from_hub: {tools: $.tools}\n")


def lost(body: dict, **given: object) -> list[str]:
    return convert_request(ONE, TWO, {"messages": [], **body}, Context({"upstream": "up"}, **given)).lost


CASES = {
    "nothing": ({"max_tokens": 3, "model": "m", "stream": True}, []),
    "a field at the top": ({"logit_bias": {"1": 2}}, ["logit_bias"]),
    "null and empty are nothing to lose": ({"logit_bias": {}, "seed": None, "extra": []}, []),
    "a field of every message, once": (
        {"messages": [{"role": "user", "name": "n", "content": "x"}, {"role": "user", "name": "m", "content": "y"}]},
        ["messages[].name"],
    ),
    "a field of one kind of part": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "url": "y"}]}]},
        ["messages[].content[].url"],
    ),
    "a field read for one kind is not read for another": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "source": {"url": "y"}}]}]},
        ["messages[].content[].source"],
    ),
    "below a field": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "image", "source": {"url": "https://u", "crop": 1}},
                    ],
                }
            ]
        },
        ["messages[].content[].source.crop", "messages[].content[].source.url"],
    ),
    "parts in parts": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool", "id": "1", "content": [{"type": "text", "text": "x", "odd": 1}]}],
                }
            ]
        },
        ["messages[].content[].content[].odd", "turns[].parts[].id", "messages[].content[].content"],
    ),
    "one part for a list of one": (
        {"messages": {"role": "user", "content": {"type": "text", "text": "x", "odd": 1}}},
        ["messages.content.odd"],
    ),
    "a hub field the target never reads": ({"stop": ["a"]}, ["stop"]),
    "a cache marker": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "e"}}]}]},
        ["messages[].content[].cache_control"],
    ),
    "content by the mapping": (
        {"messages": [{"role": "user", "content": [{"type": "video", "maker": "m"}]}]},
        ["video of m"],
    ),
    "content by the mapping without a name": (
        {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
        ["video of (unnamed)"],
    ),
    "content by the mapping in a bare path": (
        {"messages": [{"role": "user", "content": [{"type": "sound", "name": "birds"}, {"type": "sound"}]}]},
        ["birds", "(unnamed)"],
    ),
    "a hosted tool": ({"tools": [{"type": "web_search", "depth": 3}]}, ["hosted tool web_search"]),
    "a field beside a known tool": (
        {"tools": [{"type": "function", "function": {"name": "f", "odd": 1}}]},
        ["tools[].function.odd"],
    ),
    "an opaque part": (
        {"messages": [{"role": "user", "content": [{"type": "novel", "x": 1}]}]},
        ["turns[].parts[].of", "messages[].content[]"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fields_that_a_mapping_does_not_read_are_reported(name: str) -> None:
    body, expected = CASES[name]
    assert lost(body) == expected


def test_strict_mode_rejects_a_loss_and_names_it() -> None:
    with pytest.raises(Refused) as refused:
        lost({"logit_bias": {"1": 2}}, strict=True)
    assert refused.value.param == "logit_bias" and "logit_bias" in refused.value.message and refused.value.status == 400
    assert lost({}, strict=True) == []


def test_a_lost_constant_has_the_longer_name_of_the_client() -> None:
    hub = {"logprobs": True}
    assert in_client_words("logprobs", hub, {"top_logprobs": 2}) == "top_logprobs"
    assert in_client_words("logprobs", hub, {"logprobs": True, "top_logprobs": 2}) == "logprobs"
    assert in_client_words("logprobs", hub, {"include": []}) == "logprobs"


def test_a_target_that_stores_no_requests_loses_nothing_of_store_false() -> None:
    client = compiled("mapping: client\nrequest: {to_hub: {store: $.store, tools: $.tools, seed: $.seed}}\n")
    context = Context()
    convert_request(client, FREE, {"store": False, "seed": 1}, context)
    assert context.lost == ["seed"]


def test_items_of_a_filtered_list_are_read_as_far_as_they_are_used() -> None:
    source = compiled("""
mapping: source
request:
  to_hub: {tools: [{$each: "$t in $.tools | distinct('name')", schema: $t.schema}]}
""")
    made = convert_request(
        source, FREE, {"tools": [{"name": "f", "schema": {"a": 1}}, {"name": "f"}, {"odd": 1}]}, Context({})
    )
    assert made.hub["tools"] == [{"schema": {"a": 1}}]
    assert made.lost == ["tools[].odd"]


def test_the_losses_of_an_answer_are_reported() -> None:
    context = Context()
    answer = convert_response(
        ONE,
        TWO,
        {
            "id": "a",
            "model": "m",
            "parts": [{"type": "text", "text": "x"}, {"type": "image", "source": {"url": "u"}}],
            "stop": "end",
        },
        context,
    )
    assert answer.lost == ["parts[].url"]
    assert answer.body["text"] == "x"


@pytest.mark.parametrize(
    "parts",
    [
        '[[{$each: $t in $.content, kind: text, text: $t}], "{{ listed($) }}"]',
        "{kind: text, text: $.content}",
        "[$.content]",
    ],
    ids=["a list from a function", "not a list", "a string"],
)
def test_a_part_that_is_not_an_object_is_reported_as_lost(parts: str) -> None:
    source = compiled(
        f"mapping: source\ndefine: {{listed($r): [{{kind: text, text: $r.content}}]}}\nresponse: {{to_hub: {{parts: "
        f"{parts}, stop: end}}}}\n"
    )
    made = convert_response(source, TWO, {"content": "hi"}, Context({"upstream": "up"}))
    assert made.lost == ["a part that the mapping made no object"]


def test_a_loss_is_reported_once() -> None:
    context = RawContext()
    context.lose("a")
    context.lose("a")
    assert context.lost == ["a"]


def test_a_loss_is_named_by_the_client_field_with_the_same_value() -> None:
    signature = "signed by another"
    body = {"messages": [{"calls": [{"signature": signature}]}]}
    hub = {"turns": [{"parts": [{"token": "remembered"}, {}]}, {"parts": [{"token": signature}]}]}
    assert in_client_words("turns[].parts[].token", hub, body) == "messages[].calls[].signature"
    assert in_client_words("turns[].parts[].token", hub, {}) == "turns[].parts[].token"


def test_a_nested_match_distinguishes_both_labels() -> None:
    mapping = compiled("""
mapping: nested
request:
  to_hub:
    turns:
      - $each: $m in $.messages
        $match: $m.type
        note:
          $match: $m.role
          user: {role: user, parts: [{kind: text, text: $m.a}]}
          assistant: {role: assistant, parts: [{kind: text, text: $m.b}]}
  from_hub: {turns: $.turns}
""")
    for _ in range(2):
        for role, field in (("user", "a"), ("assistant", "b"), ("user", "b"), ("assistant", "a"), ("stranger", "a")):
            message = {"type": "note", "role": role, field: "x"}
            expected = [] if (role, field) in (("user", "a"), ("assistant", "b")) else [f"messages[].{field}"]
            assert convert_request(mapping, mapping, {"messages": [message]}, Context()).lost == expected


def test_objects_of_two_kinds_with_the_same_field_names_are_distinguished() -> None:
    mapping = compiled("""
mapping: kinds
request:
  to_hub:
    turns:
      - $each: $m in $.messages
        $match: $m.type
        note: {role: user, parts: [{kind: text, text: $m.x.a}]}
        memo: {role: user, parts: [{kind: text, text: $m.x.b}]}
  from_hub: {turns: $.turns}
""")
    for _ in range(2):
        for kind, field, content in (("note", "a", []), ("memo", "a", ["messages[].x.a"]), ("memo", "b", [])):
            message = {"type": kind, "x": {field: "text"}}
            assert convert_request(mapping, mapping, {"messages": [message]}, Context()).lost == content


def test_an_object_is_not_recognised_by_its_field_names_alone() -> None:
    for logit_bias, content in ((None, []), ({}, []), ({"1": 2}, ["logit_bias"]), (None, []), ([], [])):
        assert lost({"logit_bias": logit_bias}) == content


def test_the_number_of_remembered_object_shapes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_MOST_SHAPES", 5)
    walker = compiled(SOURCE).walkers["request.to_hub"]
    names = ("model", "stream", "max_tokens", "stop", "metadata")
    for number in range(1, 32):
        body = {name: "x" for place, name in enumerate(names) if number >> place & 1}
        assert walker.lost(body) == [] and walker.lost({**body, "other": 1}) == ["other"]
    assert max(len(state.shapes) for state in walker._states.values()) == 5


def test_only_the_items_that_a_filter_finds_count_as_read() -> None:
    mapping = compiled("""
mapping: found
define:
  content($list): [{$each: $x in $list, $value: $x.text}]
request:
  to_hub:
    $let: {found: "$.items[?(@.kind == 'a')]", names: "{{ $.pairs | lookup('id', 'name') }}"}
    user: "{{ content($found) | join }}"
    metadata: $names
    stop: [{$each: $f in $found, $value: $f.stop}]
  from_hub: {user: $.user, metadata: $.metadata, stop: $.stop}
""")
    body = {
        "items": [{"kind": "a", "text": "x", "stop": "s", "odd": 1}, {"kind": "b", "text": "y"}],
        "pairs": [{"id": "1", "name": "n", "more": 2}],
    }
    made = convert_request(mapping, mapping, body, Context())
    assert made.body == {"user": "x", "metadata": {"1": "n"}, "stop": ["s"]}
    assert made.lost == ["items[].odd", "items[].text", "pairs[].more"]


FUNCTIONS = """
  part($p): {$when: $p, kind: text, raw: $p}
  kind($k): "{{ whole($k) }}"
  whole($w): [{$each: $i in $w, at: $i.x}]
"""


def unread(template: str, given: dict, *, trace: bool = False) -> list[str]:
    """The fields that a request mapping with these lines, over `$`, leaves unread; `trace`: compiled as for
    `explain`."""
    lines = "\n".join(f"    {line}" for line in template.strip("\n").splitlines())
    text = f"mapping: one\ndefine:{FUNCTIONS}request:\n  to_hub:\n{lines}\n"
    mapping = compile_mapping(document(text), trace=trace)
    mapping.sections["request.to_hub"](given, TraceContext() if trace else RawContext())
    return mapping.walkers["request.to_hub"].lost(given)


TOOL = {
    "kind": "x",
    "name": "n",
    "strict": True,
    "format": {"type": "grammar", "rules": "r"},
    "raw": {"type": "t", "more": {"a": 1}},
    "cache": {"ttl": "1h"},
    "odd": {"b": 2},
}
COVERED = {
    "an expression covers the field it reads, not the object": (
        '{a: [{$each: $t in $.tools, x: {$lost: "strict of {{ $t.name }}"}, strict: $t.strict}]}',
        {"name", "strict"},
    ),
    "an expression that reads the type covers the object": (
        '{a: [{$each: $t in $.tools, x: {$lost: "hosted {{ $t.raw.type }}"}}]}',
        {"raw"},
    ),
    "a case covers the object whose field it matches": (
        "{a: [{$each: $t in $.tools, $match: $t.kind, x: {$lost: a tool}}]}",
        set(TOOL),
    ),
    "a computed match covers only what it reads": (
        """{a: [{$each: $t in $.tools, $match: "'x' if $t.name else 'y'", x: {$lost: a tool}}]}""",
        {"name"},
    ),
    "a condition covers what it tests": (
        "{a: [{$each: $t in $.tools, x: {$when: $t.cache, $value: {$lost: cache}}}]}",
        {"cache"},
    ),
    "a condition covers what it tests first": (
        "{a: [{$each: $t in $.tools, x: {$when: $t.strict and $t.odd, $value: {$lost: strict}}}]}",
        {"strict"},
    ),
    "a condition on the target's abilities covers nothing": (
        "{a: [{$each: $t in $.tools, x: {$when: $t.cache, $value: {$when: not $can.cache, $value: {$lost: cache}}}}]}",
        {"cache"},
    ),
    "an else branch covers what its condition reads": (
        "{a: [{$each: $t in $.tools, x: {$when: $t.format.type == 'text', $value: 1, $else: {$lost: grammar}}}]}",
        {"format"},
    ),
    "an else branch of two conditions covers nothing": (
        "{a: [{$each: $t in $.tools, x: {$when: $t.cache and $t.missing, $value: 1, $else: {$lost: missing}}}]}",
        set(),
    ),
    "an else branch does not cover the object of the case around it": (
        "{a: [{$each: $t in $.tools, $match: $t.kind, x: {$value: {$when: $t.cache, $value: 1, $else: {$lost: c}}}}]}",
        set(),
    ),
    "a lost item is covered as a whole": ("{a: [{$each: $t in $.tools, $value: {$lost: tools}}]}", set(TOOL)),
    "a match on a field of the document does not cover the document": (
        "{a: {$match: $.mode, one: {$lost: mode}}, b: [{$each: $t in $.tools, x: $t.name}]}",
        {"name"},
    ),
}


@pytest.mark.parametrize("name", COVERED)
def test_an_explicit_loss_covers_only_the_fields_it_is_about(name: str) -> None:
    template, content = COVERED[name]
    named = {
        place.removeprefix("tools[]").removeprefix(".").split(".")[0]
        for place in unread(template, {"mode": "one", "tools": [TOOL]})
    }
    assert named - {"", "mode"} == TOOL.keys() - content - {"kind"}


READ = {
    "the last item": ('{a: "{{ ($.items | last).x }}"}', ["items[].odd"]),
    "the first of those a filter finds": ("""{a: "{{ ($.items[?(@.x == 'v')] | first).x }}"}""", ["items[].odd"]),
    "how many there are": ('{a: "{{ $.items | length }}", b: "$.items[*].x"}', ["items[].odd"]),
    "a text, where it is one": (
        "{$let: {c: $.items}, a: {$when: $c is string, $value: $c, $else: [{$each: $i in $c, x: $i.x}]}}",
        ["items[].odd"],
    ),
    "a field, under one of several labels": (
        "{a: [{$each: $i in $.items, $when: \"$i.x in ['w', 'z']\", $value: $i.odd, $else: $i.x}]}",
        ["items[].odd"],
    ),
    "all of it, under labels that are computed": (
        "{a: [{$each: $i in $.items, $when: $i.x in $.words, $value: $i.odd, $else: $i.x}]}",
        [],
    ),
    "all of it, under a label that stands first": (
        "{a: [{$each: $i in $.items, $when: \"'w' == $i.x\", $value: $i.odd, $else: $i.x}]}",
        [],
    ),
    "all of it, where something else is a text": (
        '{a: "{{ $.items if $.x is string else 1 }}"}',
        [],
    ),
    "all of it, where it is a list": (
        '{a: "{{ $.items if $.items is list else 1 }}"}',
        [],
    ),
    "the same path, where it is a text": (
        '{a: "{{ $.one if $.one is string else $.one.x }}", b: $.items}',
        ["one.odd"],
    ),
    "a filter in a condition": ("{a: {$when: ($.one | json) != 'x', $value: $.one.x}, b: $.items}", ["one.odd"]),
    "a place in a condition": ("{a: {$when: \"$.items[1:] or ($.items | sort('x'))\", $value: 1}}", ["items[].odd"]),
    "one by a computed place": ("{$let: {n: '{{ 1 - 1 }}'}, a: '{{ $.items[$n + 0].x }}'}", ["items[].odd"]),
    "some of them": ("{a: [{$each: '$i in $.items[:$.n]', x: $i.x}], b: $.one}", ["items[].odd"]),
    "some of them, used as they are": ("{a: '{{ $.items[:$.n] }}', b: $.one}", []),
    "a field by a computed name": ("{a: '{{ $.one[$.name] }}', b: $.items}", []),
    "a function in a condition": ("{a: {$when: part($.one), $value: $.one.x}, b: $.items}", ["one.odd"]),
    "a function that one in a condition calls": ("{a: {$when: kind($.items), $value: 1}, b: $.one}", ["items[].odd"]),
    "a function that chooses": ("{a: {$match: kind($.items), v: 1, $else: 2}, b: $.one}", ["items[].odd"]),
    "a name for a choice": (
        "{$let: {c: {$when: $.one.x == 'v', $value: $.items, $else: $.one}}, a: '$c[*].x'}",
        ["items[].odd", "one.odd"],
    ),
    "a name for a list or a value": (
        "{$let: {c: {$when: $.a, $value: [{$each: $i in $.items}], $else: $.items}}, a: [{$each: $i in $c, x: $i.x}]}",
        ["items[].odd"],
    ),
    "a name for a case": ("{$let: {c: {$match: $.one.x, v: $.one, $else: $.items}}, a: $c.x}", ["items", "one.odd"]),
    "a name for a table's other case": ("{$let: {c: {$match: $.kind, v: 1, $else: $.one}}, a: $c.x}", ["one.odd"]),
    "a name for the first of several": (
        "{$let: {c: {$first: [{$when: $.yes, $value: $.one}, $.one.y]}}, a: $c.x}",
        ["one.odd"],
    ),
    "a name for a choice that is sent": ("{$let: {c: {$when: $.a, $value: $.items, $else: $.one}}, a: $c}", []),
    "a name for an object that is made": ("{$let: {c: {$when: $.one, x: $.one, y: $.items}}, a: $c.x}", []),
    "a computed name in a condition": (
        "{$let: {c: \"{{ $.one | without('x') }}\"}, a: {$when: $c, $value: 1}, b: $.one.x}",
        ["one.odd"],
    ),
    "a computed name that is sent": ("{$let: {c: \"{{ $.one | without('x') }}\"}, a: {$when: $c, b: $c}}", []),
    "a part of a computed name that is sent": ("{$let: {c: '{{ $.one | entries }}'}, a: '$c[0].value'}", []),
    "a computed text that is sent": (
        "{$let: {c: '{{ $.one | json }}'}, a: {$when: $c is string, $value: $c}, b: \"{{ $c if $c is string }}\"}",
        [],
    ),
    "a name computed of a computed name": (
        "{$let: {c: '{{ $.one | entries }}', d: '{{ $c | length }}'}, a: {$when: $d, b: 1}}",
        ["one"],
    ),
    "a name computed of one, and sent": ("{$let: {c: '{{ $.one | json }}', d: '{{ $c | lower }}'}, a: $d}", []),
    "a computed list in a condition": (
        "{$let: {c: \"{{ $.items[*] | lookup('x', 'odd') }}\"}, a: {$when: $c, $value: 1}}",
        [],
    ),
    "a function's name in a condition": (
        "{$let: {c: '{{ part($.one) }}'}, a: {$when: $c, $value: $.one.x}}",
        ["one.odd"],
    ),
    "a function's name that is sent": ("{$let: {c: '{{ part($.one) }}'}, a: {$when: $.x, $value: $c.b}}", []),
    "what a computed name asks first": (
        '{$let: {c: "{{ $.items if $.one.odd == 1 }}"}, a: [{$each: $i in $c, b: $i.x}]}',
        ["items[].odd", "one.x"],
    ),
    "a list that every item is looked for in": (
        "{a: [{$each: $i in $.items, n: $i.odd, w: '{{ $i.x in $.words }}'}]}",
        [],
    ),
    "a list that one word is looked for in": ("{a: \"{{ 'v' in $.words }}\", b: $.items}", ["words"]),
    "an item of a computed list": (
        '{$let: {c: "{{ $.items | chunks(1) }}"}, a: [{$each: $i in $c, $when: $i, b: 1}]}',
        ["items"],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_values_that_are_passed_on_or_only_tested_do_not_count_as_read_whole(name: str) -> None:
    template, left = READ[name]
    given = {"items": [{"x": "v", "odd": 1}], "one": {"x": "v", "odd": 1}}
    if "one" not in template:
        del given["one"]
    if "items" not in template:
        del given["items"]
    if "$.words" in template and "$.items" in template:
        given["words"] = ["v", "w"]
    assert sorted(unread(template, given)) == sorted(left)
    assert sorted(unread(template, given, trace=True)) == sorted(left)


def test_items_of_a_named_list_are_read_through_its_name() -> None:
    template = """
$let: {rest: [{$each: $p in $.parts, $when: $p.kind != 'x'}, {$each: $q in $.more, $value: $q}]}
content: [{$each: $r in $rest, $value: $r.text}]
"""
    assert unread(
        template, {"parts": [{"kind": "y", "text": "t", "odd": 1}], "more": [{"text": "t", "strange": 1}]}
    ) == ["parts[].odd", "more[].strange"]


BY_REQUEST_NAME = """
mapping: body
define:
  calls(): [{$each: "$c in $request.turns[*].parts[*]", $when: $c.kind == 'tool_call', name: $c.name}]
  named($id): "{{ names()[$id] }}"
  names(): "{{ $request.turns[*].parts[*] | lookup('id', 'name') }}"
  later(): $request.seed
request:
  from_hub: {who: "$.turns[*].role", SAID}
response:
  to_hub: {id: "{{ later() }}", stop: end}
"""


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ('x: "{{ calls() }}"', ["seed", "turns[].parts[].args", "turns[].parts[].id"]),
        ("x: \"{{ named('c1') }}\"", ["seed", "turns[].parts[].args"]),
        ("x: {$when: calls(), $value: 1}", ["seed", "turns[].parts[].args", "turns[].parts[].id"]),
        ("$let: {c: '{{ calls() }}'}, x: $c", ["seed", "turns[].parts[].args", "turns[].parts[].id"]),
        ("x: $request.turns", ["seed"]),
        ("x: 1", ["seed", "turns[].parts"]),
    ],
    ids=["by a function", "by a nested function", "in a condition", "under a name", "without a function", "not read"],
)
def test_fields_read_through_the_request_variable_count_as_read(content: str, left: list[str]) -> None:
    mapping = compiled(BY_REQUEST_NAME.replace("SAID", content))
    part = {"kind": "tool_call", "id": "c1", "name": "f", "args": "{}"}
    given = {"seed": 7, "turns": [{"role": "user", "parts": [part]}]}
    context = RawContext()
    context.request = given
    mapping.sections["request.from_hub"](given, context)
    assert sorted(mapping.walkers["request.from_hub"].lost(given)) == left
