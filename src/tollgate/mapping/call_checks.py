"""Checks of the calls in an expression: whether the filter or function exists, and whether its arguments fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tollgate.mapping.filter_table import Filter
from tollgate.mapping.grammar import nodes
from tollgate.mapping.scope import Function, Unit, suggest
from tollgate.mapping.values import KIND_WORDS

Wrong = Callable[..., None]
"""A function that notes a mistake: the node, what is wrong with it, and a hint."""

_RAW = "only addresses that are called escape what stands in braces; elsewhere it is sent as it is, without `raw`"


_OF_OTHER_LANGUAGES = {
    **dict.fromkeys(("tojson", "to_json", "dumps"), "value | json"),
    **dict.fromkeys(("fromjson", "from_json", "loads"), "value | parse_json"),
    **dict.fromkeys(("string", "str"), "value | text"),
    **dict.fromkeys(("int", "float"), "value | number"),
    **dict.fromkeys(("count", "len", "size"), "value | length"),
    **{name: f"value | digest('{name}')" for name in ("md5", "sha1", "sha256", "sha384", "sha512")},
    **dict.fromkeys(("base64", "b64encode", "base64_encode"), "value | to_base64"),
    **dict.fromkeys(("b64decode", "base64_decode"), "value | from_base64"),
    **dict.fromkeys(("urlencode", "quote", "escape"), "value | percent"),
    **dict.fromkeys(("map", "pluck"), "$.list[*].field"),
    **dict.fromkeys(("select", "selectattr", "filter"), "$.list[?(@.field == 'x')]"),
    "sum": "value | total",
    "trim": "value | strip",
    "items": "value | entries",
    "unique": "value | distinct('field')",
    "batch": "value | chunks(2)",
    "strftime": "value | date('%Y-%m-%d')",
    "truncate": "$.text[0:100]",
}
"""Names by which other template languages know what is written like this here."""


def function_called(unit: Unit, paths: Mapping[str, str], node: nodes.Call, wrong: Wrong) -> Function | None:
    """The function that a node calls; None, with the mistake noted, if the call is wrong. `paths` has the names in
    the expression that stand for data."""
    if not isinstance(node.node, nodes.Name) or node.node.name in paths:
        written = paths.get(node.node.name, "") if isinstance(node.node, nodes.Name) else ""
        method = written.rpartition(".")[2]
        filtered = _OF_OTHER_LANGUAGES.get(method) or (f"value | {method}" if method in unit.filters else "")
        wrong(node, "only functions are called, by their name", f"here it is `{filtered}`" if filtered else "")
        return None
    name = node.node.name
    function = unit.functions.get(name)
    if function is None:
        known = _OF_OTHER_LANGUAGES.get(name)
        hint = suggest(name, unit.functions) or "functions are written under `define:`"
        hint = f"here it is `{known}`" if known else hint
        wrong(
            node,
            f"unknown function `{name}`",
            f"a filter is written `value | {name}`" if name in unit.filters else hint,
        )
        return None
    if not _by_place(node, name, wrong):
        return None
    if len(node.args) != len(function.parameters):
        wrong(node, f"`{name}` takes {_arguments(len(function.parameters))}, not {len(node.args)}")
        return None
    return function


def filter_called(unit: Unit, node: nodes.Filter, wrong: Wrong) -> Filter | None:
    """The filter that a node calls; None, with the mistake noted, if the call is wrong."""
    if node.name == "raw" and unit.escape_holes:
        wrong(node, "`raw` stands last", "write `{{ value | raw }}`")
    entry = unit.filters.get(node.name)
    if entry is None:
        call = f"call it: `{node.name}(...)`" if node.name in unit.functions else ""
        known = _OF_OTHER_LANGUAGES.get(node.name)
        hint = f"here it is `{known}`" if known else suggest(node.name, unit.filters) or call
        hint = _RAW if node.name == "raw" else hint
        wrong(node, f"unknown filter `{node.name}`", hint)
        return None
    if not _by_place(node, node.name, wrong):
        return None
    if not entry.least <= len(node.args) <= entry.most:
        wanted = f"({entry.arguments})" if entry.arguments else "without arguments"
        wrong(node, f"`{node.name}` has {_arguments(len(node.args))}", f"it is used {wanted}")
        return None
    for place, (fits, wanted) in entry.fits.items():
        written = node.args[place] if place < len(node.args) else None
        if isinstance(written, nodes.Const) and not fits(written.value):
            wrong(node, f"`{node.name}` does not know {written.value!r}", f"it takes {wanted}")
            return None
        if written is not None and not isinstance(written, nodes.Const) and (word := _elsewhere(entry, node, fits)):
            wrong(node, f"`{node.name}` has {word!r} in another's place", f"it is used ({entry.arguments})")
            return None
    if entry.ascends and len(ends := [_number(each) for each in node.args]) == 2:
        lowest, highest = ends
        if lowest is not None and highest is not None and lowest > highest:
            wrong(node, f"`{node.name}`: the lowest ({lowest}) is above the highest ({highest})")
            return None
    return entry


def _number(node: nodes.Expr) -> float | None:
    """A number that is written in an expression, with or without a minus."""
    if isinstance(node, nodes.Neg):
        positive = _number(node.node)
        return None if positive is None else -positive
    return node.value if isinstance(node, nodes.Const) and type(node.value) in (int, float) else None


def _elsewhere(entry: Filter, node: nodes.Filter, fits: Callable[[object], bool]) -> str | None:
    """A text that fits one place among the arguments and stands at one that takes any text: two are exchanged. None
    if almost any text fits there."""
    if fits("x"):
        return None
    others = (each for place, each in enumerate(node.args) if place not in entry.fits)
    return next((each.value for each in others if isinstance(each, nodes.Const) and fits(each.value)), None)


def misfits(entry: Filter, kinds: Sequence[str]) -> Iterator[str]:
    """What is wrong with the kinds (`Lowered.kind`) of the value and the arguments: those that it never works
    on."""
    for place, kind in enumerate(kinds if entry.takes else ()):
        name, taken = entry.takes[min(place, len(entry.takes) - 1)]  # the last takes all further ones
        if taken and kind in KIND_WORDS and kind not in taken:
            wanted = " or ".join(KIND_WORDS[each] for each in taken)
            of = f" as `{name}`" if place else ""
            yield f"`{entry.name}` takes {wanted}{of}, found {KIND_WORDS[kind]}"


def skipped_items(entry: Filter, kinds: Sequence[str]) -> Iterator[str]:
    """What is wrong with the items of a list, by their kinds: the filter skips these without a word."""
    for kind in dict.fromkeys(kinds if entry.items else ()):
        if kind in KIND_WORDS and kind not in entry.items:
            yield f"`{entry.name}` skips {KIND_WORDS[kind]} in a list"


def _by_place(node: nodes.Call | nodes.Filter, name: str, wrong: Wrong) -> bool:
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        wrong(node, f"arguments of `{name}` are given by place, without names")
        return False
    return True


def _arguments(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"
