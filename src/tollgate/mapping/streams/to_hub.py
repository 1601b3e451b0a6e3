"""`stream.to_hub`: what each upstream event means, compiled to one function that calls the methods of a `Run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

from tollgate.config.load import List, Map, Mark, Node, Scalar, text_in, walk
from tollgate.mapping import hub, templates
from tollgate.mapping.directives import each, let, match, when
from tollgate.mapping.names import ENGINE, EVENT, RUN, SEEN, WHOLE, document_var
from tollgate.mapping.reads import Reads
from tollgate.mapping.scalars import NOTHING_WORD, lower_words
from tollgate.mapping.scope import Scope, Site, Unit, known_words, suggest
from tollgate.mapping.slips import check_bare_name
from tollgate.mapping.streams.operations import BESIDE, OPERATIONS

STREAM_IN = "stream_to_hub"
"""The generated function: of (event, run, context)."""
_NAMED = frozenset({"id", "model", "created"})
"""Fields that name an answer: they cannot change once its start was sent."""


def compile_stream_in(unit: Unit, node: Node) -> bool:
    """Compile; mistakes are noted in the unit. Returns whether the rules say where parts end."""
    code = unit.module.function(f"{STREAM_IN}(D, R, C)", node.mark.line)
    names = {**ENGINE, "": document_var(Reads()), "event": EVENT, "run": RUN, "seen": SEEN, "whole": WHOLE}
    scope = Scope(names, of_answer=True)
    _check_continued(unit, node)
    _rules(Site(unit, code, scope), node, top=True)
    return any(isinstance(rule, Map) and "close" in rule.entries for rule in walk(node))


def _check_continued(unit: Unit, node: Node) -> None:
    """Note each delta without a kind if no rule opens a part that it could continue."""
    rules = [rule for rule in walk(node) if isinstance(rule, Map)]
    if any("open" in rule.entries for rule in rules):
        return
    for rule in rules:
        delta = rule.get("delta")
        if isinstance(delta, Map) and "kind" not in delta.entries:
            unit.mistake(delta, "`delta` needs `kind`", "without it, it continues a part that an `open` began")


def names_matched(node: Node) -> frozenset[str]:
    """The names of events for which the rules have a case of `$match: $event`. An event of such a name is read even if
    it has no data, because some services end their streams so (`event: end`)."""
    return frozenset(
        name.strip()
        for choice in walk(node)
        if isinstance(choice, Map) and (text_in(choice.get("$match")) or "").strip() == "$event"
        for key in choice.entries
        if not key.startswith("$")
        for name in key.split("|")
    )


def _rules(site: Site, node: Node, *, top: bool = False) -> None:
    """A list of operations, a choice, or (at the top) `always` beside a choice; `$let` names for both."""
    if isinstance(node, List):
        for item in node.items:
            _operation(site, item)
        return
    if isinstance(node, Scalar):
        if node.value != NOTHING_WORD:
            hint = "[] for nothing"
            site.unit.mistake(node, "stream rules are a list of operations, or a choice by $match", hint)
        return
    entries = dict(node.entries)
    always = entries.pop("always", None) if top else None
    if "$let" in entries and (always is not None or "$match" in entries):
        site = let.enter(site, node)
        del entries["$let"]
    if always is not None:
        _rules(site, always)
    if "$match" in entries:
        _choice(site, replace(node, entries=entries))
        return
    for key in entries:
        hint = suggest(key, ("always", "$match")) or "rules are `always:` with a list, or `$match:` with cases"
        if key in OPERATIONS:
            hint = "operations stand in a list: put a dash before it"
        site.unit.mistake(node.keys[key], f"unknown key `{key}`", hint)


def _choice(site: Site, node: Map) -> None:
    """Run the rules of the case that fits an event; an event without a case is counted."""
    for key in ("$each", "$when"):
        if key in node.entries:
            site.unit.mistake(
                node.keys[key],
                f"`{key}` stands beside an operation, not beside a choice between lists of them",
                "put it beside each operation of the cases",
            )
    if "$refuse" in node.entries:
        site.unit.mistake(node.keys["$refuse"], "`$refuse` has no meaning in a stream: only a request can be refused")
    choice = match.enter(site, node)
    if choice is None:
        return
    unmatched = match.Case((), False, True, List((), node.mark), node.mark)
    if not any(case.other for case in choice.cases):
        choice.cases.append(unmatched)

    def body(place: Site, case: match.Case) -> None:
        if case is unmatched:
            place.code.add(f"R.ignored({choice.subject})", node.mark.line)
        else:
            _rules(place, case.value)

    match.chain(site, choice, body)


def _operation(site: Site, node: Node) -> None:
    if not isinstance(node, Map):
        site.unit.mistake(node, "a rule is an operation", "such as {delta: {kind: text, text: $.text}}")
        return
    known = {*BESIDE, *OPERATIONS}
    for key, mark in node.keys.items():
        if key not in known:
            if key == "$match":
                site.unit.mistake(mark, "no choice stands in a list of operations", "write `$when` beside each of them")
            else:
                site.unit.mistake(mark, f"unknown operation `{key}`", known_words(key, [*OPERATIONS, *BESIDE]))
            return
    names = [key for key in node.entries if key in OPERATIONS]
    if len(names) != 1:
        where = node.keys[names[1]] if names else node.mark
        site.unit.mistake(
            where,
            f"a rule has one operation, not {len(names)}",
            "put several under `do`" if names else f"one of {', '.join(OPERATIONS)}",
        )
        return
    if "$each" in node.entries:
        loop = each.enter(site, node)
        if loop is None:
            return
        with each.guarded(site, loop), each.walking(site, loop) as inner:
            site.code.forget("R")  # the last iteration has changed it
            _conditioned(inner, node, names[0])
    else:
        _conditioned(site, node, names[0])


def _conditioned(site: Site, node: Map, name: str) -> None:
    when.emit(let.enter(site, node), node, lambda inner: _emit(inner, name, node.entries[name], node.keys[name].line))


def _emit(site: Site, name: str, node: Node, line: int) -> None:
    if name == "do":
        if isinstance(node, List):
            _rules(site, node)
        else:
            site.unit.mistake(node, "`do` takes a list of operations")
        return
    if name == "lost":
        if isinstance(node, Scalar):
            site.code.add(f"C.lose({lower_words(site, node).py})", line)
        else:
            site.unit.mistake(node, "`lost` takes the words for the loss report")
        return
    if name in ("usage", "error"):
        _checked_keys(site, name, node)
        value = templates.value_of(site.under(name), node)
        method = _METHODS[name]
        if value.atom or name == "error":
            _do(site, f"R.{method}({value.py})", line)
        else:
            held = site.temp()
            _do(site, f"if ({held} := {value.py}) is not None: R.{method}({held})", line)
        return
    _emit_fields(site, name, node, line)


def _emit_fields(site: Site, name: str, node: Node, line: int) -> None:
    """An operation that takes fields."""
    if not isinstance(node, Map):
        site.unit.mistake(node, f"`{name}` takes fields", f"{{{', '.join(OPERATIONS[name].fields[:3])}, ...}}")
        return
    if not _checked_keys(site, name, node):
        return
    for key, value in node.entries.items():
        check_bare_name(site, key, value)
    given = {
        key: templates.value_of(site.under(f"{name}.{key}"), value).py
        for key, value in node.entries.items()
        if key not in _PROMISES
    }
    if "args" in given:
        given.setdefault("text", given.pop("args"))
    if name == "delta":
        _delta(site, given, line, "steady" if "steady" in node.entries else "delta")
        return
    method = "close_late" if "late" in node.entries else _METHODS.get(name, name)
    # without a name the fields of a start are new information, however late
    with site.code.block("if not R.known", line) if name == "start" and _NAMED & given.keys() else nullcontext():
        _call(site, method, OPERATIONS[name].by_place, given, line)


_METHODS = {"stop": "finished", "usage": "count_usage", "error": "fail"}
"""The methods of `Run` for operations, where their names differ."""
_PROMISES = ("steady", "late")
"""Fields that say how an operation is compiled, and have no value of their own."""


def _delta(site: Site, given: dict[str, str], line: int, method: str) -> None:
    """Call a delta only when there is something in it."""
    for field, grow in (("so_far", "grown"), ("leaves", "leafwise")):
        if field in given:
            held = site.temp()
            kind, key = given.get("kind", "None"), given.get("key", "None")
            site.code.add(f"{held} = R.{grow}({kind}, {key}, {given.pop(field)})", line)
            given["text"] = held
    tests = []
    for key, value in given.items():
        if key in ("kind", "key", "origin"):
            continue
        held = given[key] = site.temp()
        site.code.add(f"{held} = {value}", line)
        tests.append(f"{held} is not None")
    by_place = OPERATIONS["delta"].by_place
    if "kind" not in given:
        method, by_place = "more_of", by_place[1:]
    with site.code.block(f"if {' or '.join(tests) or 'False'}", line):
        _call(site, method, by_place, given, line)


def _call(site: Site, method: str, by_place: tuple[str, ...], given: dict[str, str], line: int) -> None:
    arguments = [given.get(key, "None") for key in by_place]
    more = {key: value for key, value in given.items() if key not in by_place}
    if more:
        made = (
            "{" + ", ".join(f"{key!r}: {value}" for key, value in more.items()) + "}"
            if method == "start"
            else f"Details({', '.join(f'{key}={value}' for key, value in more.items())})"
        )
        if all(value.isidentifier() for value in more.values()):
            made += f" if {' or '.join(f'{value} is not None' for value in more.values())} else None"
        arguments.append(made)
    while arguments and arguments[-1] == "None":
        arguments.pop()
    _do(site, f"R.{method}({', '.join(arguments)})", line)


def _do(site: Site, call: str, line: int) -> None:
    """Add a call of the run. What was read from the run before must be read again after it."""
    site.code.add(call, line)
    site.code.forget("R")


def _checked_keys(site: Site, name: str, node: Node) -> bool:
    """Whether an operation's keys are right; mistakes are noted in the unit."""
    found = [*_mistaken_keys(name, node), *_mistaken_kind(node)] if isinstance(node, Map) else []
    for at, message, hint in found:
        site.unit.mistake(at, message, hint)
    return not found


