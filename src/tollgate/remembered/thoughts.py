"""Signed reasoning of turns with tool calls, remembered for a while for clients that do not send it back.

A reasoning model wants its signed reasoning back together with the tools' results; without it, Claude continues without
thinking, and Gemini with a placeholder for its signature. Chat completions have no field for reasoning that every
client keeps: most programs send back only the text and the calls of a turn, and some the reasoning and its signature
apart, or only one of them. So the reasoning is looked up by the text and the calls. It is kept in this process's
memory, of limited size; the least recently used is dropped first. If none is found, the request is sent without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from tollgate.remembered.bounded import BoundedMemory

MOST = 8 * 1024 * 1024
"""Characters of the whole memory."""
_EACH = 1_000
"""Characters counted for the overhead of each turn."""

_OPENED, _CLOSED = "<think>", "</think>"
_MARKED = 100

Maker = tuple[str, str, str]
"""Origin of the reasoning: the upstream's format, the name of the signing service (`Offer.minter`), the upstream model.
It is only sent to the same origin."""
Part = dict[str, Any]


class Thoughts:
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._turns: BoundedMemory[bytes, tuple[Maker, tuple[Part, ...]]] = BoundedMemory(most)

    def keep(self, owner: str, maker: Maker, parts: Sequence[Part]) -> None:
        """Remember an answer's hub `parts` for this account, if they have tool calls and a signature."""
        if not all(map(_is_known, parts)) or not any(part.get("token") for part in parts):
            return
        if (key := _key_of(owner, parts)) is None:
            return
        kept = tuple({"kind": "text", "text": part["text"]} if part["kind"] == "text" else dict(part) for part in parts)
        size = sum(len(value) for part in parts for value in part.values() if type(value) is str)
        self._turns.keep(key, (maker, kept), size + _EACH)

    def restored(self, owner: str, maker: Maker, hub: Mapping[str, Any]) -> list[Any] | None:
        """The turns of a hub request with `maker`'s reasoning restored where the client left it out; None if nothing
        was restored."""
        if not self._turns:
            return None
        turns = hub.get("turns")
        if type(turns) is not list:
            return None
        found = [self._restored(owner, maker, turn) for turn in turns]
        if not any(found):
            return None
        return [now or turn for turn, now in zip(turns, found, strict=True)]

    def _restored(self, owner: str, maker: Maker, turn: Any) -> dict[str, Any] | None:
        parts = turn.get("parts") if type(turn) is dict and turn.get("role") == "assistant" else None
        if type(parts) is not list or not all(map(_is_known, parts)):
            return None
        sent = [part["token"] for part in parts if part.get("token")]
        if sent and not any(map(_is_torn, parts)):
            return None
        if (key := _key_of(owner, parts)) is None:
            return None
        known = self._turns.find(key)
        if known is None or known[0] != maker:
            return None
        signed = {token for part in known[1] if type(token := part.get("token")) is str} if sent else ()
        if not all(type(token) is str and token in signed for token in sent):
            return None
        return {**turn, "parts": list(_marked(known[1], parts))}


def _marked(kept: Sequence[Part], sent: Sequence[Part]) -> Iterator[Part]:
    """The remembered parts, with the cache marks of the parts that were sent."""
    marks = {part.get("id"): part["cache"] for part in sent if part["kind"] == "tool_call" and part.get("cache")}
    of_text = next((part["cache"] for part in sent if part["kind"] == "text" and part.get("cache")), None)
    last_text = max((at for at, part in enumerate(kept) if part["kind"] == "text"), default=-1)
    for at, part in enumerate(kept):
        mark = of_text if at == last_text else marks.get(part.get("id")) if part["kind"] == "tool_call" else None
        yield {**part, "cache": mark} if mark else part


def _is_known(part: Any) -> bool:
    """Whether a part is a text, a tool call or reasoning, and well-formed: clients and upstreams may send anything."""
    if type(part) is not dict:
        return False
    kind = part.get("kind")
    if kind == "text":
        return type(part.get("text")) is str
    if kind == "tool_call":
        return type(part.get("id")) is str and type(part.get("name")) is str
    return bool(kind == "reasoning")


def _is_torn(part: Part) -> bool:
    """Whether a part is reasoning of unknown origin or a signature without its reasoning: some clients return the two
    apart, or only the last piece of a streamed part. The signature of a call (with its id) has no reasoning."""
    if part["kind"] != "reasoning":
        return False
    if part.get("token"):
        return not part.get("text") and not part.get("id")
    return not part.get("origin")


def _key_of(owner: str, parts: Sequence[Part]) -> bytes | None:
    """A hash that identifies a turn of an account: of its text and its calls, however their arguments are written. None
    for a turn without calls."""
    calls = [part for part in parts if part["kind"] == "tool_call"]
    if not calls:
        return None
    text = _without_thoughts("".join(part["text"] for part in parts if part["kind"] == "text")).strip()
    identity = [owner, text, *((call["id"], call["name"], _plain(call.get("args"))) for call in calls)]
    return hashlib.blake2b(repr(identity).encode(), digest_size=16).digest()


def _without_thoughts(text: str) -> str:
    """What is left of a text without the thoughts between marks: so pydantic-ai sends them back to a responses model
    that it does not know. A turn has few of them, and no text is worth more looks."""
    kept, at = [], 0
    for _ in range(_MARKED):
        opened = text.find(_OPENED, at)
        closed = text.find(_CLOSED, opened) if opened >= 0 else -1
        if closed < 0:
            break
        kept.append(text[at:opened])
        at = closed + len(_CLOSED)
    return "".join((*kept, text[at:])) if kept else text


def _plain(arguments: Any) -> Any:
    """A call's arguments, which are JSON text, without differences in white space and key order."""
    if type(arguments) is not str:
        return repr(arguments)
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except (ValueError, orjson.JSONEncodeError):  # orjson reads 1024 levels and writes 254
        return arguments.strip()
