"""`$lost`: leave a value out, and report the loss."""

from __future__ import annotations

from tollgate.config.load import Map, Scalar
from tollgate.mapping.destinations import Destination
from tollgate.mapping.harmless import MARKERS
from tollgate.mapping.path_code import reads_of
from tollgate.mapping.paths import Path, Step, parse_path
from tollgate.mapping.reads import take
from tollgate.mapping.scalars import lower_words, paths_in
from tollgate.mapping.scope import Site


def emit(site: Site, node: Map, dest: Destination) -> None:
    """Stores nothing; the text goes to the loss list."""
    entry = node.entries["$lost"]
    if not isinstance(entry, Scalar):
        site.unit.mistake(entry, "`$lost` takes the words for the loss report")
        return
    words = lower_words(site, entry)
    _account_for(site, entry)
    site.code.add(f"C.lose({words.py})", node.keys["$lost"].line)


def _account_for(site: Site, entry: Scalar) -> None:
    """Count what a `$lost` reports as read, so that it is not reported again field by field; values beside it still
    are.

    The text reports what the nearest condition, case or `$each` is about, and what its holes read: a hole that reads an
    object's kind reports the whole object.
    """
    take(site.scope.lost)
    for text in paths_in(entry):
        path = parse_path(text)
        var = site.scope.names.get(path.base)
        if var is not None:
            take(reads_of(var.places, _spoken_for(path)))


def _spoken_for(path: Path) -> tuple[Step, ...]:
    """`$t.raw.type` reports `$t.raw`, `$t.name` the name alone."""
    whole = path.steps and path.steps[-1] in MARKERS and (path.base or path.steps[1:])
    return path.steps[:-1] if whole else path.steps
