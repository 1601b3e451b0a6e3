"""Where a generated value is stored: a field of an object, a list, a local, or the function's result.

A template is compiled *into* a destination, so "absent" simply means that nothing is stored, at every depth.
"""

from __future__ import annotations

from dataclasses import dataclass

from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Lowered, Site


@dataclass(frozen=True, slots=True)
class Destination:
    """Base class. `spreads`: a literal list that is stored here adds its items."""

    spreads = False

    def put(self, value: str) -> str:
        """The Python statement that stores `value`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ToField(Destination):
    """`target[key] = value`."""

    target: str
    key: str

    def put(self, value: str) -> str:
        return f"{self.target}[{self.key!r}] = {value}"


@dataclass(frozen=True, slots=True)
class ToList(Destination):
    """`target.append(value)`."""

    target: str
    places: list[Reads] | None = None
    """See `named_places`."""
    spreads = True

    def put(self, value: str) -> str:
        return f"{self.target}.append({value})"


@dataclass(frozen=True, slots=True)
class ToLocal(Destination):
    """`name = value`; the local is None before."""

    name: str
    places: list[Reads] | None = None
    """See `named_places`."""

    def put(self, value: str) -> str:
        return f"{self.name} = {value}"


@dataclass(frozen=True, slots=True)
class ToReturn(Destination):
    """`return value`."""

    def put(self, value: str) -> str:
        return f"return {value}"


def named_places(dest: Destination) -> list[Reads] | None:
    """For a destination that gets a name: the places in the data that the name stands for so far; reading the name
    reads them. None for other destinations."""
    return dest.places if isinstance(dest, ToList | ToLocal) else None


def used(value: Lowered, dest: Destination) -> Lowered:
    """The value, counted as read with everything in it. For a named value that is decided where the name is used."""
    named = named_places(dest)
    if named is None:
        return value.take()
    named.extend(value.places)
    return value


def store(site: Site, value: Lowered, dest: Destination, line: int) -> None:
    """Store a value if it is present."""
    if value.present or isinstance(dest, ToLocal | ToReturn):
        site.code.add(dest.put(value.py), line)
    elif value.py == "None":
        return
    else:
        bound, name = site.bound(value)
        site.code.add(f"if {bound} is not None: {dest.put(name)}", line)
        site.hold(value, name)


def store_built(site: Site, name: str, dest: Destination, line: int, *, sure: bool) -> None:
    """Store a new object or list: always if it is `sure` to have content, else only if it has some."""
    if sure:
        site.code.add(dest.put(name), line)
    elif isinstance(dest, ToReturn):
        site.code.add(f"return {name} or None", line)
    else:
        site.code.add(f"if {name}: {dest.put(name)}", line)
