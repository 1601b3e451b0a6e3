"""Signed thoughts of turns that called tools, remembered a while for clients that cannot send them back.

A model that thinks wants what it thought before a call back with the call's result, signed as it was; without it,
Claude must go on without thinking and Gemini with a stand-in for its signature. Chat completions have no place for
thoughts that every client keeps: most programs send the text and the calls of a turn back, and nothing else. So the
thoughts are found again by these. They stay in this process's memory, up to a limit, the longest unused go first; who
finds none goes on as if there were no such memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from tollgate.remembered.bounded import BoundedMemory

MOST = 8 * 1024 * 1024
"""Characters of all remembered turns together."""
_EACH = 1_000
"""What a turn takes beside its characters, counted as such."""

Maker = tuple[str, str, str]
"""Who thought: the upstream's format, the name of who signs there (`Offer.minter`), the model's name there. Nobody else
is sent these thoughts."""
Part = dict[str, Any]


class Thoughts:
    """The memory. Safe to use from several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._turns: BoundedMemory[bytes, tuple[Maker, tuple[Part, ...]]] = BoundedMemory(most)

    def keep(self, owner: str, maker: Maker, parts: Sequence[Part]) -> None:
        """Remember an answer's hub `parts` for this account, if they hold calls and something signed."""
        if not all(map(_is_known, parts)) or not any(part.get("token") for part in parts):
            return
        if (key := _key_of(owner, parts)) is None:
            return
        kept = tuple({"kind": "text", "text": part["text"]} if part["kind"] == "text" else dict(part) for part in parts)
        size = sum(len(value) for part in parts for value in part.values() if type(value) is str)
        self._turns.keep(key, (maker, kept), size + _EACH)

    def restored(self, owner: str, maker: Maker, hub: Mapping[str, Any]) -> list[Any] | None:
        """The turns of a hub request with the thoughts that its client left out put back, where `maker` had them; None
        where there is nothing to put back."""
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
        if type(parts) is not list or not all(map(_is_known, parts)) or any(part.get("token") for part in parts):
            return None
        if (key := _key_of(owner, parts)) is None:
            return None
        known = self._turns.find(key)
        if known is None or known[0] != maker:
            return None
        return {**turn, "parts": list(_marked(known[1], parts))}


def _marked(kept: Sequence[Part], sent: Sequence[Part]) -> Iterator[Part]:
    """What was kept, with the cache marks of what was sent."""
    marks = {part.get("id"): part["cache"] for part in sent if part["kind"] == "tool_call" and part.get("cache")}
    of_text = next((part["cache"] for part in sent if part["kind"] == "text" and part.get("cache")), None)
    last_text = max((at for at, part in enumerate(kept) if part["kind"] == "text"), default=-1)
    for at, part in enumerate(kept):
        mark = of_text if at == last_text else marks.get(part.get("id")) if part["kind"] == "tool_call" else None
        yield {**part, "cache": mark} if mark else part


def _is_known(part: Any) -> bool:
    """Whether a part is one of those that make such a turn, and in a shape that can be told from others; clients and
    upstreams send what they like."""
    if type(part) is not dict:
        return False
    kind = part.get("kind")
    if kind == "text":
        return type(part.get("text")) is str
    if kind == "tool_call":
        return type(part.get("id")) is str and type(part.get("name")) is str
    return bool(kind == "reasoning")


def _key_of(owner: str, parts: Sequence[Part]) -> bytes | None:
    """What tells a turn from all others of an account: its text and its calls, in whichever way a client writes their
    arguments. None for a turn without calls."""
    calls = [part for part in parts if part["kind"] == "tool_call"]
    if not calls:
        return None
    text = "".join(part["text"] for part in parts if part["kind"] == "text").strip()
    said = [owner, text, *((call["id"], call["name"], _plain(call.get("args"))) for call in calls)]
    return hashlib.blake2b(repr(said).encode(), digest_size=16).digest()


def _plain(arguments: Any) -> Any:
    """A call's arguments, which are JSON of their own, without the blanks and the order of who wrote them."""
    if type(arguments) is not str:
        return repr(arguments)
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except ValueError:
        return arguments.strip()
