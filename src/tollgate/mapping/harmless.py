"""What may stay unread without being reported as lost, because nothing changes without it.

Some of it applies to every format. A mapping file lists the rest in `request.harmless`: places (`input[].id`), or a
place with the one value for which it applies (`min_p: 0`): a client that sends a default value loses nothing. These
values also apply to what the edits of a provider remove from requests in that format.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tollgate.config.load import List, Map, Node, Scalar, entries_of, lookup, plain
from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Unit
from tollgate.mapping.values import same

IGNORED = frozenset({"model", "stream"})
"""Top-level fields that every target replaces on purpose."""
IGNORED_IN_HUB = IGNORED | {"store"}
"""The same of a hub request, which has `store: false` at most: only targets that store requests read it."""
ENVELOPE = frozenset({"id", "model", "created", "stop", "usage", "service_tier", "system_fingerprint"})
"""What every answer has about itself: replaced, or counted elsewhere, and never content that a caller would miss."""
MARKERS = frozenset({"type", "kind", "object"})
"""Fields whose text only says what kind of object it is; the content is in the fields beside them."""
NO_LOSS: tuple[object, ...] = (None, [], {}, "")
"""Values without content, which are never reported as lost."""
MARKS = ("parts[].apart",)
"""Fields of an answer in the hub that only say how its parts belong together: most formats have no use for them."""
KEY = "harmless"
"""The key of `request:`."""
DIRECTIONS = ("to_hub", "from_hub")
_PLACE = re.compile(r"[A-Za-z_]\w*(\[\])?(\.[A-Za-z_]\w*(\[\])?)*\Z")

HarmlessValues = Mapping[str, tuple[object, ...]]
"""Places with the values that have no effect there."""


def ignored_by(section: str) -> frozenset[str]:
    """The top-level fields of its document that a section (`request.to_hub`) need not read."""
    if section.startswith("response"):
        return ENVELOPE
    return IGNORED_IN_HUB if section == "request.from_hub" else IGNORED


def is_empty_value(key: str, value: object) -> bool:
    """Whether a field with this value is never reported as lost."""
    return value in NO_LOSS or key in MARKERS and type(value) is str


def read_harmless(unit: Unit, root: Map, reads: dict[str, Reads]) -> dict[str, HarmlessValues]:
    """Count places without a value as read in `reads`, by section; returns those with a value, by section."""
    takes = f"`{KEY}` takes to_hub and from_hub, each with a list of places"
    lists = unit.entries(lookup(root, "request", KEY), DIRECTIONS, takes, "{to_hub: ['input[].id']}")
    return {
        f"request.{direction}": _read_list(unit, node, reads.setdefault(f"request.{direction}", Reads()))
        for direction, node in lists
    }


def read_marks(reads: dict[str, Reads]) -> None:
    """Count `MARKS` as read."""
    if (answer := reads.get("response.from_hub")) is not None:
        for place in MARKS:
            _mark(answer, place)


def _read_list(unit: Unit, node: Node, read: Reads) -> HarmlessValues:
    values: dict[str, tuple[object, ...]] = {}
    if not isinstance(node, List):
        unit.mistake(node, "a list of places is wanted here", "['input[].id']")
        return values
    for entry in node.items:
        if isinstance(entry, Scalar) and isinstance(entry.value, str) and _PLACE.match(entry.value):
            _mark(read, entry.value)
            continue
        found = entries_of(entry)
        if not found:
            unit.mistake(entry, "a place is field names with dots, [] after a list", "input[].id")
        for place, value in found.items():
            if "[]" in place or not _PLACE.match(place):
                unit.mistake(entry, "a place with a value is field names with dots, outside of lists", "{min_p: 0}")
            values[place] = (*values.get(place, ()), plain(value, floats=True))
    return values


def _mark(place: Reads, path: str) -> None:
    for step in path.split("."):
        place = place.at(step.removesuffix("[]"))
        if step.endswith("[]"):
            place = place.each()
    place.whole = True


def is_blank(value: object) -> bool:
    """Whether a value says nothing: some client libraries send an object with a null for each setting. An empty object
    below a name is something: `{any: {}}` is a choice."""
    return value in NO_LOSS or type(value) is dict and all(item != {} and is_blank(item) for item in value.values())


def says_nothing(values: HarmlessValues, path: str, document: object, spared: Collection[str] = ()) -> bool:
    """Whether what `document` has at `path` is blank or harmless, or an object in which every field is. What is at the
    `spared` paths is harmless, too."""
    found = _at(path, document)
    return found is not None and _says_nothing(values, path, found, spared)


def _says_nothing(values: HarmlessValues, path: str, found: object, spared: Collection[str]) -> bool:
    if path in spared or is_blank(found) or any(same(found, value) for value in values.get(path, ())):
        return True
    return type(found) is dict and all(
        item != {} and _says_nothing(values, f"{path}.{key}", item, spared) for key, item in found.items()
    )


def _at(path: str, document: object) -> object:
    """What is at a path as the loss list has it; None for one through a list."""
    for step in path.split("."):
        document = document.get(step) if type(document) is dict else None
    return document
