"""Every operator of the language with an example: template, input, result."""

from __future__ import annotations

import copy
import json

import pytest

from mapping.support import document, run
from tollgate.mapping import Context, Refused, compile_mapping, tap_response, tap_usage
from tollgate.mapping.pieces import Functions, compile_template

CASES = {
    "read a path": (
        """
        id: $.id
        first: $.messages[0].role
        words: $.messages[?(@.role == 'user')].content
        price: $$5
        """,
        {"id": "a", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]},
        {"id": "a", "first": "user", "words": ["hi"], "price": "$5"},
    ),
    "compute": (
        """
        total: "{{ $.in + $.out }}"
        label: "model {{ $.model }}"
        auth: "Bearer {{ $.key }}"
        args: "{{ $.input | json }}"
        """,
        {"in": 2, "out": 3, "model": "m1", "input": {"a": "007"}},
        {"total": 5, "label": "model m1", "args": '{"a":"007"}'},
    ),
    "empty is left out unless written empty": (
        """
        reasoning: {effort: $.effort, budget: $.budget}
        tool_calls: [{$each: $c in $.calls}]
        logprobs: null
        content: []
        """,
        {},
        {"logprobs": None, "content": []},
    ),
    "copy same names": (
        """
        $copy: [model, stream, temperature]
        kind: chat
        """,
        {"model": "m", "temperature": 0, "other": 1},
        {"model": "m", "temperature": 0, "kind": "chat"},
    ),
    "copy from another value": (
        """
        $let: {x: $.a}
        $copy: {$x: [p, q]}
        """,
        {"a": {"p": 1, "r": 2}},
        {"p": 1},
    ),
    "copy everything": (
        "{$copy: $.input, model: up}",
        {"input": {"prompt": "cat", "n": None}},
        {"prompt": "cat", "n": None, "model": "up"},
    ),
    "a field wins over a name that is copied below it": (
        "{kind: chat, $copy: [kind, model]}",
        {"kind": "own", "model": "m"},
        {"kind": "chat", "model": "m"},
    ),
    "a field wins over everything that is copied below it, where it is there": (
        "{kind: $.kind, model: $.model, $copy: $.input}",
        {"kind": "chat", "input": {"kind": "own", "model": "m", "n": 1}},
        {"kind": "chat", "model": "m", "n": 1},
    ),
    "first present": (
        """
        max_tokens: {$first: [$.max_completion_tokens, $.max_tokens, 4096]}
        fingerprint: {$first: [$.system_fingerprint, null]}
        """,
        {"max_tokens": 0},
        {"max_tokens": 0, "fingerprint": None},
    ),
    "first takes false and empty text": (
        "{a: {$first: [$.x, 1]}, b: {$first: [$.y, 1]}}",
        {"x": False, "y": ""},
        {"a": False, "b": ""},
    ),
    "the first list of items under conditions and names": (
        """
        calls:
          - $first:
            - {$when: $.no, $value: [0]}
            - {$let: {all: $.l}, $join_by: k, $value: [{$each: $x in $all, k: $x}]}
            - [9]
          - 7
        """,
        {"l": [1, 1, 2]},
        {"calls": [{"k": 1}, {"k": 2}, 7]},
    ),
    "when and else": (
        """
        stream_options: {$when: $.stream, include_usage: true}
        source:
          $when: $.data
          type: base64
          data: $.data
          $else: {type: url, url: $.url}
        """,
        {"url": "https://x/y.png"},
        {"source": {"type": "url", "url": "https://x/y.png"}},
    ),
    "match": (
        """
        stop: {$match: $.reason, stop|eos: end, length: length, $else: $.reason}
        choice:
          $match: $.tool_choice
          auto|none: {mode: $.tool_choice}
          required: {mode: any}
          $absent: $nothing
          $else: {mode: one, name: $.tool_choice.function.name}
        """,
        {"reason": "eos", "tool_choice": {"function": {"name": "f"}}},
        {"stop": "end", "choice": {"mode": "one", "name": "f"}},
    ),
    "each": (
        """
        stop: [{$each: $s in $.stop}]
        tools:
          - $each: $t, $i in $.tools
            $when: $t.type == 'function'
            name: $t.function.name
            place: $i
        """,
        {"stop": "END", "tools": [{"type": "web"}, {"type": "function", "function": {"name": "f"}}]},
        {"stop": ["END"], "tools": [{"name": "f", "place": 1}]},
    ),
    "lists in lists are spread": (
        """
        messages:
          - $when: $.system
            role: system
            content: $.system
          - $each: $t in $.turns
            $value:
              - $each: $r in $t.results
                role: tool
                content: $r
              - {$when: $t.text, role: $t.role, content: $t.text}
        """,
        {"system": "S", "turns": [{"role": "user", "results": ["42"], "text": "ok"}]},
        {
            "messages": [
                {"role": "system", "content": "S"},
                {"role": "tool", "content": "42"},
                {"role": "user", "content": "ok"},
            ]
        },
    ),
    "join neighbours": (
        """
        turns:
          $join_by: role
          $value:
            - {$each: $m in $.messages, role: $m.role, parts: [$m.text]}
        """,
        {
            "messages": [
                {"role": "user", "text": "a"},
                {"role": "user", "text": "b"},
                {"role": "assistant", "text": "c"},
            ]
        },
        {"turns": [{"role": "user", "parts": ["a", "b"]}, {"role": "assistant", "parts": ["c"]}]},
    ),
    "name a value": (
        """
        $let: {inline: "{{ $.url | data_url }}"}
        mime: $inline.mime
        data: $inline.data
        url: "{{ $.url if $inline is absent }}"
        """,
        {"url": "data:image/png;base64,AAAA"},
        {"mime": "image/png", "data": "AAAA"},
    ),
    "the node is this": (
        """
        tokens: {$when: $.limit > 0, $value: $.limit}
        names: [{$each: $t in $.tools, $value: $t.name}]
        """,
        {"limit": 5, "tools": [{"name": "f"}, {"name": "g"}]},
        {"tokens": 5, "names": ["f", "g"]},
    ),
    "text with an absent hole is absent": ('{a: "x {{ $.no }} y", b: c}', {}, {"b": "c"}),
    "text of numbers and booleans": (
        '{a: "{{ $.n }}/{{ $.f }}/{{ $.t }}/{{ $.o }}"}',
        {"n": 1, "f": 0.5, "t": True, "o": {"k": []}},
        {"a": '1/0.5/true/{"k":[]}'},
    ),
    "looks decide nothing": (
        "{a: $.a, b: \"{{ $.a }}\", c: 'no', d: on, e: 0.50}",
        {"a": "007"},
        {"a": "007", "b": "007", "c": "no", "d": "on", "e": 0.5},
    ),
    "null is absent": ("{a: $.a, b: $.b.c}", {"a": None, "b": None}, None),
    "nulls inside a copied value stay": ("{a: $.a}", {"a": {"x": None}}, {"a": {"x": None}}),
    "an empty list that is data stays": ("{a: $.a}", {"a": []}, {"a": []}),
    "a field that starts with a dollar": ("{$$ref: $.a}", {"a": 1}, {"$ref": 1}),
    "a path through the wrong kind is absent": ("{a: '$.a.b[0].c', z: 1}", {"a": "text"}, {"z": 1}),
    "negative index": ("{a: '$.a[-1]'}", {"a": [1, 2]}, {"a": 2}),
    "everything below": ("{a: $.a..k}", {"a": {"k": 1, "b": [{"k": 2}]}}, {"a": [1, 2]}),
    "wildcard and filter": (
        "{a: \"{{ $.a[*].b[?(@.k == 'v')].n | total }}\"}",
        {"a": [{"b": [{"k": "v", "n": 1}]}, {"b": [{"k": "v", "n": 2}, {"n": 9}]}]},
        {"a": 3},
    ),
    "computed index": ('{a: "{{ $.names[$.id] }}"}', {"names": {"x": 1}, "id": "x"}, {"a": 1}),
    "null items are skipped": ("[{$each: '$x, $i in $.a', $value: $i}]", {"a": [1, None, 2]}, [0, 2]),
    "an absent label": ("{a: {$match: $.x, b: 1, $absent: 2, $else: 3}}", {}, {"a": 2}),
    "else covers absent": ("{a: {$match: $.x, b: 1, $else: 3}}", {}, {"a": 3}),
    "a label is never a number": ("{a: {$match: $.x, '1': one, $else: other}}", {"x": 1}, {"a": "other"}),
    "number labels by text": ("{a: {$match: \"$.x ~ ''\", '1': one, $else: other}}", {"x": 1}, {"a": "one"}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_its_result_and_leaves_its_input_unchanged(name: str) -> None:
    text, given, expected = CASES[name]
    before = copy.deepcopy(given)
    result = run(text, given)
    assert result == expected
    assert json.dumps(result) == json.dumps(expected), "key order is the template's"
    assert given == before, "the input is never changed"


def test_define_refuse_and_lost_work_together() -> None:
    read = document("""
define:
  part($p):
    $match: $p.type
    $absent: {kind: text, text: $p}
    text: {kind: text, text: $p.text}
    $else: {$lost: "content part {{ $p.type }}"}
body:
  $refuse:
    - {when: $.n > 1, say: "n greater than 1 cannot be converted", param: n}
  parts: [{$each: $p in $.content, $value: "{{ part($p) }}"}]
""")
    functions = Functions(read, read.root.get("define"))
    compiled = compile_template(read, read.root.get("body"), names=["$"], defines=functions)
    context = Context()
    assert compiled({"content": ["hi", {"type": "text", "text": "x"}, {"type": "video"}]}, context) == {
        "parts": [{"kind": "text", "text": "hi"}, {"kind": "text", "text": "x"}]
    }
    assert context.lost == ["content part video"]
    with pytest.raises(Refused) as refused:
        compiled({"n": 2})
    assert refused.value.status == 400 and refused.value.param == "n"
    assert refused.value.message == "n greater than 1 cannot be converted"


@pytest.mark.parametrize(
    ("value", "made"),
    [("$match: $.x, p: 1, $else: 2", 1), ("$first: [$.y, 1]", 1), ("$value: 1", 1), ("b: 1", {"b": 1})],
)
def test_refuse_stands_beside_every_directive_that_makes_a_value(value: str, made: object) -> None:
    text = f"a: {{$refuse: [{{when: $.n > 1, say: only one, param: n}}], {value}}}"
    assert run(text, {"n": 1, "x": "p"}) == {"a": made}
    with pytest.raises(Refused, match="only one"):
        run(text, {"n": 2, "x": "p"})


TRUTH = {
    "absent": None,
    "null": None,
    "false": False,
    "empty text": "",
    "empty list": [],
    "empty object": {},
    "zero": 0,
    "text": "x",
}


@pytest.mark.parametrize("name", TRUTH)
def test_truth_follows_one_rule_everywhere(name: str) -> None:
    value = TRUTH[name]
    given = {} if name == "absent" else {"x": value}
    true = name in ("zero", "text")
    assert run("{a: {$when: $.x, $value: 1, $else: 2}}", given) == {"a": 1 if true else 2}
    assert run('{a: "{{ 1 if $.x else 2 }}"}', given) == {"a": 1 if true else 2}
    assert run('{a: "{{ 1 if not $.x else 2 }}"}', given) == {"a": 2 if true else 1}
    assert run('{a: "{{ ($.x or 9) == 9 }}"}', given) == {"a": not true}
    assert run("{a: {$when: $.x and true, $value: 1, $else: 2}}", given) == {"a": 1 if true else 2}


EXPRESSIONS = {
    "$.a == 1": True,
    "$.a == 1.0": True,
    "$.a == '1'": False,
    "$.t == 1": False,
    "$.no == none": True,
    "$.no == 1": False,
    "$.no != 1": True,
    "$.no == $.none": False,
    "$.no != $.none": True,
    "($.no | lower) == ($.none | lower)": False,
    "($.no | number) == ($.none | number)": False,
    "$.no in [$.none]": False,
    "$.no in ['a', $.none]": False,
    "($.no | lower) in [$.none]": False,
    "$.no not in [$.none]": True,
    "$.t in ['a', 1]": False,
    "$.no < 1": False,
    "$.no >= 1": False,
    "$.a < 2": True,
    "2 > $.a": True,
    "$.s < 'b'": True,
    "$.s < 1": False,
    "$.t > 0": False,
    "$.s in ['a', 'x']": True,
    "$.s not in ['x']": True,
    "'k' in $.o": True,
    "'b' in 'abc'": True,
    "1 in $.l": True,
    "true in $.l": False,
    "$.no in ['a']": False,
    "$.a + 1": 2,
    "$.a - 1": 0,
    "$.a * 3": 3,
    "$.a / 2": 0.5,
    "7 // 2": 3,
    "7 % 4": 3,
    "$.no + 1": None,
    "$.a / 0": None,
    "-$.a": -1,
    "$.s ~ 1 ~ true": "a1true",
    "$.s ~ $.no": None,
    "$.s + 'b'": "ab",
    "$.l + [4]": [1, 2, 4],
    "[1, $.no]": [1, None],
    "{'k': $.a}": {"k": 1},
    "{'k': {'j': 1}}": {"k": {"j": 1}},
    "$.s is string": True,
    "$.l is list": True,
    "$.o is object": True,
    "$.a is number": True,
    "$.t is number": False,
    "$.t is boolean": True,
    "$.no is absent": True,
    "$.no is not present": True,
    "$.l[1:]": [2],
    "($.s)[0:1]": "a",
    "$.s[0:1]": "a",
    "$.s[5:]": "",
    "($.l | first) + 1": 2,
    "$.o.k": "v",
    "$.o['k']": "v",
    "$.l | length": 2,
    "$.no | length": None,
    "$.no | default(3)": 3,
    "'a,b' | split(',')": ["a", "b"],
    "' A ' | strip | lower": "a",
    "'a' | upper": "A",
    "'a-b' | replace('-', '_')": "a_b",
    "'data:x' | starts('data:')": True,
    "7 | text": "7",
    "'7.5' | number": 7.5,
    "'x' | number": None,
    "'1e400' | number": None,  # larger than a float: JSON cannot express it
    "'-1e400' | number": None,
    "'18446744073709551615' | number": 2**64 - 1,
    "'18446744073709551616' | number": float(2**64),  # more than JSON writers accept as an integer
    "'-9999999999999999999' | number": -1e19,
    "1e30 | round": 1e30,
    "['9e18' | number | round, '9e18' | number | round, 9000000000000000000] | total": 2.7e19,
    "'9000000000000000000' | number * 100": 9e20,
    "('9000000000000000000' | number) * 100 + 1": 9e20,
    "0 - ('18446744073709551615' | number)": float(-(2**64)),
    "2.5 | round": 2,
    "2.456 | round(2)": 2.46,
    "['a', 1, none] | join('-')": "a-1",
    "[] | join": None,
    "[1, none, 2] | total": 3,
    "[none] | total": None,
    "3 | clip(0, 2)": 2,
    "-1 | clip(0, 2)": 0,
    "[{'id': 'a', 'n': 1}] | lookup('id', 'n')": {"a": 1},
    "{'a': 1, 'b': [2]} | entries": [{"key": "a", "value": 1}, {"key": "b", "value": [2]}],
    "{'a': 1} | entries | lookup('key', 'value')": {"a": 1},
    "['a'] | entries": None,
    "[{'d': {'n': 'x'}}, {'e': [{'d': {'n': 'x'}}, {'d': {'n': 'x-2'}}, {'d': {'n': 'x'}}]}] | unlike('d', 'n')": [
        {"d": {"n": "x"}},
        {"e": [{"d": {"n": "x-2"}}, {"d": {"n": "x-2-2"}}, {"d": {"n": "x-3"}}]},
    ],
    "{'d': {'n': 1}, 'e': 's'} | unlike('d', 'n')": {"d": {"n": 1}, "e": "s"},
    "[{'d': {'n': 'x'}}, {'c': {'d': {'n': 'x'}}}] | unlike('d', 'n', 'c')": [
        {"d": {"n": "x"}},
        {"c": {"d": {"n": "x"}}},
    ],
    "[{'n': 2}, {'n': 'a'}, 5, {'n': -1.5}, {'m': 1}, {'n': true}] | sort('n')": [
        {"n": -1.5},
        {"n": 2},
        {"n": "a"},
        5,
        {"m": 1},
        {"n": True},
    ],
    "$.l | sort('n')": [1, 2],
    "'s' | sort('n')": None,
    "[1, 2, 3] | chunks(2)": [[1, 2], [3]],
    "[] | chunks(2)": [],
    "$.l | chunks(0)": None,
    "{'a': 1, 'b': {'a': 2}} | without('a', 'c')": {"b": {"a": 2}},
    "'s' | without('a')": None,
    "'data:image/png;base64,AA' | data_url": {"mime": "image/png", "data": "AA"},
    "'DATA:image/PNG;base64,AA' | data_url": {"mime": "image/png", "data": "AA"},
    # the length of the head is limited
    f"'data:x{';a' * 900};base64,AA' | data_url": {"mime": "x", "data": "AA"},
    f"'data:x{';a' * 2000};base64,AA' | data_url": None,
    "'https://x' | data_url": None,
    "'aGk=' | from_base64": "hi",
    "'é' | from_base64": None,
    "'/9j/4AAQSkZJRgABAQ==' | media_type": "image/jpeg",
    "'UklGRiQAAABXRUJQVlA4IA==' | media_type": "image/webp",
    "'AAAA' | media_type": None,
    "'é' | media_type": None,
    "$.none | media_type": None,
    "'é' | base64_to_hex": None,
    "'-_8' | base64_to_hex": "fbff",
    "'FBff' | hex_to_base64": "+/8=",
    "'fbf' | hex_to_base64": None,
    "[{'id': 'a'}] | lookup([], 'n')": None,
    "[{'id': 'a'}] | lookup('id', {})": None,
    "[{'id': 'a'}] | distinct([])": None,
    "[{'id': 'a'}] | sort({})": None,
    "$.a | has_other_fields('k')": False,
    "$.no | has_other_fields('k')": None,
    "'is ' ~ ($.a | has_other_fields('k'))": "is false",
    "'hi?>' | to_base64": "aGk/Pg==",
    "'hi?>' | to_base64('url')": "aGk_Pg",
    "1 | to_base64": None,
    "'a' | digest('sha1', 'base64')": "hvfkN/qlp/zhXR3cuerq6jd2Z7g=",
    "$.l | digest('md5')": None,
    "'a' | digest($.s)": None,
    "'a' | hmac('md5', [])": None,
    "'a' | hmac('md5', 1)": None,
    "'a' | rsa('sha256', 'no key')": None,
    "'a b/é+~' | percent": "a%20b%2F%C3%A9%2B~",
    "'a b/c' | percent('/')": "a%20b/c",
    "0 | date('%a, %d %b %Y %H:%M:%S GMT, %j')": "Thu, 01 Jan 1970 00:00:00 GMT, 001",
    "-1 | date('%Y')": None,
    "1e300 | date('%Y')": None,
    "0 | date($.t)": None,
    "'2026-11-21T10:00:00Z' | seconds": 1795255200,
    "'2026-11-21t12:00:00.999999999+02:00' | seconds": 1795255200,
    "'2026-11-21 10:00:00,5' | seconds": 1795255200,
    "'2026-11-21T10:00' | seconds": 1795255200,
    "'2026-11-21' | seconds": 1795219200,
    "'1969-12-31T23:59:59.5Z' | seconds": -1,
    "'Sat, 21 Nov 2026 10:00:00 GMT' | seconds": 1795255200,
    "'Saturday, 21-Nov-26 10:00:00 GMT' | seconds": 1795255200,
    "'21 Nov 2026 05:00:00 -0500' | seconds": 1795255200,
    "1795255200.9 | seconds": 1795255200,
    "1795255200123 // 1000 | seconds": 1795255200,
    "'2026-13-21T10:00:00Z' | seconds": None,
    "'20261121' | seconds": None,
    "'Sat, 41 Nov 2026 10:00:00 GMT' | seconds": None,
    "'9999-12-31T23:59:59-14:00' | seconds": 253402351199,
    "'soon' | seconds": None,
    "1e300 | seconds": None,
    "true | seconds": None,
    "[1] | seconds": None,
    "'{\"a\": 1}' | parse_json": {"a": 1},
    "'' | parse_json": {},
    "($.o | json | json) | parse_json": {"k": "v"},
    "'\"{hi\"' | parse_json": "{hi",
    "'\"[1]\"' | parse_json": "[1]",
    "18446744073709551616": 18446744073709551616.0,
    "'a.b' | keep('a-z', '\\\\1')": "a\\1b",
    "-9223372036854775809": -9223372036854775808.0,
    "[1.5e308, 1.5e308] | total": None,
    '\'{"a": "caf\\\\ud83d"}\' | parse_json': {"a": "caf\ufffd"},
    '\'{"a": "\\\\ud83d\\\\ude00"}\' | arguments': {"a": "\U0001f600"},
    '\'{"a": "caf\\\\ud83d"}\' | arguments': {"a": "caf\ufffd"},
    "{'a': 1} | json": '{"a":1}',
    "{'type': 'object', 'properties': {'type': {'type': 'string'}}} | closed_schema": {
        "type": "object",
        "properties": {"type": {"type": "string"}},
        "additionalProperties": False,
    },
    "{'type': 'object', 'additionalProperties': {'properties': {}}, 'anyOf': [{'type': ['object', 'null'], "
    "'additionalProperties': true}, false]} | closed_schema": {
        "type": "object",
        "additionalProperties": {"properties": {}, "additionalProperties": False},
        "anyOf": [{"type": ["object", "null"], "additionalProperties": False}, False],
    },
    "'s' | closed_schema": None,
    "$.o | spoken_schema('k')": None,
    "'s' | spoken_schema({'minItems': []})": None,
    "{'description': 'd', 'minItems': 2, 'maxItems': 9, 'items': {'minItems': 1}} | spoken_schema({'minItems': [0, 1], "
    "'maxItems': []})": {
        "description": "d\n\nminItems: 2, maxItems: 9",
        "items": {"minItems": 1},
    },
    "{'properties': {'minimum': {'default': {'minimum': 1}}}, 'enum': [{'minimum': 1}]} | spoken_schema({'minimum': "
    "[]})": {
        "properties": {"minimum": {"default": {"minimum": 1}}},
        "enum": [{"minimum": 1}],
    },
    "'s' | modern_schema": None,
    "{} | modern_schema": {},
    "{'properties': {'a': {'type': 'array'}, 'b': {'anyOf': [{'type': ['array', 'null'], 'prefixItems': [{'type': "
    "'array'}]}]}}} | modern_schema": {
        "properties": {
            "a": {"type": "array", "items": {}},
            "b": {
                "anyOf": [
                    {"type": ["array", "null"], "prefixItems": [{"type": "array", "items": {}}], "items": {}},
                ]
            },
        },
    },
    "{'properties': {'a': {'items': [{'type': 'string'}], 'additionalItems': false}, 'b': {'items': [{}], "
    "'additionalItems': {'items': [{}]}}}} | modern_schema": {
        "properties": {
            "a": {"prefixItems": [{"type": "string"}], "maxItems": 1},
            "b": {"prefixItems": [{}], "items": {"prefixItems": [{}]}},
        },
    },
    "{'anyOf': [{'items': [{}], 'additionalItems': false, 'maxItems': 5}, {'items': [{}, {}], 'maxItems': 1, "
    "'additionalItems': false}, {'type': 'array', 'items': []}]} | modern_schema": {
        "anyOf": [
            {"prefixItems": [{}], "maxItems": 1},
            {"prefixItems": [{}, {}], "maxItems": 1},
            {"type": "array", "items": {}},
        ],
    },
    "{'items': {'minimum': 0, 'exclusiveMinimum': true, 'maximum': 9, 'exclusiveMaximum': false}} | modern_schema": {
        "items": {"exclusiveMinimum": 0, "maximum": 9},
    },
    "{'properties': {'a': {'exclusiveMaximum': true}}} | modern_schema": {"properties": {"a": {}}},
    "{'properties': {'default': {'default': none, 'const': none, 'title': none}}, 'required': none} | modern_schema": {
        "properties": {"default": {"default": None, "const": None}},
    },
    "{'enum': [{'type': 'array'}], 'default': {'type': 'array'}} | modern_schema": {
        "enum": [{"type": "array"}],
        "default": {"type": "array"},
    },
    "'s' | typed_schema": None,
    "{} | typed_schema": {},
    "{'properties': {'a': {}, 'b': {'items': {'const': 1}}, 'c': {'enum': ['x', none]}, 'd': {'oneOf': []}}} | "
    "typed_schema": {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "number", "boolean", "object", "array", "null"]},
            "b": {"type": "array", "items": {"type": "integer", "const": 1}},
            "c": {"type": ["string", "null"], "enum": ["x", None]},
            "d": {"oneOf": []},
        },
    },
    "{'type': ['array', 'null'], 'items': {'type': ['string', 'null']}, 'title': 'T'} | typed_schema": {
        "title": "T",
        "anyOf": [{"type": "array", "items": {"type": ["string", "null"]}}, {"type": "null"}],
    },
    "{'type': 'object', 'properties': {'a': {'type': 'string'}}, 'required': ['a'], 'anyOf': [{'required': ['b']}, "
    "{'properties': {'c': {'minLength': 1}}}, {'$ref': '#/definitions/D'}, {'anyOf': [{'required': ['d']}]}], "
    "'definitions': {'D': {'type': 'object'}}} | typed_schema": {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "c": {"type": "string", "minLength": 1}},
                "required": ["a"],
            },
            {"$ref": "#/$defs/D"},
            {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "d"]}]},
        ],
        "$defs": {"D": {"type": "object"}},
    },
    "{'properties': {'a': {'type': 'string', 'minLength': 1}, 'b': {'$ref': '#/properties/a', 'minLength': 2, "
    "'title': 'B'}, 'c/d': {'type': 'array', 'items': {'$ref': '#/properties/c~1d'}}, "
    "'e': {'$ref': 'https://x.example/y'}}} | typed_schema": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 1},
            "b": {"type": "string", "minLength": 1, "title": "B"},
            "c/d": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}},
            "e": {"$ref": "https://x.example/y"},
        },
    },
    "'s' | inlined_schema": None,
    "{'properties': {'a': {'$ref': 'https://x.example/y'}}} | inlined_schema": {
        "properties": {"a": {"$ref": "https://x.example/y"}},
    },
    "{'properties': {'a': {'$ref': '#/$defs/A', 'description': 'An a.'}, 'l': {'items': {'$ref': '#/definitions/B'}}}, "
    "'$defs': {'A': {'type': 'object', 'properties': {'b': {'anyOf': [{'$ref': '#/definitions/B'}, "
    "{'type': 'null'}]}}}}, 'definitions': {'B': {'type': 'string'}}} | inlined_schema": {
        "properties": {
            "a": {
                "type": "object",
                "properties": {"b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "description": "An a.",
            },
            "l": {"items": {"type": "string"}},
        },
    },
    "{'properties': {'t': {'$ref': '#/$defs/T'}, 'r': {'$ref': '#'}}, 'type': 'object', "
    "'$defs': {'T': {'type': 'object', 'properties': {'t': {'$ref': '#/$defs/T'}}}}} | inlined_schema": {
        "type": "object",
        "properties": {
            "t": {"type": "object", "properties": {"t": {"type": "object", "$ref": "#/$defs/T"}}},
            "r": {"type": "object", "$ref": "#"},
        },
        "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}},
    },
    "1 if $.no": None,
    "$.t and $.s": "a",
    "$.no or $.s": "a",
    "$.no and $.t is present": None,
    "(true if $.no) and $.t is present": None,
    "(true if $.no) or (true if $.no)": None,
    "not $.no": True,
    "$.l | join(', ')": "1, 2",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_has_its_value_and_type(text: str) -> None:
    quoted = json.dumps("{{ " + text + " }}")
    result = run("{r: {$first: [" + quoted + ", null]}}", {"a": 1, "t": True, "s": "a", "l": [1, 2], "o": {"k": "v"}})
    assert result["r"] == EXPRESSIONS[text] and type(result["r"]) is type(EXPRESSIONS[text])


@pytest.mark.parametrize(
    ("body", "alone"),
    [
        ("{parts: [], usage: {input: $.n}}", True),
        ("{$let: {u: $.n}, $copy: [id], parts: [], usage: {input: $u}}", True),
        ("{$let: {n: $.n, i: $.id, u: $n}, id: $i, parts: [], usage: {input: $u}}", True),
        ("{$copy: [id, usage], parts: [], usage: {input: $.n}}", False),
        ("{$copy: $.rest, parts: [], usage: {input: $.n}}", False),
        ("{$when: $.ok, parts: [], usage: {input: $.n}}", False),
        ("{$copy: [usage], parts: []}", False),
    ],
    ids=["plain", "with values", "with values of values", "copied too", "all copied", "conditional", "copied only"],
)
def test_usage_is_computed_separately_only_if_no_other_rule_affects_it(body: str, alone: bool) -> None:
    mapping = compile_mapping(document(f"mapping: m\nresponse:\n  to_hub: {body}\n"))
    assert (mapping.usage_in is not None) == alone
    for answer in (
        {"id": "a", "n": 5, "ok": True},
        {"id": "a", "n": None, "ok": False, "usage": {"input": 7}, "rest": {"usage": {"input": 9}}},
    ):
        assert tap_usage(mapping, answer) == (tap_response(mapping, answer).get("usage") or {})


@pytest.mark.filterwarnings("error")  # Python's own warnings about generated code would be shown to the operator
@pytest.mark.parametrize(
    ("expression", "result"),
    [("true == 1", False), ("'a' != true", True), ("1 == none", False), ("none != 'a'", True), ("true == true", True)],
)
def test_a_comparison_of_two_literals_causes_no_python_warning(expression, result):
    assert run(f'"{{{{ {expression} }}}}"', {}) is result


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_nothing_is_less_than_a_named_number_that_is_absent_nor_is_it_more(operator):
    template = f"{{$let: {{n: '{{{{ $.n | number }}}}'}}, is: '{{{{ $.a {operator} $n }}}}'}}"
    assert run(template, {"a": 3}) == run(template, {"a": 3, "n": "x"}) == {"is": False}
    assert run(template, {"a": 3, "n": "3"}) == {"is": "=" in operator}
