"""Where a generated value goes: a field of an object, a list, a local, or back to the caller.

A template is compiled *into* a destination, so that "absent" is simply not storing anything, at every depth.
"""

from __future__ import annotations

from dataclasses import dataclass

from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Lowered, Site


@dataclass(frozen=True, slots=True)
class Destination:
    """Base. `spreads`: a written list stored here contributes its items."""

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
    """`name = value`; the local holds None before."""

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
    """Where a name will stand for what is stored, the places in the data that it stands for so far: whoever reads
    through the name reads them. None elsewhere."""
    return dest.places if isinstance(dest, ToList | ToLocal) else None


def used(value: Lowered, dest: Destination) -> Lowered:
    """The value, counted as read with everything in it; for a name that is left to those who read the name."""
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
    elif value.atom:
        site.code.add(f"if {value.py} is not None: {dest.put(value.py)}", line)
    else:
        name = site.temp()
        site.code.add(f"if ({name} := {value.py}) is not None: {dest.put(name)}", line)
        site.hold(value, name)


def store_built(site: Site, name: str, dest: Destination, line: int, *, sure: bool) -> None:
    """Store an object or list that was just built: unless it is `sure` to have something in it, only when it has."""
    if sure:
        site.code.add(dest.put(name), line)
    elif isinstance(dest, ToReturn):
        site.code.add(f"return {name} or None", line)
    else:
        site.code.add(f"if {name}: {dest.put(name)}", line)
