"""`$lost`: leave it out, and say so."""

from __future__ import annotations

from tollgate.config.load import Map, Scalar
from tollgate.mapping.destinations import Destination
from tollgate.mapping.scope import Site
from tollgate.mapping.text import lower_words


def emit(site: Site, node: Map, dest: Destination) -> None:
    """Nothing is stored; the words go to the loss report."""
    entry = node.entries["$lost"]
    if not isinstance(entry, Scalar):
        site.unit.mistake(entry, "`$lost` takes the words for the loss report")
        return
    words = lower_words(site, entry)
    site.code.add(f"C.lose({words.py})", node.keys["$lost"].line)
