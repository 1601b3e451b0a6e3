"""`reply_headers:` of a client format: the headers that report the time taken and the key's rate limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tollgate.config.load import Map, Node, Scalar, one_or_many
from tollgate.mapping.scope import Unit
from tollgate.wire import HEADER_NAME

KINDS = ("requests", "tokens")
FACTS = ("limit", "remaining", "reset")
RESETS = ("durations", "instants")
KEYS = ("elapsed", "limits", "resets")

Kind = Literal["requests", "tokens"]
Fact = Literal["limit", "remaining", "reset"]


@dataclass(frozen=True, slots=True)
class ReplyHeaders:
    """The format's names of these headers; a value without a name is not sent."""

    elapsed: bytes | None = None
    """Milliseconds until the answer began."""
    limits: tuple[tuple[Kind, Fact, bytes], ...] = ()
    """(window, the value of it, header)."""
    instants: bool = False
    """Resets are times (RFC 3339), not durations (`6m0s`)."""


NO_HEADERS = ReplyHeaders()


def compile_reply_headers(unit: Unit, node: Node | None) -> ReplyHeaders:
    """Read the section; mistakes are noted in the unit."""
    if node is None:
        return NO_HEADERS
    if not isinstance(node, Map):
        unit.mistake(node, "`reply_headers` takes names", "{elapsed: x-elapsed-ms}")
        return NO_HEADERS
    unit.check_keys(node, KEYS)
    elapsed = _names(unit, node.entries["elapsed"])[:1] if "elapsed" in node.entries else []
    limits: list[tuple[Kind, Fact, bytes]] = []
    listed = node.get("limits")
    if isinstance(listed, Map):
        unit.check_keys(listed, KINDS)
        for kind in KINDS:
            facts = listed.get(kind)
            if isinstance(facts, Map):
                unit.check_keys(facts, FACTS)
                limits += [
                    (kind, fact, name)  # type: ignore[misc]
                    for fact in FACTS
                    if fact in facts.entries
                    for name in _names(unit, facts.entries[fact])
                ]
            elif facts is not None:
                unit.mistake(facts, f"`{kind}` takes {', '.join(FACTS)}", "{limit: x-ratelimit-limit-requests}")
    elif listed is not None:
        unit.mistake(listed, f"`limits` takes {' and '.join(KINDS)}", "{requests: {limit: x-ratelimit-limit-requests}}")
    resets = node.get("resets")
    if resets is not None and not (isinstance(resets, Scalar) and resets.value in RESETS):
        unit.mistake(resets, f"`resets` is {' or '.join(RESETS)}")
        resets = None
    return ReplyHeaders(
        elapsed[0] if elapsed else None, tuple(limits), isinstance(resets, Scalar) and resets.value == "instants"
    )


def _names(unit: Unit, node: Node) -> list[bytes]:
    """A header's name, or a list of names with the same value."""
    found = []
    for item in one_or_many(node):
        if (
            isinstance(item, Scalar)
            and isinstance(item.value, str)
            and HEADER_NAME.fullmatch(item.value)
            and item.value == item.value.lower()
        ):
            found.append(item.value.encode())
        else:
            text = f"`{item.value}` is no header name" if isinstance(item, Scalar) else "a header's name is text"
            unit.mistake(item, text, "lower-case letters, digits and dashes")
    return found
