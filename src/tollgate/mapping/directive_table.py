"""The directives of the language: one table for the compiler, the editor schema and the reference.

What a directive generates is in its file of `directives/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["before", "value", "fields", "option"]
"""What a directive does in its node. `before`: it acts before the value is made. `value`: it makes the whole value.
`fields`: it adds fields. `option`: it belongs to another directive."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive: its part in a node, and its text in the reference; a test runs the example."""

    name: str
    part: Part
    takes: str
    about: str
    example: str = ""
    given: str = ""
    makes: str = ""
    beside: tuple[str, ...] = ()
    """For an `option`: the directives of which one must stand beside it."""


DIRECTIVES: dict[str, Directive] = {
    entry.name: entry
    for entry in (
        Directive(
            "$each",
            "before",
            "$item in expression, or $item, $i in expression",
            "one result per item; stands in a list only; one value is a list of one, absent an empty list; without a "
            "body the item itself",
            "[{$each: $t in $.tools, $when: $t.name, name: $t.name}]",
            '{"tools": [{"name": "f"}, {}]}',
            '[{"name": "f"}]',
        ),
        Directive(
            "$let",
            "before",
            "{name: value}",
            "names values, for this node and everything below it",
            '{$let: {host: $.a.b.host}, url: "https://{{ $host }}/"}',
            '{"a": {"b": {"host": "h"}}}',
            '{"url": "https://h/"}',
        ),
        Directive(
            "$when",
            "before",
            "expression",
            'left out unless true; absent, null, false, "", [] and {} are false, 0 is true',
            "{limit: {$when: $.limit > 0, $value: $.limit}}",
            '{"limit": 5}',
            '{"limit": 5}',
        ),
        Directive(
            "$else",
            "option",
            "value",
            "beside $when: what to make instead; beside $match: any other value, and no value when there is no $absent",
            "{source: {$when: $.data, data: $.data, $else: {url: $.url}}}",
            '{"url": "u"}',
            '{"source": {"url": "u"}}',
            beside=("$when", "$match"),
        ),
        Directive(
            "$match",
            "value",
            "expression",
            "the case whose label is the value; labels are text, no number is one (`$.n | text`), `a|b` shares a case; "
            "plain values make a table",
            "{stop: {$match: $.reason, stop|eos: end, length: length, $else: $.reason}}",
            '{"reason": "eos"}',
            '{"stop": "end"}',
        ),
        Directive(
            "$absent",
            "option",
            "value",
            "beside $match: the case for no value",
            "{mode: {$match: $.choice, none: never, $absent: auto}}",
            "{}",
            '{"mode": "auto"}',
            beside=("$match",),
        ),
        Directive(
            "$first",
            "value",
            "[value, ...]",
            'the first that is present: 0, false and "" are; end it with null to send null',
            "{max: {$first: [$.max_tokens, $.limit, 4096]}, print: {$first: [$.print, null]}}",
            '{"limit": 0}',
            '{"max": 0, "print": null}',
        ),
        Directive(
            "$copy",
            "fields",
            "[name, ...], {$x: [name, ...]} or a path",
            "fields that keep their name: some of `$`, some of another value, or all of a value; one written beside it "
            "wins, where it is not absent",
            "{$copy: [model, stream], kind: chat}",
            '{"model": "m", "other": 1}',
            '{"model": "m", "kind": "chat"}',
        ),
        Directive(
            "$value",
            "value",
            "value",
            "the node is this, when it is not an object with fixed keys",
            "[{$each: $t in $.tools, $value: $t.name}]",
            '{"tools": [{"name": "f"}]}',
            '["f"]',
        ),
        Directive(
            "$join_by",
            "option",
            "key",
            "beside $value with a written list: neighbours whose key is equal become one, their lists are joined",
            "{turns: {$join_by: role, $value: [{$each: $m in $.messages, role: $m.role, parts: [$m.text]}]}}",
            '{"messages": [{"role": "user", "text": "a"}, {"role": "user", "text": "b"}]}',
            '{"turns": [{"role": "user", "parts": ["a", "b"]}]}',
            beside=("$value",),
        ),
        Directive(
            "$lost",
            "value",
            "text",
            "leaves this out and says so in the loss report, for what its holes read and its condition looks at; a "
            "hole that is absent is said as (unnamed)",
            '{a: {$when: $.ok, $value: 1, $else: {$lost: "the {{ $.what }}"}}, b: 2}',
            '{"what": "thing"}',
            '{"b": 2}',
        ),
        Directive(
            "$refuse",
            "before",
            "[{when: expression, say: text, param: field}]",
            "answers 400 with these words, after the node's $when; in an answer, where there is nobody to refuse, a "
            "loss",
            "{$refuse: [{when: $.n > 1, say: one answer only, param: n}], a: 1}",
            '{"n": 1}',
            '{"a": 1}',
        ),
    )
}

BEFORE = tuple(name for name, entry in DIRECTIVES.items() if entry.part == "before")
VALUES = tuple(name for name, entry in DIRECTIVES.items() if entry.part == "value")
