"""A fast check that a document fits its JSON Schema: the schema is compiled once to a function over nodes.

The function answers only "valid" or "not sure". What it is not sure of goes to `jsonschema`, which is some 40 times
slower and finds the mistakes to report (`shape.py`). Only the keywords that our own schemas use are known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tollgate.config.load import List, Map, Node, Scalar, plain

Test = Callable[[Node], bool]

_DESCRIPTIVE = frozenset({"description", "title", "default", "wanted", "hidden", "editor", "$schema", "$defs"})
"""Keywords that describe and do not constrain."""
_OF_MAPS = frozenset({"properties", "additionalProperties", "propertyNames", "required", "minProperties"})
_OF_LISTS = frozenset({"items", "minItems", "maxItems", "uniqueItems"})


def compile_accept(schema: dict[str, Any]) -> Test:
    """A function that returns True only for nodes which the schema accepts. Raises `NotImplementedError` for a
    keyword that is not known here."""
    return _Compiling(schema).test(schema)


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """A `pattern` of a schema, in which a `$` at the end is the end of the text. To Python it is also the place before
    a line break there, so that "acme/large\\n" would be a canonical id."""
    at_end = pattern.endswith("$") and not pattern.endswith(r"\$")
    return re.compile(pattern[:-1] + r"\Z" if at_end else pattern)


class _Compiling:
    """One schema while it is compiled; each `$ref` is compiled once."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.references: dict[str, list[Test]] = {}

    def test(self, schema: Any) -> Test:
        if schema is True:
            return _anything
        words = {word: value for word, value in schema.items() if word not in _DESCRIPTIVE}
        tests = []
        if _OF_MAPS & words.keys():
            tests.append(self._map(words))
        if _OF_LISTS & words.keys():
            tests.append(self._list(words))
        tests += [
            self._one(word, value) for word, value in words.items() if word not in _OF_MAPS and word not in _OF_LISTS
        ]
        if not tests:
            return _anything
        if len(tests) == 1:
            return tests[0]
        if len(tests) == 2:
            first, second = tests
            return lambda node: first(node) and second(node)
        return lambda node: all(test(node) for test in tests)

    def _one(self, word: str, value: Any) -> Test:
        match word:
            case "type":
                return _type(frozenset(value) if isinstance(value, list) else frozenset((value,)))
            case "enum":
                return _among(value)
            case "pattern":
                found = compiled_pattern(value).search
                return _text(lambda text: found(text) is not None)
            case "format" if value == "regex":
                return _text(_compiles)
            case "minLength":
                return _text(lambda text: len(text) >= value)
            case "minimum":
                return _number(lambda number: number >= value)
            case "maximum":
                return _number(lambda number: number <= value)
            case "exclusiveMinimum":
                return _number(lambda number: number > value)
            case "anyOf":
                branches = tuple(self.test(branch) for branch in value)
                return lambda node: any(branch(node) for branch in branches)
            case "$ref":
                return self._reference(value)
            case _:
                raise NotImplementedError(word)

    def _reference(self, name: str) -> Test:
        holder = self.references.get(name)
        if holder is None:
            holder = self.references[name] = []
            holder.append(self.test(self.root["$defs"][name.removeprefix("#/$defs/")]))
        return lambda node: holder[0](node)

    def _map(self, words: dict[str, Any]) -> Test:
        known = {name: self.test(schema) for name, schema in words.get("properties", {}).items()}
        more = words.get("additionalProperties", True)
        other = None if more is False else self.test(more)
        names = words.get("propertyNames")
        if names is not None and set(names) - _DESCRIPTIVE != {"pattern"}:
            raise NotImplementedError
        fits = compiled_pattern(names["pattern"]).search if names is not None else None
        required = tuple(words.get("required", ()))
        least = words.get("minProperties", 0)

        def accepts(node: Node) -> bool:
            if type(node) is not Map:
                return True
            entries = node.entries
            if len(entries) < least:
                return False
            for name in required:
                if name not in entries:
                    return False
            for name, child in entries.items():
                test = known.get(name, other)
                if test is None or not test(child) or fits is not None and fits(name) is None:
                    return False
            return True

        return accepts

    def _list(self, words: dict[str, Any]) -> Test:
        item = self.test(words.get("items", True))
        least, most, unique = words.get("minItems", 0), words.get("maxItems"), words.get("uniqueItems", False)

        def accepts(node: Node) -> bool:
            if type(node) is not List:
                return True
            items = node.items
            if len(items) < least or most is not None and len(items) > most:
                return False
            if unique and len(items) > 1:
                values = [plain(child) for child in items]
                if any(value in values[:place] for place, value in enumerate(values)):
                    return False
            for child in items:
                if not item(child):
                    return False
            return True

        return accepts


def _anything(_node: Node) -> bool:
    return True


VALUES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, Decimal),
    "boolean": (bool,),
    "null": (type(None),),
}
"""The Python types of scalars by the types of JSON Schema."""


def _type(kinds: frozenset[str]) -> Test:
    """Exact types only; a bool is no integer, a Decimal is a number."""
    values = {each for kind in kinds for each in VALUES.get(kind, ())}
    maps, lists = "object" in kinds, "array" in kinds

    def accepts(node: Node) -> bool:
        kind = type(node)
        if kind is Scalar:
            return type(node.value) in values  # type: ignore[union-attr]
        return maps if kind is Map else lists

    return accepts


def _among(words: list[Any]) -> Test:
    texts = frozenset(word for word in words if isinstance(word, str))
    return lambda node: type(node) is Scalar and node.value in texts


def _text(holds: Callable[[str], bool]) -> Test:
    return lambda node: type(node) is not Scalar or not isinstance(node.value, str) or holds(node.value)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _number(holds: Callable[[Any], bool]) -> Test:
    def accepts(node: Node) -> bool:
        if type(node) is not Scalar or isinstance(node.value, bool) or not isinstance(node.value, (int, Decimal)):
            return True
        return holds(node.value)

    return accepts
