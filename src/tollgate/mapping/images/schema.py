"""Validates the `input` of a job by its model's `input_schema`: defaults first, then every rule; errors have their
path.

The schema itself was validated when its file was read (`config/json_schema.py`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tollgate.errors import BadRequest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_SHOWN = 120
_DEEPEST = 8


class InputSchema:
    """One model's compiled schema. `document` is what `GET /v1/images/models` shows."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.document: dict[str, Any] = plain_numbers(schema)

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of the fields that it describes."""
        return frozenset(self.document.get("properties", ()))

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from jsonschema import Draft202012Validator  # 60 ms to import: the first image job pays, not the start

        return Draft202012Validator(self.document)

    def admit(self, job_input: object) -> dict[str, Any]:
        """The input with defaults filled in. Raises `BadRequest`: `input.size: "9x9" is not one of "1:1", "16:9"`."""
        if not isinstance(job_input, dict):
            raise BadRequest("input is required and must be an object", "input")
        filled = _with_defaults(job_input, self.document, 0)
        from jsonschema.exceptions import best_match

        error = best_match(self._validator.iter_errors(filled))
        if error is not None:
            where = _path(error)
            raise BadRequest(f"{where}: {_reason(error)}", where)
        return filled

    def filled(self, job_input: dict[str, Any]) -> dict[str, Any]:
        """An input that was admitted before, with defaults. It is not validated again, because the file may have
        changed since."""
        return _with_defaults(job_input, self.document, 0)

    def admits(self, job_input: object) -> bool:
        """Whether an input is valid: decides which other routes of the same model may serve it."""
        return isinstance(job_input, dict) and self._validator.is_valid(_with_defaults(job_input, self.document, 0))


def plain_numbers(value: Any) -> Any:
    """A configuration value for JSON: decimals of the file as int or float, everything else as it is."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, Mapping):
        return {str(key): plain_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_numbers(item) for item in value]
    return value


def _with_defaults(value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A copy of `value` with the defaults of absent properties, also inside objects that are present."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or depth > _DEEPEST:
        return dict(value)
    filled = dict(value)
    for name, rule in properties.items():
        if not isinstance(rule, Mapping):
            continue
        if name not in filled:
            if "default" in rule:
                filled[name] = copy.deepcopy(rule["default"])
        elif isinstance(filled[name], dict):
            filled[name] = _with_defaults(filled[name], rule, depth + 1)
    return filled


def _path(error: ValidationError) -> str:
    """Where the mistake is: input.images[0].url; a missing property is named itself."""
    path = "input"
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    if error.validator == "required" and isinstance(error.instance, dict):
        missing = next((name for name in error.validator_value if name not in error.instance), None)
        if missing is not None:
            path += f".{missing}"
    return path


_REASONS = {
    "required": "is required",
    "type": "{value} is not of type {rule}",
    "enum": "{value} is not one of {rule}",
    "const": "{value} is not {rule}",
    "minimum": "{value} is less than the minimum of {rule}",
    "maximum": "{value} is greater than the maximum of {rule}",
    "multipleOf": "{value} is not a multiple of {rule}",
    "pattern": "{value} does not match {rule}",
    "maxLength": "is {size} characters long, the most is {rule}",
    "minLength": "is {size} characters long, the least is {rule}",
    "maxItems": "has {size} entries, the most is {rule}",
    "minItems": "has {size} entries, the least is {rule}",
}
"""By keyword of the schema. `rule` is what the schema wants, `size` the length of the value."""


def _reason(error: ValidationError) -> str:
    keyword, value, rule = error.validator, error.instance, error.validator_value
    if keyword == "additionalProperties":
        extra = sorted(name for name in value if name not in error.schema.get("properties", {}))
        return f"has unknown properties: {', '.join(extra)[:_SHOWN]}"
    if keyword in ("oneOf", "anyOf") and (names := _alternatives(rule)):
        return f"wants {'exactly' if keyword == 'oneOf' else 'at least'} one of {', '.join(names)}"
    if keyword not in _REASONS:
        return error.message if len(error.message) <= 2 * _SHOWN else f"does not satisfy {keyword}"
    if keyword == "type":
        rule = " or ".join(rule) if isinstance(rule, list) else rule
    elif keyword in ("enum", "const"):
        rule = ", ".join(map(_shown, rule if keyword == "enum" else [rule]))
    size = len(value) if isinstance(value, (str, list)) else 0
    return _REASONS[keyword].format(value=_shown(value), rule=rule, size=size)


def _alternatives(rules: list[Any]) -> list[str]:
    """The properties of which one is required, if the alternatives say nothing else: `[{required: [a]}, {required:
    [b]}]`."""
    if not all(isinstance(rule, dict) and rule.keys() == {"required"} for rule in rules):
        return []
    return [" with ".join(rule["required"]) for rule in rules]


def _shown(value: object) -> str:
    """A value as short JSON: a caller may have sent a whole picture."""
    if isinstance(value, str) and len(value) > _SHOWN:
        value = value[:_SHOWN] + "..."
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 2 * _SHOWN else shown[: 2 * _SHOWN] + "..."
