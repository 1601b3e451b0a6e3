"""Texts that a provider does not send piece by piece: it repeats all of the text so far, or sends JSON leaf by leaf."""

from __future__ import annotations

from tollgate.mapping.context import Context
from tollgate.mapping.streams.leafwise import LeafwiseJson
from tollgate.mapping.values import text_of
from tollgate.wording import clipped


class Growth:
    """The state of such texts in one stream, by kind and key of their part. What cannot be sent is noted as a loss."""

    __slots__ = ("_context", "_leafwise", "_so_far")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._so_far: dict[tuple[str, object], str] = {}
        self._leafwise: dict[tuple[str, object], LeafwiseJson] = {}

    def grown(self, kind: str, key: object, so_far: object) -> str | None:
        """The new end of a text that is sent from its beginning every time: 'Hel', then 'Hello' -> 'lo'."""
        if so_far is None:
            return None
        text = so_far if type(so_far) is str else text_of(so_far)
        before = self._so_far.get((kind, key), "")
        if not text.startswith(before):
            self._context.lose(f"{kind} that the provider changed after it was sent")
            return None
        self._so_far[kind, key] = text
        return text[len(before) :]

    def leafwise(self, kind: str, key: object, leaves: object) -> str | None:
        """The new text of JSON that is sent leaf by leaf: [{path: $.a, value: 1}, {last: true}] -> '{"a":1}'. A leaf
        that cannot be added at its path is a loss."""
        if type(leaves) is not list:
            return None
        json = self._leafwise.setdefault((kind, key), LeafwiseJson())
        text = ""
        for leaf in leaves:
            if type(leaf) is not dict:
                continue
            path = leaf.get("path")
            if type(path) is str:
                grown = json.add(path, leaf.get("value"), more=leaf.get("more") is True)
                if grown is None:
                    self._context.lose(f"{kind} at {clipped(path, 80)}")
                else:
                    text += grown
            if leaf.get("last") is True:
                text += json.end()
                del self._leafwise[kind, key]
                break
        return text or None
