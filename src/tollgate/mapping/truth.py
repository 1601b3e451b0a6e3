"""Python for "this value counts as true": absent, false, "", [] and {} do not, 0 does."""

from __future__ import annotations

from tollgate.mapping.scope import Lowered, Site

_AS_IN_PYTHON = ("bool", "text", "list", "object")
"""Kinds of values that count as true here where they do in Python."""


def truth(site: Site, value: Lowered) -> str:
    """The Python condition for "this value counts as true"."""
    return value.py if value.kind in _AS_IN_PYTHON else true_of(site, value)[0]


def true_of(site: Site, value: Lowered) -> tuple[str, str]:
    """(condition, name of the value inside it), for a value that is used again when it is true.

    Most values are absent, so that is asked first.
    """
    first, name = site.bound(value)
    if value.kind in _AS_IN_PYTHON:
        return first, name
    if value.present:
        return f"({first} or {name} == 0 and {name} is not False)", name
    return f"({first} is not None and ({name} or {name} == 0 and {name} is not False))", name
