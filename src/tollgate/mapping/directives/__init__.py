"""The directives: one file each. `DIRECTIVES` is the table the checker, the editor schema and the reference are made from."""

from __future__ import annotations

from dataclasses import dataclass

from tollgate.mapping.directives import copy, each, first, let, lost, match, refuse, value, when

BODIES = {"$match": match.emit, "$first": first.emit, "$value": value.emit, "$lost": lost.emit}
"""Directives that are all their node makes; a node has at most one."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive as the reference shows it."""

    name: str
    takes: str
    about: str


DIRECTIVES: dict[str, Directive] = {
    entry.name: entry
    for entry in (
        Directive("$each", "$item in expression, or $item, $i in expression", "one result per item, only inside a list; one value is a list of one, absent an empty list"),
        Directive("$let", "{name: value}", "names values for this node and everything below it"),
        Directive("$when", "expression", "left out unless true; absent, null, false, \"\", [] and {} are false, 0 is true"),
        Directive("$else", "value", "beside $when: what to make instead; beside $match: any other value"),
        Directive("$match", "expression", "the case whose label is the value; `a|b` shares a case"),
        Directive("$absent", "value", "beside $match: the case for no value"),
        Directive("$first", "[value, ...]", "the first that is present; end it with null to send null"),
        Directive("$copy", "[name, ...], {$x: [name, ...]} or a path", "fields that keep their name: some of `$`, some of another value, or all of a value"),
        Directive("$value", "value", "the node is this"),
        Directive("$join_by", "key", "beside $value with a written list: neighbours whose key is equal become one"),
        Directive("$lost", "text", "leaves this out and says so in the loss report"),
        Directive("$refuse", "[{when, say, param}]", "at the top of a request's to_hub: answers 400 with these words"),
    )
}

__all__ = ["BODIES", "DIRECTIVES", "Directive", "copy", "each", "first", "let", "lost", "match", "refuse", "value", "when"]
