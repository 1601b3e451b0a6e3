"""Where the code of an edit is written: the value it works on, and the functions that generated edits call at run
time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tollgate.mapping.reads import Places
from tollgate.mapping.scope import Site
from tollgate.mapping.values import text_of


def label_of(value: Any) -> str | None:
    """The label in `values:` of a value that is not text: a number, true or false; None for any other."""
    return text_of(value) if type(value) in (int, float, bool) else None


def everywhere(value: Any, change: Callable[[dict[str, Any], Any, Any], Any], document: Any, context: Any) -> Any:
    """`value` with `change` applied to every object in it, innermost first; the same object if nothing changes."""
    is_object = type(value) is dict
    if not is_object and type(value) is not list:
        return value
    made = value
    for key, item in value.items() if is_object else enumerate(value):
        new = everywhere(item, change, document, context)
        if new is not item:
            if made is value:
                made = value.copy()
            made[key] = new
    return change(made, document, context) if is_object else made


EDIT_RUNTIME: dict[str, object] = {"label_of": label_of, "everywhere": everywhere}
"""The names that generated edits may use, besides those of all generated code."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where code is written for the edit at `line`; `document` is the local that holds `$`."""

    site: Site
    document: str
    line: int

    def block(self, header: str) -> AbstractContextManager[None]:
        """A block in the function, attributed to the edit's line."""
        return self.site.code.block(header, self.line)

    def add(self, text: str) -> None:
        """A statement in the function, attributed to the edit's line."""
        self.site.code.add(text, self.line)

    def temp(self, prefix: str) -> str:
        """A new local name."""
        return self.site.temp(prefix)


@dataclass(frozen=True, slots=True)
class Slot:
    """One value in the document: the locals that hold it and its container, and functions that write the statements
    which change it there."""

    place: Place
    value: str
    parent: str
    put: Callable[[str], None]
    """Writes the statement that stores a Python expression in its place."""
    take_out: Callable[[], None] | None = None
    """Writes the statement that removes it; None for an item of a list and for the document."""
    parent_places: Places = ()
    """Where in the document its container is, for the losses."""
