"""`$lost`: leave it out, and say so."""

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
    """Nothing is stored; the words go to the loss report."""
    entry = node.entries["$lost"]
    if not isinstance(entry, Scalar):
        site.unit.mistake(entry, "`$lost` takes the words for the loss report")
        return
    words = lower_words(site, entry)
    _account_for(site, entry)
    site.code.add(f"C.lose({words.py})", node.keys["$lost"].line)


def _account_for(site: Site, entry: Scalar) -> None:
    """What is said to be lost is not reported again field by field; what stands beside it still is.

    The words speak for what the nearest condition, case or `$each` is about, and for what their holes read: a hole that
    reads an object's kind speaks for the whole object.
    """
    take(site.scope.about)
    for text in paths_in(entry):
        path = parse_path(text)
        var = site.scope.names.get(path.base)
        if var is not None:
            take(reads_of(var.places, _spoken_for(path)))


def _spoken_for(path: Path) -> tuple[Step, ...]:
    """`$t.raw.type` speaks for `$t.raw`, `$t.name` for the name alone."""
    whole = path.steps and path.steps[-1] in MARKERS and (path.base or path.steps[1:])
    return path.steps[:-1] if whole else path.steps
