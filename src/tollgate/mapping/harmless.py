"""What may go unread without being named as lost, because nothing changes without it.

Some of it holds for every format. The rest a mapping file lists in `request.harmless`: places (`input[].id`), or a
place with the one value for which this is so (`min_p: 0`): a client that says what holds anyway loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tollgate.config.load import List, Map, Node, Scalar, entries_of, lookup, plain
from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Unit
from tollgate.mapping.values import same

IGNORED = frozenset({"model", "stream"})
"""Top-level fields every target replaces on purpose; naming them would be noise."""
ENVELOPE = frozenset({"id", "model", "created", "stop", "usage", "service_tier", "system_fingerprint"})
"""What every answer carries about itself: replaced, or counted elsewhere, never content that a caller would miss."""
MARKERS = frozenset({"type", "kind", "object"})
"""Fields whose text only says what the object is; the fields beside them say what it holds."""
NO_LOSS: tuple[object, ...] = (None, [], {}, "")
"""Values that say nothing: nobody misses them."""
KEY = "harmless"
"""Key of `request:`."""
DIRECTIONS = ("to_hub", "from_hub")
_PLACE = re.compile(r"[A-Za-z_]\w*(\[\])?(\.[A-Za-z_]\w*(\[\])?)*\Z")

Idle = Mapping[str, tuple[object, ...]]
"""Places with the values that say nothing."""


def says_nothing(key: str, value: object) -> bool:
    """Whether nobody misses a field with this value."""
    return value in NO_LOSS or key in MARKERS and type(value) is str


def read_harmless(unit: Unit, root: Map, reads: dict[str, Reads]) -> dict[str, Idle]:
    """Note places without a value as read in `reads`, by section; gives those with one, by section."""
    listed = lookup(root, "request", KEY)
    if listed is None:
        return {}
    if not isinstance(listed, Map):
        unit.mistake(
            listed, f"`{KEY}` takes to_hub and from_hub, each with a list of places", "{to_hub: ['input[].id']}"
        )
        return {}
    unit.check_keys(listed, DIRECTIONS)
    return {
        f"request.{direction}": _read_list(unit, node, reads.setdefault(f"request.{direction}", Reads()))
        for direction in DIRECTIONS
        if (node := listed.get(direction)) is not None
    }


def _read_list(unit: Unit, node: Node, read: Reads) -> Idle:
    idle: dict[str, tuple[object, ...]] = {}
    if not isinstance(node, List):
        unit.mistake(node, "a list of places is wanted here", "['input[].id']")
        return idle
    for entry in node.items:
        if isinstance(entry, Scalar) and isinstance(entry.value, str) and _PLACE.match(entry.value):
            _mark(read, entry.value)
            continue
        values = entries_of(entry)
        if not values:
            unit.mistake(entry, "a place is field names with dots, [] after a list", "input[].id")
        for place, value in values.items():
            if "[]" in place or not _PLACE.match(place):
                unit.mistake(entry, "a place with a value is field names with dots, outside of lists", "{min_p: 0}")
            idle[place] = (*idle.get(place, ()), plain(value, floats=True))
    return idle


def _mark(place: Reads, path: str) -> None:
    for step in path.split("."):
        place = place.at(step.removesuffix("[]"))
        if step.endswith("[]"):
            place = place.each()
    place.whole = True


def is_idle(idle: Idle, path: str, document: object) -> bool:
    """Whether `document` says at `path` what `idle` names for that place. `path` is as the loss list has it."""
    said = document
    for step in path.split("."):
        said = said.get(step) if type(said) is dict else None
    return any(same(said, value) for value in idle.get(path, ()))
