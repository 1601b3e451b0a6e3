"""`$lost`: leave it out, and say so."""

from __future__ import annotations

from tollgate.config.load import Map, Scalar
from tollgate.mapping.destinations import Destination
from tollgate.mapping.paths import parse_path
from tollgate.mapping.reads import take
from tollgate.mapping.scope import Site
from tollgate.mapping.text import lower_words, paths_in


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
    """What is said to be lost is not reported again field by field: the value the words are about counts as read.

    That is what the holes read from; without holes, what the nearest enclosing name stands for.
    """
    named = {parse_path(path).base for path in paths_in(entry)}
    names = [name for name, var in site.scope.names.items() if name and var.places]
    for name in named & set(names) or names[-1:]:
        take(site.scope.names[name].places)