def _mistaken_keys(name: str, node: Map) -> Iterator[tuple[Node | Mark, str, str]]:
    operation = OPERATIONS[name]
    if not operation.fields:
        return
    for key, mark in node.keys.items():
        if key not in operation.fields and not key.startswith("$"):
            yield mark, f"`{name}` has no field `{key}`", known_words(key, operation.fields)
        elif key.startswith("$") and name != "error":
            yield mark, f"no directive stands directly in `{name}`", "put it beside the operation"
    whole_text = [field for field in ("so_far", "leaves", "text", "args") if field in node.entries]
    if len(whole_text) > 1 and whole_text[0] in ("so_far", "leaves"):
        yield node.keys[whole_text[0]], f"`{whole_text[0]}` stands instead of `text`", ""
    for key in _PROMISES:
        promise = node.get(key)
        if promise is not None and not (isinstance(promise, Scalar) and promise.value is True):
            yield promise, f"`{key}` is a promise", "true, or leave it out"
    if "late" in node.entries and len(node.entries) > ("key" in node.entries) + 1:
        yield node.keys["late"], "`late` stands beside `key` only", "leave the other fields out"
    for key in operation.needs:
        if key not in node.entries:
            yield node, f"`{name}` needs `{key}`", ""
    if name == "delta" and "kind" not in node.entries:
        for key in ("leaves", "steady"):
            if key in node.entries:
                yield node.keys[key], f"`{key}` needs `kind` beside it", ""


def _mistaken_kind(node: Map) -> Iterator[tuple[Node | Mark, str, str]]:
    written = node.get("kind")
    computed = isinstance(written, Map) and any(key.startswith("$") for key in written.entries)
    if written is not None and not computed and not text_in(written):
        yield written, "the kind of a part is a word", f"one of {', '.join(hub.KINDS)}"
    kind = text_in(written) or ""
    if "$" not in kind and kind not in hub.KINDS and (hint := suggest(kind, hub.KINDS)):
        yield node.entries["kind"], f"unknown kind of part `{kind}`", hint
