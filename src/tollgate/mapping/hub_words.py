"""Finds fields and words of the hub that a mapping misspells: those it writes (`hub_writes.py`) or reads
(`hub_reads.py`) and the hub does not have.

The compiler cannot see this in a single path or template, because any field is possible. These are warnings, because a
hub value may also carry fields of a mapping's own. If a value can be at several places, a field is unknown only if none
of them has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tollgate.config.load import Map, entries_of, lookup
from tollgate.mapping.answer_slips import OF_PARTS, operations_in
from tollgate.mapping.hub_reads import check_compared, check_filtered, check_reads
from tollgate.mapping.hub_shapes import Shape, shape
from tollgate.mapping.hub_writes import HubWrites
from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Unit


def check_hub_words(unit: Unit, root: Map, reads: Mapping[str, Reads], family: str) -> None:
    """Warn of every hub field that a mapping file writes or reads and the hub does not have."""
    kind = f"{family}_" if family else ""
    shapes = {"request": shape(f"{kind}request"), "response": shape(f"{kind}response"), "error": shape("error")}
    writes = HubWrites(unit, _kinds_read(unit, root))
    places: dict[Reads, set[Shape]] = defaultdict(set)
    for section, of in shapes.items():
        if (node := lookup(root, section, "to_hub")) is not None:
            writes.visit(node, of)
        if (node := lookup(root, section, "from_hub")) is not None:
            name = f"{section}.from_hub"
            for place, found in check_reads(unit, root, name, node, reads[name], of).items():
                places[place] |= found
    check_compared(unit, root, places)
    check_filtered(unit, places)
    stream = root.get("stream")
    if isinstance(stream, Map) and "to_hub" in stream.entries:
        _check_rules(stream, writes)
    writes.warn_of_unknown()
    writes.warn_of_uncounted(("input",) if family else ("input", "output"))


def _check_rules(stream: Map, writes: HubWrites) -> None:
    """Check what the rules of a stream write into the hub."""
    answer, part = shape("response").fields, shape("part").fields
    fields = {"start": answer, "stop": {"reason": answer["stop"], "text": answer["stop_text"]}}
    fields |= {"error": shape("error").fields, **dict.fromkeys(OF_PARTS, part)}
    for name, value in operations_in(stream.entries["to_hub"]):
        if name == "usage":
            writes.visit(value, shape("usage"))
        for key, each in entries_of(value).items() if name in fields else ():
            if key in fields[name]:
                writes.visit(each, fields[name][key])


def _kinds_read(unit: Unit, root: Map) -> frozenset[str]:
    """Words that the file may use as kinds of its own, because it handles them."""
    events = lookup(root, "stream", "from_hub")
    return frozenset(word for _, word, _ in unit.compared) | frozenset(entries_of(events))
