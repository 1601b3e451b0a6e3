"""Lowers a path to Python: chains of `.get`, with each container looked up once, and helper functions for paths that
give lists.

A container on the way is kept in a local as "the dict, or an empty one", so that every further read of it is one plain
`.get`; all reads in the same block share the local.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from tollgate.config.load import Mark
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.grammar import nodes
from tollgate.mapping.names import ABOUT, CALLERS_SECRETS
from tollgate.mapping.operators import comparison
from tollgate.mapping.paths import (
    Condition,
    Descend,
    Every,
    Find,
    ParseError,
    Path,
    Slice,
    Step,
    Where,
    has_item,
    parse_path,
)
from tollgate.mapping.reads import Places, gathered, take
from tollgate.mapping.scope import NOTHING, Lowered, Site, Spot, known_words, suggest, written

_OPERATORS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "lteq", ">": "gt", ">=": "gteq"}
"""The operators of a filter by the names that jinja2 has for them."""


def read_text(site: Site, text: str, spot: Spot, offset: int = 0) -> Lowered:
    """`read` of a path as it is written; `offset` is its place in the text of the spot."""
    try:
        path = parse_path(text)
    except ParseError as error:
        spot.mistake(error.message, offset + error.offset, error.hint)
        return NOTHING
    return read(site, path, spot, offset)


def read(site: Site, path: Path, spot: Spot, offset: int = 0) -> Lowered:
    """The value at a path. If it becomes part of the result as it is, the caller counts it as read with
    `Lowered.take`."""
    var = site.scope.names.get(path.base)
    if var is None:
        message, hint = _unknown(site, path.base)
        spot.mistake(message, offset, hint)
        return NOTHING
    steps = path.steps
    _note_compared(site, var.places, steps, spot.mark(offset))
    if var.fields is not None:
        if not steps:
            if not var.py:
                spot.mistake(f"`${path.base}` is read by its fields", offset, f"one of {', '.join(sorted(var.fields))}")
                return NOTHING
            return Lowered(var.py, var.present, places=var.places)
        found = var.fields.get(steps[0]) if isinstance(steps[0], str) else None
        if found is None:
            spot.mistake(f"`${path.base}` has no field `{steps[0]}`", offset, known_words(str(steps[0]), var.fields))
            return NOTHING
        if steps[1:]:
            _check_known(found.known, f"{path.base}.{steps[0]}", steps[1], spot, offset)
        value = Lowered(found.py, found.present, found.kind, places=reads_of(var.places, steps[:1]))
        return walk(site, value, steps[1:], spot.line)
    value = Lowered(var.py, var.present, var.kind, atom=True, places=var.places)
    if not steps:
        return value
    _check_known(var.known, path.base, steps[0], spot, offset)
    if path.base in ("headers", "answer_headers") and not var.own:
        _check_header(path.base, steps[0], spot, offset)
    return walk(site, value, steps, spot.line)


def _note_compared(site: Site, places: Places, steps: tuple[Step, ...], mark: Mark) -> None:
    """Note the words that a path's filters compare fields with."""
    for number, step in enumerate(steps):
        for condition in step.conditions if isinstance(step, Where) and places else ():
            if isinstance(condition.value, str) and condition.path:
                items = tuple(place.each() for place in reads_of(places, steps[:number]))
                site.unit.compared.append((reads_of(items, condition.path), condition.value, mark))


def _check_header(base: str, name: Step, spot: Spot, offset: int) -> None:
    if not isinstance(name, str):
        return
    if base == "headers" and name.lower() in CALLERS_SECRETS:
        spot.mistake(
            f"`{name}` of a caller is for nobody else to see", offset, "the provider's own key is $secret.NAME"
        )
    elif name != name.lower():
        spot.mistake(
            f"`${base}` has no `{name}`: headers are read by their lower-case names",
            offset,
            f"${base}['{name.lower()}']",
        )


def walk(site: Site, base: Lowered, steps: tuple[Step, ...], line: int) -> Lowered:
    """The value at `steps` below a value that is already lowered."""
    plain = next((number for number, step in enumerate(steps) if not isinstance(step, (str, int))), len(steps))
    value = _plain(site, base, steps[:plain], line) if plain else base
    if plain == len(steps):
        return value
    found = f"{_helper(site, steps[plain:], line)}({{name}})"
    last = steps[plain]
    kind = "list"
    if isinstance(last, Slice) and plain == len(steps) - 1:
        found, kind = f"{{name}}[{last.start}:{last.stop}] if type({{name}}) is str else {found}", "any"
    bound, name = site.bound(value)
    return Lowered(
        f"(None if {bound} is None else {found.format(name=name)})",
        kind=kind,
        places=gathered(reads_of(value.places, steps[plain:])),
    )


