"""Reads an edit list (MAPPING b.4): YAML nodes -> `Edit` values, with every mistake noted.

Owns the verbs and their shapes; their effect is written by `code.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tollgate.config.load import List, Map, Mark, Node, Scalar, text_in
from tollgate.mapping.paths import Descend, Find, ParseError, Path, Step, parse_path
from tollgate.mapping.scalars import is_literal, warn_of_path
from tollgate.mapping.scope import Spot, Unit, suggest


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb as in the reference: the type of its value, and its effect."""

    name: str
    takes: str
    about: str
    example: str
    puts: bool = False
    """It puts a value into the document: objects that are missing on the way are created, and what the edit reads of a
    request may be moved (`moves.py`)."""


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(
            "rename",
            "{path: key}",
            "the field gets another name beside its neighbours; a null only makes room",
            "rename: {max_completion_tokens: max_tokens}",
        ),
        Verb(
            "drop",
            "[path]",
            "what the paths find is removed; on a request it is reported as a loss",
            'drop: [logit_bias, "$.messages[*].name"]',
        ),
        Verb(
            "harmless",
            "[path, {path: value}]",
            "of a request: what the paths find says nothing here, such as a default, and is removed without a loss; "
            "`{path: value}`: only where it has that value",
            'harmless: [{n: 1}, {"$.reasoning.exclude": false}]',
        ),
        Verb(
            "keep",
            "[key]",
            "of the top level only these fields stay; on a request the others are reported as a loss",
            "keep: [model, messages, stream]",
        ),
        Verb(
            "default",
            "{path: value}",
            "the field gets the value where it is absent or null",
            "default: {max_tokens: 8192}",
            puts=True,
        ),
        Verb(
            "set",
            "{path: value}",
            "the field gets the value; an absent value changes nothing; with a `why`, replacing something "
            "of a request is reported as a loss. `$` is the whole document: an object takes its place "
            "(`set: {$: $.result}`)",
            "set: {thinking: {type: enabled}}",
            puts=True,
        ),
        Verb(
            "clamp",
            "{path: [lowest, highest]}",
            "a number is moved into the range; null leaves an end open",
            "clamp: {temperature: [0, 1.5]}",
        ),
        Verb(
            "values",
            "{path: {from: to}}",
            "a value that is listed becomes another; `a|b` shares one, `$nothing` removes the field",
            'values: {"$.messages[*].role": {developer: system}}',
        ),
        Verb("refuse", "text", "the request is refused with a 400 and this text", "refuse: audio is not taken here"),
    )
}
BESIDE = {
    "when": "only where the expression holds",
    "why": "words for the reader",
    "param": "the field a refusal names",
}
"""The keys that may be written beside a verb."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path that an edit works on, with the keys beside it. Without steps it is the whole document."""

    steps: tuple[Step, ...]
    text: str
    mark: Mark
    value: Node | None = None
    beside: tuple[Entry, ...] = ()
    """Entries for other fields of the same objects, which are removed together with it."""


_OTHER_WORDS = {"remove": "drop", "delete": "drop", "replace": "set", "add": "set"}
"""What other tools call our verbs. By its letters `remove` is nearest to `rename`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit that was read. `keys` is for keep, `entries` for all verbs with paths, `value` for refuse."""

    verb: str
    mark: Mark
    entries: tuple[Entry, ...] = ()
    keys: tuple[str, ...] = ()
    value: Node | None = None
    when: Scalar | None = None
    param: str | None = None
    why: bool = False
    """The edit has a `why`: then a `set` that replaces a value of the caller's reports it as lost."""


def read_edits(unit: Unit, nodes: Node, of: str) -> list[Edit]:
    """The edits of a list; mistakes are noted in `unit`. `of` is request, response or stream."""
    if not isinstance(nodes, List):
        unit.mistake(nodes, f"edits are a list, found {_found(nodes)}", "put a dash before each edit")
        return []
    return [edit for node in nodes.items if (edit := _edit(unit, node, of)) is not None]


