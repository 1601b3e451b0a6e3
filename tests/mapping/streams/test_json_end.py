"""Whether arguments that arrive in pieces are complete, for any split and any joins between."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tollgate.mapping.streams.json_end import JsonEnd

_PIECES = ["{", "}", "[", "]", '"', "\\", ",", ":", "1", " ", "\n", "\u00a0", '{"a":', '"}"', '\\"', "{}", "[1]", ""]


def _is_whole(text: str) -> bool:
    try:
        return type(json.loads(text)) in (dict, list)
    except ValueError:
        return False


@given(st.lists(st.tuples(st.sampled_from(_PIECES), st.booleans()), max_size=40), st.booleans())
@example([('{"a":"', False), ("\\", False), ('"}', True), ('"}', False), (" ", False), ("{}", False)], True)
def test_arguments_are_complete_if_json_can_parse_them(received: list[tuple[str, bool]], early: bool) -> None:
    end = JsonEnd()
    if early:  # checks before any piece slow down later ones
        for _ in range(20):
            assert not end.whole([])
    pieces: list[str] = []
    for piece, together in received:
        pieces.append(piece)
        if together:
            end.joined(pieces)
            pieces[:] = ["".join(pieces)]
        assert end.whole(pieces) == _is_whole("".join(pieces))
