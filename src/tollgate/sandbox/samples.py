"""A value that fits a JSON Schema: the sandbox's answer under structured output, and the arguments of its tool calls.

Strings are the user's text shortened to the allowed length; numbers are the smallest allowed. It supports the schemas
of structured output: types, enum, const, properties, required, items, anyOf/oneOf/allOf, $ref, bounds and formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized

import orjson

from tollgate.sandbox.faults import Fault

_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.com/",
}
_DEEPEST = 12
"""Schemas may be recursive; below this depth optional properties are left out."""
_MOST_WORK = 100_000
"""About a tenth of a second and 400 kB of JSON. A recursive schema of 300 bytes asks for more than any memory, and
in-process the loop and the memory are the gateway's."""
_VALUE_WORK = 10


class Budget:
    """What may still be made for one request: values, characters, and the entries of schemas that are looked at."""

    def __init__(self) -> None:
        self._left = _MOST_WORK

    def spend(self, work: int) -> None:
        """Count work that is about to be done. Raises `Fault` 400 if it is too much."""
        self._left -= work
        if self._left < 0:
            raise Fault(400, "Invalid schema: a value for it would be too large.", code="invalid_schema")


def sample(schema: object, words: str, budget: Budget | None = None) -> object:
    """A value for the schema, made from `words`; without a valid schema an object with the words. Raises `Fault` 400 if
    it is too large."""
    return _Sampler(schema if isinstance(schema, Mapping) else {}, words, budget or Budget()).value(schema, 0)


class _Sampler:
    def __init__(self, root: Mapping[str, object], words: str, budget: Budget) -> None:
        self.root = root
        self.words = words or "text"
        self.budget = budget

    def value(self, schema: object, depth: int) -> object:
        self.budget.spend(_VALUE_WORK)
        if not isinstance(schema, Mapping) or depth > 4 * _DEEPEST:
            return self.words[:40]
        schema = self._resolved(schema)
        if "const" in schema:
            return self._given(schema["const"])
        for source in ("enum", "examples"):
            listed = schema.get(source)
            if isinstance(listed, list) and listed:
                return self._given(listed[0])
        for source in ("anyOf", "oneOf"):
            options = schema.get(source)
            if isinstance(options, list) and options:
                rest = {k: v for k, v in schema.items() if k != source}
                return self.value(self._merged(rest, self._resolved(self._choice(options, depth))), depth + 1)
        kind = schema.get("type") or (
            "object" if "properties" in schema else "array" if "items" in schema else "string"
        )
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null") if depth <= _DEEPEST else "null"
        return self._typed(str(kind), schema, depth)

    def _typed(self, kind: str, schema: Mapping[str, object], depth: int) -> object:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            least = _int(schema.get("minItems"), 0)
            self.budget.spend(max(0, least) * _VALUE_WORK)
            many = least if depth > _DEEPEST else max(least, min(1, _int(schema.get("maxItems"), 1)))
            prefix = schema.get("prefixItems")
            firsts = [self.value(s, depth + 1) for s in prefix] if isinstance(prefix, list) else []
            rest = [self.value(schema.get("items", {}), depth + 1) for _ in range(many - len(firsts))]
            return firsts + rest
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "boolean":
            return True
        return None if kind == "null" else self._string(schema)

    def _object(self, schema: Mapping[str, object], depth: int) -> dict[str, object]:
        properties = schema.get("properties")
        required = schema.get("required")
        self.budget.spend(_size(properties) + _size(required))
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        if not isinstance(properties, Mapping):
            properties = {}
        names = [n for n in properties if depth <= _DEEPEST or n in needed]
        made = {name: self.value(properties[name], depth + 1) for name in names}
        return made | {name: self.words[:40] for name in needed if name not in made}

    def _string(self, schema: Mapping[str, object]) -> str:
        shaped = _FORMATS.get(str(schema.get("format")))
        if shaped:
            return shaped
        longest = min(_int(schema.get("maxLength"), 40), 40_000)
        least = min(_int(schema.get("minLength"), 0), 40_000)
        self.budget.spend(max(least, min(longest, len(self.words))) // 4)
        return self.words[: max(longest, least)].ljust(least, ".")

    def _given(self, value: object) -> object:
        """A value that the schema itself contains."""
        self.budget.spend(len(orjson.dumps(value)) // 4)
        return value

    def _choice(self, options: list[object], depth: int) -> object:
        """The first option; deep inside a recursive schema one that says null, if any."""
        if depth > _DEEPEST:
            self.budget.spend(len(options))
            for option in options:
                if isinstance(option, Mapping) and option.get("type") == "null":
                    return option
        return options[0]

    def _resolved(self, schema: object) -> Mapping[str, object]:
        found: Mapping[str, object] = schema if isinstance(schema, Mapping) else {}
        for _ in range(20):
            target = found.get("$ref")
            if not isinstance(target, str):
                break
            found = self._merged({k: v for k, v in found.items() if k != "$ref"}, self._at(target))
        parts = found.get("allOf")
        if isinstance(parts, list):
            found = {k: v for k, v in found.items() if k != "allOf"}
            for part in parts:
                found = self._merged(found, self._resolved(part))
        return found

    def _merged(self, one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
        self.budget.spend(sum(_size(each) + sum(_size(each.get(name)) for name in _COMBINED) for each in (one, other)))
        return _merged(one, other)

    def _at(self, target: str) -> Mapping[str, object]:
        self.budget.spend(len(target))
        node: object = self.root
        for step in target.removeprefix("#").split("/")[1:]:
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
        return node if isinstance(node, Mapping) else {}


_COMBINED = ("properties", "$defs", "required")


def _size(value: object) -> int:
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else 0


def _merged(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    merged = {**other, **one}
    for name in ("properties", "$defs"):
        if isinstance(one.get(name), Mapping) and isinstance(other.get(name), Mapping):
            merged[name] = {**other[name], **one[name]}  # type: ignore[dict-item]
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        merged["required"] = [*one["required"], *other["required"]]  # type: ignore[misc]
    return merged


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _number(schema: Mapping[str, object], *, whole: bool) -> int | float:
    def bound(name: str) -> float | int | None:
        found = schema.get(name)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None

    step = bound("multipleOf") or 1
    low, above = bound("minimum"), bound("exclusiveMinimum")
    high, below = bound("maximum"), bound("exclusiveMaximum")
    found: float | int = 1
    if low is not None or above is not None:
        found = max(x for x in (low, above + step if above is not None else None) if x is not None)
    elif high is not None and found > high or below is not None and found >= below:
        found = min(x for x in (high, below - step if below is not None else None) if x is not None)
    if bound("multipleOf"):
        found = -(-found // step) * step
    return int(found) if whole else found
