"""Finds the part that an upstream's event is about, by the key and the id in it."""

from __future__ import annotations

from tollgate.mapping.streams.part import Details, Part, hashable


def repeats_arguments(call: Part, text: str | None) -> bool:
    """Whether a call's arguments are complete and equal to this text, which then only repeats them."""
    return text is not None and text[:1] == "{" and text[-1] == "}" and call.complete() and text == call.text


class Addressing:
    """The parts of one answer by key and id. Tool calls are found by both, because upstreams use both loosely."""

    __slots__ = ("_by_id", "_by_key", "_closes", "last_call", "recent")

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        """The upstream says where its parts end."""
        self._by_key: dict[object, Part] = {}
        self._by_id: dict[str, Part] = {}
        """Tool calls only."""
        self.last_call: Part | None = None
        self.recent: Part | None = None
        """The part that the last delta was about, or that has begun since. It may be out of date while no part is held
        back: then only the open part can be continued."""

    def add(self, part: Part) -> None:
        """A part begins."""
        self.recent = part
        if part.key is not None:
            self._by_key[part.key] = part
        if part.kind == "tool_call":
            self.last_call = part
            if part.id:
                self._by_id[part.id] = part

    def add_id(self, call: Part) -> None:
        """Note the id of a call, which may come later than the call. The first call with an id keeps it."""
        if call.id:
            self._by_id.setdefault(call.id, call)

    def at(self, key: object) -> Part | None:
        """The part with this key."""
        return self._by_key.get(hashable(key))

    def call(self, key: object, details: Details) -> Part | None:
        """The call that a delta continues; None when it begins a new one."""
        last = self.last_call
        if key is None:
            if details.id:
                return self._by_id.get(details.id)
            # a name begins a new call once the arguments of the last are whole
            return None if details.name and last is not None and last.name is not None and last.complete() else last
        call = self.at(key)
        if call is None and details.id:
            call = self._by_id.get(details.id)
            if call is None or call.text or call.closed or not call.is_called(details.name):
                return None
            self._by_key[hashable(key)] = call  # the arguments of a call have another key than its name
        if call is None:
            if details.name or self._closes or last is None or not last.name:
                return None
            # only arguments, and a key that no part has: they belong to the last call, unless it is complete
            return None if last.ended or last.complete() else last
        if call.kind != "tool_call":
            return None
        if details.name and details.id and call.id and details.id != call.id:
            return None  # a new id and a name; without a name the id is a fragment's, which some servers make up anew
        if call.name and not call.is_called(details.name) and call.complete():
            return None  # another name after whole arguments
        self.last_call = call
        return call

    def repeats(self, details: Details, text: str | None) -> bool:
        """Whether a call with this id, name and text has come under another key: some servers send each once more."""
        call = self._by_id.get(details.id)
        return call is not None and call.is_called(details.name) and repeats_arguments(call, text)

    def begun(self, key: object, details: Details) -> bool:
        """Whether a call with this key and id has begun; it is the current call again then."""
        call = self._by_id.get(details.id)
        if call is None or call.key != hashable(key):
            return False
        self._by_key[call.key] = self.last_call = call
        return True