def reads_of(places: Places, steps: tuple[Step, ...]) -> Places:
    """The places that `steps` lead to; a path that searches everywhere reads the whole value."""
    for step in steps:
        if isinstance(step, str):
            places = tuple(place.at(step) for place in places)
        elif isinstance(step, (Descend, Find)):
            take(places)
            return ()
        elif isinstance(step, Where):
            places = tuple(place.each() for place in places)
            for condition in step.conditions:
                places = _reads_of_condition(places, condition)
        else:
            places = tuple(place.each(one=isinstance(step, int)) for place in places)
    return places


def _reads_of_condition(places: Places, condition: Condition) -> Places:
    if condition.operator == "==" and isinstance(condition.value, str) and condition.path:
        return tuple(place.case(condition.path, (condition.value,)) for place in places)
    reads_of(places, condition.path)
    return places


def dict_view(site: Site, value: Lowered, line: int) -> str:
    """A local that holds the value if it is an object, else an empty object."""
    return _view(site, value, line, "dict", "EMPTY")


def _view(site: Site, value: Lowered, line: int, kind: Literal["dict", "list"], empty: str) -> str:
    """A local that holds the value if it is of this Python type, else `empty`."""
    known = site.code.recall((kind, value.py))
    if known is not None:
        return known
    name = site.temp(kind[0])
    bound, inner = site.bound(value)
    site.code.add(f"{name} = {inner} if type({bound}) is {kind} else {empty}", line)
    site.hold(value, inner)
    site.code.remember((kind, inner), name)
    return site.code.remember((kind, value.py), name)


def _plain(site: Site, base: Lowered, steps: tuple[Step, ...], line: int) -> Lowered:
    """A path of fields and indexes only: every container on the way becomes a local, the last step is read in place."""
    value = base
    for step in steps:
        places = reads_of(value.places, (step,))
        if isinstance(step, str):
            own = value.present and value.kind == "object"
            view = value.py if own else dict_view(site, value, line)
            text = f"{view}.get({step!r})"
            held = None if own else site.code.recall(("value", text))  # the engine's own objects may change
            value = Lowered(held or text, atom=held is not None, places=places)
        else:
            view = _view(site, value, line, "list", "()")
            guard = view if step in (0, -1) else has_item(view, step)  # type: ignore[arg-type]
            value = Lowered(f"({view}[{step}] if {guard} else None)", places=places)
    return value


def _helper(site: Site, steps: tuple[Step, ...], line: int) -> str:
    """The generated function that collects what `steps` find below its argument; absent if they find nothing."""
    unit = site.unit
    known = unit.helpers.get(steps)
    if known is not None:
        return known
    name = unit.helpers[steps] = unit.module.fresh("path")
    inside = replace(site, code=unit.module.function(f"{name}(x)", line))
    inside.code.add("out = []", line)
    _step_into(inside, "x", steps, line)
    inside.code.add("return out or None", line)
    return name


def _step_into(site: Site, value: str, steps: tuple[Step, ...], line: int) -> None:
    """Add the code that collects what `steps` find in the local `value`."""
    if not steps:
        site.code.add(f"if {value} is not None: out.append({value})", line)
        return
    step, rest = steps[0], steps[1:]
    inner = site.temp("x")
    if isinstance(step, str | int):
        if isinstance(step, str):
            found = f"{value}.get({step!r}) if type({value}) is dict"
        else:
            found = f"{value}[{step}] if type({value}) is list and {has_item(value, step)}"
        site.code.add(f"{inner} = {found} else None", line)
        _step_into(site, inner, rest, line)
        return
    if isinstance(step, Every | Where):
        source = f"{value} if type({value}) is list else {value}.values() if type({value}) is dict else ()"
    elif isinstance(step, Slice):
        source = f"{value}[{step.start}:{step.stop}] if type({value}) is list else ()"
    elif isinstance(step, Descend):
        source = f"below({value}, {step.key!r})"
    else:
        source = f"found({site.unit.module.constant(step.expression)}, {value})"
    with loop(site, f"for {inner} in {source}", step, inner, line):
        _step_into(site, inner, rest, line)


