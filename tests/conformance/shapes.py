"""Compares a JSON value with the types that the specification gives its fields."""

from __future__ import annotations

from typing import Any


def shape(value: Any, wanted: Any, place: str = "$") -> list[str]:
    """Every difference between a value and the wanted types."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict) or set(value) != set(wanted):
            return [f"{place}: {sorted(value) if isinstance(value, dict) else value!r}, wanted {sorted(wanted)}"]
        return [each for name in wanted for each in shape(value[name], wanted[name], f"{place}.{name}")]
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return [f"{place}: {value!r}, wanted a list"]
        return [each for at, item in enumerate(value) for each in shape(item, wanted[0], f"{place}[{at}]")]
    return [] if isinstance(value, wanted) and not isinstance(value, bool) else [f"{place}: {value!r}, wanted {wanted}"]