def _edit(unit: Unit, node: Node, of: str) -> Edit | None:
    if not isinstance(node, Map):
        unit.mistake(node, f"an edit is a verb and what it works on, found {_found(node)}", "such as `drop: [field]`")
        return None
    verbs = [key for key in node.entries if key in VERBS]
    for key, mark in node.keys.items():
        if key not in VERBS and key not in BESIDE:
            near = suggest(_OTHER_WORDS.get(key, key), [*VERBS, *BESIDE])
            unit.mistake(mark, f"unknown edit `{key}`", near or f"the edits are {', '.join(VERBS)}")
    if not verbs:
        if not any(key not in BESIDE for key in node.entries):
            unit.mistake(node, "an edit needs a verb", f"one of {', '.join(VERBS)}")
        return None
    if len(verbs) > 1:
        unit.mistake(
            node.keys[verbs[1]], f"one verb an edit: `{verbs[0]}` stands here already", "put a dash before the second"
        )
        return None
    name = verbs[0]
    value = node.entries[name]
    when = _when(unit, node)
    param = _param(unit, node, name)
    if name == "refuse":
        if of != "request":
            unit.mistake(node.keys[name], f"`refuse` has no meaning in `{of}:` edits: only a request can be refused")
        if "when" not in node.entries:
            unit.mistake(node.keys[name], "`refuse` needs a `when`", "without one every request would be refused")
        if not text_in(value):
            unit.mistake(value, f"`refuse` takes the words of the refusal, found {_found(value)}")
            return None
        return Edit(name, node.keys[name], value=value, when=when, param=param)
    if name == "keep":
        return Edit(name, node.keys[name], keys=_keys(unit, value), when=when)
    if name == "harmless":
        if of != "request":
            unit.mistake(node.keys[name], f"`harmless` has no meaning in `{of}:` edits: use `drop`")
        return Edit(name, node.keys[name], entries=tuple(_harmless(unit, value)), when=when)
    entries = _paths(unit, value) if name == "drop" else _table(unit, name, value)
    return Edit(name, node.keys[name], entries=tuple(entries), when=when, why=_why(unit, node))


def _when(unit: Unit, node: Map) -> Scalar | None:
    when = node.get("when")
    if when is None:
        return None
    if not isinstance(when, Scalar) or when.value is None:
        unit.mistake(when, f"`when` takes an expression, found {_found(when)}", "such as `when: $.stream`")
        return None
    return when


def _why(unit: Unit, node: Map) -> bool:
    why = node.get("why")
    if why is not None and text_in(why) is None:
        unit.mistake(why, f"`why` is words for the reader, found {_found(why)}")
    return why is not None


def _param(unit: Unit, node: Map, verb: str) -> str | None:
    param = node.get("param")
    if param is None:
        return None
    if verb != "refuse":
        unit.mistake(node.keys["param"], f"`param` stands beside `refuse` only, not beside `{verb}`")
    elif (text := text_in(param)) is not None:
        warn_of_path(unit, param)
        return text
    else:
        unit.mistake(param, f"`param` is the name of a field, found {_found(param)}")
    return None


def _keys(unit: Unit, value: Node) -> tuple[str, ...]:
    if not isinstance(value, List):
        unit.mistake(
            value, f"`keep` takes a list of fields, found {_found(value)}", "such as `keep: [model, messages]`"
        )
        return ()
    keys = []
    for item in value.items:
        if not isinstance(item, Scalar) or not item.text:
            unit.mistake(item, f"a field is a word, found {_found(item)}")
        elif item.text.startswith("$"):
            unit.mistake(
                item,
                f"`keep` takes fields of the top level, found the path `{item.text}`",
                "take other fields out with `drop`",
            )
        else:
            keys.append(item.text)
    return tuple(keys)


