"""The same conversation recorded natively in two formats: our conversion of one must have the structure of the other.

The two requests were written by different clients for different models, so texts and settings may differ; compared are
the members they have: turns, calls, results, media, tools, the tool choice, the answer's schema.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from replay.cells import CLIENTS, READERS, context, mapping
from replay.facts import RequestFacts
from replay.traffic import PROTOCOLS, exchange, pairs
from tollgate.mapping import Refused, convert_request

EXPLAINED = {
    "multimodalRequest/followup": "the chat recording's assistant turn is empty; it says nothing, so it becomes no "
    "turn",
    "reasoningRequestTruncated/followup": "the chat recording's assistant turn is empty; it says nothing, so it "
    "becomes no turn",
    "promptCacheKeyParam": "only the messages recording has a system text",
    "promptCacheKeyParam/followup": "only the messages recording has a system text",
}
"""Cases whose recordings differ in structure themselves."""


@dataclass(frozen=True)
class Pair:
    """One direction of one case, with its differences in structure."""

    case: str
    source: str
    target: str
    differences: tuple[str, ...]


def structure(a: RequestFacts) -> dict[str, Any]:
    """The structure of a request without its content."""
    turns = [role for role, _ in itertools.groupby(a.turns)]
    choice = a.choice[0] if isinstance(a.choice, tuple) else a.choice
    return {
        "system": bool(a.system),
        "turns": turns,
        "user text": bool(a.user),
        "calls": [c.name for c in a.calls],
        "results": len(a.results),
        "media": len(a.media),
        "tools": sorted(a.tools),
        "choice": None if choice == "auto" else choice,
        "schema": "schema" if a.format not in (None, "json") else a.format,
    }


def directions() -> Iterator[tuple[str, str, str, str, str]]:
    """(case, source protocol, source id, target protocol, target id), for streams and whole answers alike."""
    for case, members in pairs().items():
        found = [
            (PROTOCOLS[name.removesuffix(".stream")], i)
            for name, i in members.items()
            if name.removesuffix(".stream") in PROTOCOLS
        ]
        for (source, i), (target, j) in itertools.permutations(found, 2):
            if source in CLIENTS and source != target:
                yield case, source, i, target, j


def compared(case: str, source: str, i: str, target: str, j: str) -> Pair | None:
    ours, theirs = exchange(i), exchange(j)
    if not isinstance(ours.request, dict) or not isinstance(theirs.request, dict):
        return None
    try:
        body = convert_request(mapping(source), mapping(target), ours.request, context()).body
    except Refused:
        return None
    got, wanted = (
        structure(READERS[target].request_facts(body)),
        structure(READERS[target].request_facts(theirs.request)),
    )
    differences = [f"{k}: ours {got[k]!r}, theirs {wanted[k]!r}" for k in wanted if got[k] != wanted[k]]
    return Pair(case, source, target, tuple(differences))
