"""Which part of an answer an upstream means, by the place (`key`) and the id that it names."""

from __future__ import annotations

from tollgate.mapping.streams.part import Part, Said, hashable


class Addressing:
    """The parts of one answer by what the upstream calls them.

    Tool calls go by place *and* id, because upstreams use both loosely.
    """

    __slots__ = ("_by_id", "_by_key", "_closes", "last_call")

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        """The upstream says where its parts end."""
        self._by_key: dict[object, Part] = {}
        self._by_id: dict[str, Part] = {}
        """Calls alone."""
        self.last_call: Part | None = None

    def add(self, part: Part) -> None:
        """A part begins."""
        if part.key is not None:
            self._by_key[part.key] = part
        if part.kind == "tool_call":
            self.last_call = part
            if part.id:
                self._by_id[part.id] = part

    def add_id(self, call: Part) -> None:
        """The id of a call may have come later than the call; who had it first keeps it."""
        if call.id:
            self._by_id.setdefault(call.id, call)

    def at(self, key: object) -> Part | None:
        """The part at a place."""
        return self._by_key.get(hashable(key))

    def call(self, key: object, said: Said) -> Part | None:
        """The call that a delta goes on with; None for a new one."""
        last = self.last_call
        if key is None:
            if said.id:
                return self._by_id.get(said.id)
            # a name begins a new call once the arguments of the last are whole
            return None if said.name and last is not None and last.name is not None and last.complete() else last
        call = self.at(key)
        if call is None:
            if said.id or said.name or self._closes or last is None or not last.name:
                return None
            # arguments alone under a place that nothing began: nobody else's but the last call's, while it takes more
            return None if last.ended or last.complete() else last
        if call.kind != "tool_call":
            return None
        if said.name and said.id and call.id and said.id != call.id:
            return None  # another id with a name; one without is that of a fragment, which some servers draw anew
        self.last_call = call
        return call

    def begun(self, key: object, said: Said) -> bool:
        """Whether a call with this place and id has begun; what comes next is more of it."""
        call = self._by_id.get(said.id) if said.id else None
        if call is None or call.key != hashable(key):
            return False
        self._by_key[call.key] = self.last_call = call
        return True
