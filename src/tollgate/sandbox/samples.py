"""A value that fits a JSON Schema: the sandbox's answer under structured output, and the arguments of its tool calls.

Strings are the user's text shortened to the allowed length; numbers are the smallest allowed. It supports the schemas
of structured output: types, enum, const, properties, required, items, anyOf/oneOf/allOf, $ref, bounds and formats.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def sample(schema: object, words: str) -> object:
    """A value for the schema, made from `words`; without a valid schema an object with the words."""
    return _Sampler(schema if isinstance(schema, Mapping) else {}, words).value(schema, 0)


class _Sampler:
    def __init__(self, root: Mapping[str, object], words: str) -> None:
        self.root = root
        self.words = words or "text"

    def value(self, schema: object, depth: int) -> object:
        if not isinstance(schema, Mapping) or depth > 4 * _DEEPEST:
            return self.words[:40]
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        for source in ("enum", "examples"):
            listed = schema.get(source)
            if isinstance(listed, list) and listed:
                return listed[0]
        for source in ("anyOf", "oneOf"):
            options = schema.get(source)
            if isinstance(options, list) and options:
                rest = {k: v for k, v in schema.items() if k != source}
                return self.value(_merged(rest, self._resolved(self._choice(options, depth))), depth + 1)
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
        needed = set(required) if isinstance(required, list) else set()
        if not isinstance(properties, Mapping):
            properties = {}
        names = [n for n in properties if depth <= _DEEPEST or n in needed]
        made = {name: self.value(properties[name], depth + 1) for name in names}
        return made | {str(name): self.words[:40] for name in needed if name not in made}

    def _string(self, schema: Mapping[str, object]) -> str:
        shaped = _FORMATS.get(str(schema.get("format")))
        if shaped:
            return shaped
        longest = min(_int(schema.get("maxLength"), 40), 40_000)
        least = min(_int(schema.get("minLength"), 0), 40_000)
        return self.words[: max(longest, least)].ljust(least, ".")

    def _choice(self, options: list[object], depth: int) -> object:
        """The first option; deep inside a recursive schema one that says null, if any."""
        if depth > _DEEPEST:
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
            found = _merged({k: v for k, v in found.items() if k != "$ref"}, self._at(target))
        parts = found.get("allOf")
        if isinstance(parts, list):
            found = {k: v for k, v in found.items() if k != "allOf"}
            for part in parts:
                found = _merged(found, self._resolved(part))
        return found

    def _at(self, target: str) -> Mapping[str, object]:
        node: object = self.root
        for step in target.removeprefix("#").split("/")[1:]:
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
        return node if isinstance(node, Mapping) else {}


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
