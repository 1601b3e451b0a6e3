"""The operations of stream rules (`stream.to_hub`): `to_hub.py` compiles them, and the methods of `Run` do them."""

from __future__ import annotations

from dataclasses import dataclass

from tollgate.mapping import hub
from tollgate.mapping.names import OWN_PART, OWN_RESPONSE


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a stream rule: the fields it takes, those it needs, and what it is for. The method of `Run` that
    does it takes the fields `by_place` as its first arguments, all others in one argument after them."""

    name: str
    fields: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    about: str = ""
    by_place: tuple[str, ...] = ()


_PART_FIELDS = (
    "kind",
    "key",
    "text",
    "args",
    "token",
    "id",
    "name",
    "origin",
    *sorted(set(hub.PART_FIELDS) - OWN_PART),
)
OPERATIONS: dict[str, Operation] = {
    entry.name: entry
    for entry in (
        Operation(
            "start",
            ("id", "model", "created", *sorted(hub.RESPONSE_FIELDS - OWN_RESPONSE)),
            (),
            "the upstream names its answer; empty values name nothing, the first real ones win; without a name it "
            "sets the other fields, however late",
            ("id", "model", "created"),
        ),
        Operation(
            "open",
            tuple(field for field in _PART_FIELDS if field not in ("text", "args")),
            ("kind",),
            "a part begins",
            ("kind", "key"),
        ),
        Operation(
            "delta",
            (*_PART_FIELDS, "so_far", "leaves", "steady"),
            (),
            "more of a part; opens it when it is not open, does nothing when there is nothing in it; without `kind` it "
            "continues the part that was opened with this `key`, or without a `key` the part that the last one was "
            "about; "
            "`so_far` instead of `text` where every event holds all of the text up to here; `leaves` instead of `text` "
            "where JSON comes leaf by leaf: a list of `{path, value, more}` (`more: true`: the text there goes on) "
            "and `{last: true}` when it is complete; `steady: true` promises "
            "that the rules look at the text in no other way (whether it is one, and not empty, aside), so that events "
            "which are the one before but for it need not be read whole",
            ("kind", "key", "text"),
        ),
        Operation(
            "close",
            (*_PART_FIELDS, "late"),
            (),
            "a part is over; its fields count only where they had no value before; `late: true`, with a `key` only: "
            "citations of a text may still follow it, in deltas without a key, so it stays open until something else "
            "does",
            ("key", "kind", "text"),
        ),
        Operation("part", _PART_FIELDS, ("kind",), "a part that arrives whole", ("kind", "key", "text")),
        Operation("stop", ("reason", "text"), (), "why the answer stopped", ("reason", "text")),
        Operation("usage", (), (), "token counts as a hub usage; per member the last value seen wins"),
        Operation("error", ("message", "type", "code", "param"), (), "the upstream failed"),
        Operation("lost", (), (), "names in the loss report what is not carried over"),
        Operation("do", (), (), "several operations under one condition"),
    )
}
BESIDE = ("$each", "$let", "$when")
"""The directives that may stand beside an operation."""
