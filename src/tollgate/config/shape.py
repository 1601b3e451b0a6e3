"""Checks the shape of a document against its JSON Schema and words the mistakes.

There is one problem per mistake, at its node: `found X, wanted Y (did you mean ...)`. Where a schema has alternatives,
only the one that fits the value's type is reported. What is wrong is removed from the tree that is returned, so that
the rest of the file can still be checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from tollgate.config.accept import Test, compile_accept, compiled_pattern
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar, find, plain
from tollgate.config.provider_schema import models_schema, provider_schema, shared_schema
from tollgate.wording import clipped, did_you_mean, nearest_word, path_text

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

Kind = Literal["gateway", "provider", "models", "shared"]
Path = tuple[str | int, ...]

_KINDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
SCHEMAS = {"gateway": gateway_schema, "provider": provider_schema, "models": models_schema, "shared": shared_schema}
_MAX_SHOWN = 60
_MAX_LISTED = 12
"""If there are more known keys, they are not all listed beside the suggested one."""
_ELSEWHERE = {
    "input": "prompt",
    "output": "completion",
    "input_price": "price",
    "output_price": "price",
    "pricing": "price",
    "tiers": "volumes",
    "vision": "modalities",
    "cached_input": "input_cache_read",
    "cached": "input_cache_read",
    "kind": "type",
    "port": "bind",
    "max_tokens": "max_output",
    "max_input_tokens": "context",
    "base_url": "url",
    "api_key": "headers",
    "policies_from": "shared",
}
"""Names that price lists, other gateways and earlier versions use, where the nearest spelling would be none of our
keys, or a wrong one."""
_OTHERWISE = {
    "retry": "later is another route now, and the same one later on; next is another route only",
    "bearer": 'a key that stays the same is a header: Authorization: "Bearer {{ $secret.NAME }}"',
    "api_key": 'a key that stays the same is a header: x-api-key: "{{ $secret.NAME }}"',
    "basic": 'a header says it: Authorization: "Basic {{ $secret.NAME }}"',
}
"""Hints for values where a few words are allowed and another one is commonly written."""


def check_shape(document: Document, kind: Kind) -> tuple[list[Problem], Map | None]:
    """All problems of shape, and the tree without what is wrong (None if nothing is left to check)."""
    root = document.root
    if not isinstance(root, Map):
        parts = "parts of a provider file"
        what = {"gateway": "settings", "provider": "a provider", "models": "models", "shared": parts}[kind]
        return [document.problem(root, f"found {found(root)}, wanted a map: {what}")], None
    if _accepts(kind)(root):
        return [], root
    problems: list[Problem] = []
    cut: set[Path] = set()
    for error in _validator(kind).iter_errors(plain(root)):
        for leaf in _leaves(error):
            for problem, path in _problems(document, root, leaf):
                problems.append(problem)
                cut.add(path)
    cut.discard(())  # a key that is missing at the top does not stop the rest from being checked
    problems = list(dict.fromkeys(problems))  # jsonschema reports each missing key, and each report lists all
    return problems, _without(root, cut, ())  # type: ignore[return-value]


def found(node: Node) -> str:
    """The value of a node for messages: `"yes"`, 7, true, nothing, a map, a list."""
    if isinstance(node, Map):
        return "a map"
    if isinstance(node, List):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, str):
        return f'"{clipped(node.value, _MAX_SHOWN)}"'.replace("\n", " ")
    return node.text


@cache
def _accepts(kind: Kind) -> Test:
    return compile_accept(SCHEMAS[kind]())


@cache
def _validator(kind: Kind) -> Draft202012Validator:
    # 60 ms to import, wanted only when something is wrong
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(_validator: object, wanted: str, value: object, _schema: object) -> Iterator[ValidationError]:
        if isinstance(value, str) and not compiled_pattern(wanted).search(value):
            yield ValidationError("another text")

    return cast("Draft202012Validator", extend(Draft202012Validator, {"pattern": pattern})(SCHEMAS[kind]()))


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """The error itself, or for alternatives the errors of the one that fits the value's type."""
    if error.validator != "anyOf":
        yield error
        return
    branches: dict[int, list[ValidationError]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    for inners in branches.values():
        if not any(inner.validator == "type" and not inner.path for inner in inners):
            for inner in inners:
                inner.parent = error
                yield from _leaves(inner)
            return
    yield error


def _problems(document: Document, root: Map, error: ValidationError) -> Iterator[tuple[Problem, Path]]:
    """Problems in our words, each with the path to remove from the tree."""
    path: Path = tuple(error.absolute_path)
    node = find(root, path)
    schema = cast("dict[str, Any]", error.schema)
    where = path_text(path)

    def problem(at: Node | Mark, message: str, hint: str = "") -> Problem:
        return document.problem(at, message, path=where, hint=hint)

    match error.validator:
        case "additionalProperties":
            known = list(schema.get("properties", {}))
            for key, mark in node.keys.items() if isinstance(node, Map) else ():
                if key not in known:
                    hint = _suggestion(key, known)
                    wanted = _choice(known, _MAX_LISTED if hint else len(known))
                    yield problem(mark, f"found unknown key `{key}`, wanted {wanted}", hint), (*path, key)
        case "required":
            known = list(schema.get("properties", {}))
            closed = schema.get("additionalProperties") is False  # else unknown keys are allowed
            misspelt = {_intended(key, known) for key in error.instance if closed and key not in known}
            for key in schema["required"]:
                if key not in error.instance and key not in misspelt:  # a misspelt key is reported as unknown
                    wanted = _missing(schema.get("properties", {}).get(key, {}))
                    yield problem(node, f"found no `{key}`, wanted {wanted}"), path
        case "propertyNames" | "pattern" if "propertyNames" in (error.absolute_schema_path or ()):
            key = str(error.instance)
            mark = node.keys.get(key, node.mark) if isinstance(node, Map) else node.mark
            wanted = schema.get("wanted", "another name")
            shown = key[:_MAX_SHOWN].replace("\n", " ")
            yield problem(mark, f'found "{shown}", wanted {wanted}', hint=_foreign(key)), (*path, key)
        case "minItems" | "minProperties":
            kind = "list" if isinstance(node, List) else "map"
            yield problem(node, f"found an empty {kind}, wanted at least one entry"), path
        case "minimum" | "maximum" if schema.get("type") == "integer" and isinstance(error.instance, Decimal):
            pass  # 1e9 is not an integer, which is reported
        case "type" if "enum" in schema:
            pass  # reported by "enum", which lists the words
        case "uniqueItems":
            yield problem(node, "found an entry twice, wanted each once"), path
        case _:
            secret = schema.get("hidden") and isinstance(node, Scalar) and isinstance(node.value, str)
            shown = "something else" if secret else found(node)
            made = problem(node, f"found {shown}, wanted {_expected(error, schema)}", _hint(node, error, schema))
            # a password that is not in the place for one, and therefore not masked
            if secret and isinstance(node, Scalar) and "@" in node.text and node.text in made.line_text:
                made = replace(made, line_text="")
            yield made, path


def _expected(error: ValidationError, schema: dict[str, Any]) -> str:
    if error.validator == "enum":
        return _choice([f'"{word}"' for word in schema["enum"]])
    if "wanted" in schema and error.validator not in ("minimum", "maximum"):
        return str(schema["wanted"])
    low, high = schema.get("minimum"), schema.get("maximum")
    kinds = schema.get("type")
    if error.validator == "anyOf":
        kinds = [kind for branch in schema["anyOf"] for kind in _as_list(branch.get("type", "object"))]
    if kinds == "integer" and (low is not None or high is not None):
        if low is not None and high is not None:
            return f"a whole number from {low} to {high}"
        return f"a whole number of at least {low}" if low is not None else f"a whole number of at most {high}"
    if error.validator == "maximum":
        return f"{schema.get('wanted', 'a number')} and at most {high}"
    if error.validator == "minLength":
        return "some text"
    listed = dict.fromkeys(kind for kind in _as_list(kinds) if kind != "null")
    return _choice([_KINDS[kind] for kind in listed if not (kind == "integer" and "number" in listed)])


def _missing(schema: dict[str, Any]) -> str:
    """What a missing key should hold."""
    if "enum" in schema:
        return _choice([f'"{word}"' for word in schema["enum"]])
    about = str(schema.get("description", "one")).split(".")[0]
    return str(schema.get("wanted") or about[:1].lower() + about[1:])


def _hint(node: Node, error: ValidationError, schema: dict[str, Any]) -> str:
    """How to fix it, if the intention is clear."""
    kinds = _as_list(schema.get("type", ()))
    if error.validator == "enum" and isinstance(node, Scalar):
        known = [str(word) for word in schema["enum"]]
        return did_you_mean(str(node.value), known) or _OTHERWISE.get(node.text.lower(), "")
    if error.validator == "pattern":
        return _foreign(str(error.instance))
    if error.validator != "type":
        return ""
    if isinstance(node, Scalar):
        return _cure(node, kinds, str(schema.get("wanted")), _as_list(schema.get("items", {}).get("type", "string")))
    if kinds == ["array"]:
        return "put a dash before each entry"
    return "keys with values, without dashes" if kinds[:1] == ["object"] else ""


def _foreign(text: str) -> str:
    """A hint at a character that cannot be seen, or looks like an ASCII one: a Cyrillic a."""
    odd = next((character for character in text if not character.isascii()), "")
    return f"it has the character U+{ord(odd):04X}" if odd else ""


def _cure(node: Scalar, kinds: list[str], wanted: str, items: list[str]) -> str:
    """How to write a value so that it has one of these types; a list has items of the types `items`."""
    value, text = node.value, node.text
    if kinds == ["boolean"] and isinstance(value, str):
        word = _TRUTH.get(value.lower())
        return f"did you mean `{word}`?" if word else ""
    if kinds == ["string"] and isinstance(value, (int, Decimal)):
        return f'put quotes around it: "{text}"'
    if isinstance(value, str) and node.quoted and {"integer", "number"} & set(kinds) and _DIGITS.fullmatch(value):
        return f"write {value} without quotes"
    if "seconds" in wanted and (span := _SPAN.fullmatch(text.strip())):
        return f"write {int(span[1]) * _SECONDS[span[2]]}"
    if "bytes" in wanted and (size := _SIZE.fullmatch(text.strip())):
        return f"write {int(size[1]) * 1024 ** ('kmg'.index(size[2].lower()) + 1)}"
    if "Unix seconds" in wanted and _DAY.fullmatch(text):
        return f"write {int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())}"
    if {"integer", "number"} & set(kinds) and "string" not in kinds and (written := _written_out(text)):
        return f"write {written}"
    if kinds == ["array"] and isinstance(value, str) and "string" not in items:
        return ""
    if kinds == ["array"] and value is not None:
        return f"write [{text}]" if len(text) < _MAX_SHOWN else "write a list"
    return ""


_TRUTH = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_DIGITS = re.compile(r"\d+\.?\d*|\.\d+")
_SPAN = re.compile(r"([0-9]{1,6})\s*(s|sec|m|min|h)")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
"""Time spans as people write them, where seconds are expected: 15m -> 900."""


_DAY = re.compile(r"(?:19[7-9]|20[0-9])[0-9]-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])")
_SIZE = re.compile(r"([0-9]{1,6})\s*([kKmMgG])(i?[bB])?")
"""Sizes as people write them, where bytes are expected: 32 MiB -> 33554432."""
_POWER = re.compile(r"([1-9][0-9]{0,8})[eE]\+?0*([0-9])")
"""An integer in scientific notation: 1e6."""


def _written_out(text: str) -> str:
    """An integer in digits alone: 128k -> 128000, 010 -> 10, 1e3 -> 1000; "" if it is none."""
    figures, factor = text.replace("_", "").replace(",", ""), 1
    if power := _POWER.fullmatch(figures):
        return power[1] + "0" * int(power[2])
    if figures[-1:] in ("k", "K", "M"):
        figures, factor = figures[:-1], 1_000_000 if figures[-1] == "M" else 1000
    return str(int(figures) * factor) if figures.isascii() and figures.isdigit() else ""


def _intended(key: str, known: list[str]) -> str:
    """The known key that was probably meant by an unknown one; "" if there is none."""
    word = _ELSEWHERE.get(key, "")
    return word if word in known else nearest_word(key, known)


def _suggestion(key: str, known: list[str]) -> str:
    word = _intended(key, known)
    return f"did you mean `{word}`?" if word else ""


def _choice(words: list[str], most: int = _MAX_LISTED) -> str:
    if len(words) > most:
        return "a known one"
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _without(node: Node, cut: set[Path], path: Path) -> Node:
    if not cut:
        return node
    if isinstance(node, Map):
        kept = {
            key: _without(child, cut, (*path, key)) for key, child in node.entries.items() if (*path, key) not in cut
        }
        keys = {key: mark for key, mark in node.keys.items() if key in kept}
        return replace(node, entries=kept, keys=keys, incomplete=len(kept) < len(node.entries))
    if isinstance(node, List):
        # An empty item takes its place, so that the indexes of the others stay the same in messages.
        return replace(
            node,
            items=tuple(
                Scalar(None, "", False, child.mark) if (*path, i) in cut else _without(child, cut, (*path, i))
                for i, child in enumerate(node.items)
            ),
        )
    return node
