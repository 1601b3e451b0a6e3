"""`reply_headers:` of a client format: the headers that report the time taken and the key's rate limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tollgate.config.load import Node, Scalar, one_or_many, text_in
from tollgate.mapping.scope import Unit
from tollgate.wire import HEADER_NAME

Kind = Literal["requests", "tokens"]
Fact = Literal["limit", "remaining", "reset"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FACTS: tuple[Fact, ...] = get_args(Fact)
RESETS = ("durations", "instants")
KEYS = ("elapsed", "limits", "resets")


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
    parts = dict(unit.entries(node, KEYS, "`reply_headers` takes names", "{elapsed: x-elapsed-ms}"))
    elapsed = _names(unit, parts.get("elapsed"))
    takes, hint = f"`limits` takes {' and '.join(KINDS)}", "{requests: {limit: x-ratelimit-limit-requests}}"
    limits = [
        (kind, fact, name)
        for kind, facts in unit.entries(parts.get("limits"), KINDS, takes, hint)
        for fact, names in unit.entries(
            facts, FACTS, f"`{kind}` takes {', '.join(FACTS)}", "{limit: x-ratelimit-limit-requests}"
        )
        for name in _names(unit, names)
    ]
    resets = parts.get("resets")
    if resets is not None and text_in(resets) not in RESETS:
        unit.mistake(resets, f"`resets` is {' or '.join(RESETS)}")
    return ReplyHeaders(elapsed[0] if elapsed else None, tuple(limits), text_in(resets) == "instants")


def _names(unit: Unit, node: Node | None) -> list[bytes]:
    """A header's name, or a list of names with the same value."""
    found = []
    for item in one_or_many(node):
        name = text_in(item)
        if name is not None and HEADER_NAME.fullmatch(name) and name == name.lower():
            found.append(name.encode())
        else:
            text = f"`{item.value}` is no header name" if isinstance(item, Scalar) else "a header's name is text"
            unit.mistake(item, text, "lower-case letters, digits and dashes")
    return found