@contextmanager
def loop(site: Site, header: str, step: Step, item: str, line: int) -> Iterator[None]:
    """A `for` block over the local `item` and, for a filter, the `if` inside it."""
    with site.code.block(header, line):
        if not isinstance(step, Where):
            yield
            return
        tests = [_item_test(site, item, condition, line) for condition in step.conditions]
        with site.code.block(f"if {' and '.join(tests)}", line):
            yield


def _item_test(site: Site, item: str, condition: Condition, line: int) -> str:
    """The Python condition for one comparison of a filter over the local `item`."""
    value = item
    for key in condition.path:
        inner = site.temp("c")
        site.code.add(f"{inner} = {value}.get({key!r}) if type({value}) is dict else None", line)
        value = inner
    if condition.operator is None:
        return f"{value} is not None"
    return comparison(
        site, _OPERATORS[condition.operator], Lowered(value, atom=True), written(condition.value), texts=False
    )


def _check_known(known: frozenset[str] | None, owner: str, step: Step, spot: Spot, offset: int) -> None:
    if known is not None and isinstance(step, str) and step not in known:
        hint = known_words(step, sorted(known)) if owner else f"its fields are {', '.join(sorted(known))}"
        spot.mistake(f"`${owner}` has no field `{step}`", offset, hint)


def _unknown(site: Site, name: str) -> tuple[str, str]:
    """What is wrong with a name that cannot be read here, and a hint."""
    if not name and site.scope.function is not None:
        return "`$` is not visible inside a function", "a function sees its parameters; pass what it needs"
    if not name:
        return "there is no document here, so `$` reads nothing", "the request is read under `send:` of an endpoint"
    if name == "nothing":
        return "`$nothing` is a word of its own, not a value", "write it alone, as the value of a case or a field"
    if name in ABOUT:
        return f"`${name}` cannot be read here", f"it is {ABOUT[name]}"
    if name.isupper() and not name.isdigit() and "secret" in site.scope.names:
        hint = f"an environment variable is `$secret.{name}`"
    elif name.isdigit():
        hint = "a literal that starts with a dollar is written `$$`"
    else:
        names = [known for known in site.scope.names if known]
        hint = (
            suggest(name, names, "${}")
            or next((hint for of, beside, hint in _ELSEWHERE if name == of and beside in (None, *names)), "")
            or (site.scope.function is not None and "a function sees its parameters and the engine's values")
            or ("" in site.scope.names and f"a field of the document is `$.{name}`")
            or (f"here are {', '.join(f'${known}' for known in names)}" if names else "")
        )
    return f"unknown name `${name}`", hint


_ENVIRONMENT = "did you mean `$secret`? It is the environment variable of that name, or a file"
_IN_EDITS = "an edit reads it in the values of `set` only"
_IN_PROVIDERS = "it is read in the provider's file, where an edit may set a field to `$vars.x`"
_ELSEWHERE = (
    ("env", "secret", _ENVIRONMENT),
    ("environ", "secret", _ENVIRONMENT),
    ("old", None, _IN_EDITS),
    ("parent", None, _IN_EDITS),
    ("secret", "vars", "name it under `vars:` (x: $secret.NAME), and write `$vars.x`"),
    ("secret", None, _IN_PROVIDERS),
    ("vars", "secret", "one of `vars:` cannot read another"),
    ("vars", None, _IN_PROVIDERS),
    ("http", "job", "it describes an answer: a `result` and prices read it"),
    ("answer_headers", None, "it is read in the provider's file, under `errors:` and `usage: {read: ...}`"),
)
"""Hints for names that can only be read elsewhere, some of them with a name that can be read here instead; the first
that fits is used."""


def read_by_filter(entry: Filter, value: Lowered, arguments: list[nodes.Expr], use: Callable[[Places], None]) -> Places:
    """Count what a filter reads of its value as read, with `use`; returns the places that its result still stands
    for (`Filter.uses`)."""
    places: Places = ()
    if entry.uses in ("fields", "items") and all(isinstance(argument, nodes.Const) for argument in arguments):
        for argument in arguments:
            items = tuple(place.each() for place in value.places)
            fields = reads_of(items, (str(argument.as_const()),))
            use(fields)
        if entry.uses == "items":
            places = value.places
    elif entry.uses == "same":
        places = value.places
    elif entry.uses == "item":
        places = tuple(place.each(one=True) for place in value.places)
    elif entry.uses != "outline":
        use(value.places)
    return places