def _paths(unit: Unit, value: Node) -> list[Entry]:
    if not isinstance(value, List):
        unit.mistake(value, f"`drop` takes a list of paths, found {_found(value)}", "such as `drop: [field]`")
        return []
    entries = []
    for item in value.items:
        if not isinstance(item, Scalar) or not item.text:
            unit.mistake(item, f"a path is text, found {_found(item)}", "a path with brackets stands in quotes")
        elif (steps := _steps(unit, item.text, item.mark, item)) is not None:
            entries.append(Entry(steps, item.text, item.mark))
    return entries


def _harmless(unit: Unit, value: Node) -> list[Entry]:
    if not isinstance(value, List):
        unit.mistake(
            value, f"`harmless` takes a list of paths, found {_found(value)}", f"such as `{VERBS['harmless'].example}`"
        )
        return []
    entries = _paths(unit, replace(value, items=tuple(item for item in value.items if not isinstance(item, Map))))
    for item in value.items:
        for entry in _table(unit, "harmless", item) if isinstance(item, Map) else ():
            node = entry.value
            assert node is not None
            if not isinstance(entry.steps[-1], str):
                unit.mistake(entry.mark, f"the path of a value ends in a field, found `{entry.text}`")
            elif isinstance(node, Scalar) and (node.value is None or not is_literal(node)):
                unit.mistake(node, f"a value is wanted here, found {_found(node)}", "use `when` instead")
            else:
                entries.append(entry)
    return entries


def _table(unit: Unit, verb: str, value: Node) -> list[Entry]:
    if not isinstance(value, Map):
        unit.mistake(
            value, f"`{verb}` takes {VERBS[verb].takes}, found {_found(value)}", f"such as `{VERBS[verb].example}`"
        )
        return []
    entries = []
    for text, node in value.entries.items():
        mark = value.keys[text]
        steps = _steps(unit, text, mark, Scalar(text, text, False, mark), whole=verb == "set")
        if steps is None:
            continue
        if not steps and (isinstance(node, List) or isinstance(node, Scalar) and is_literal(node)):
            unit.mistake(node, f"a document is an object, found {_found(node)}", "such as `set: {$: $.result}`")
            continue
        if verb == "rename" and not isinstance(steps[-1], (str, Descend)):
            unit.mistake(mark, f"`rename` needs a path that ends in a field, found `{text}`")
            continue
        if verb == "rename" and (text_in(node) or "$").startswith("$"):
            unit.mistake(
                node,
                f"the new name is one word, found {_found(node)}",
                "a field is renamed beside its neighbours, it does not move",
            )
            continue
        entries.append(Entry(steps, text, mark, node))
    return entries


def _steps(unit: Unit, text: str, mark: Mark, node: Scalar, *, whole: bool = False) -> tuple[Step, ...] | None:
    """The steps of a path. A bare word is a field at the top level; anything else is a path from `$`. No steps: the
    whole document, for verbs that can work on it (`whole`)."""
    if not text.startswith("$"):
        if any(sign in text for sign in ".[*"):
            unit.mistake(
                mark, f"`{text}` is no field of the top level", f"a path starts with $: did you mean `$.{text}`?"
            )
            return None
        return (text,)
    try:
        path: Path = parse_path(text)
    except ParseError as error:
        unit.mistake(Spot(unit, node).mark(error.offset), error.message, error.hint)
        return None
    if path.base:
        unit.mistake(mark, f"an edit works on the document, found `{text}`", f"did you mean `$.{text[1:]}`?")
        return None
    if not path.steps and not whole:
        unit.mistake(mark, "an edit works on a part of the document, found all of it", "name a field")
        return None
    if any(isinstance(step, Find) for step in path.steps):
        unit.mistake(
            mark, f"`{text}` can be read but not edited", "use fields, [*], [n], [?(@.field == 'value')] and ..field"
        )
        return None
    return path.steps


def _found(node: Node) -> str:
    if isinstance(node, List):
        return "a list"
    if isinstance(node, Map):
        return "an object"
    if node.value is None:
        return "nothing"
    return f"`{node.text[:40]}`"
