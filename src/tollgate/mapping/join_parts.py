"""Texts of an answer that follow each other, as one: for formats whose clients read a text as a whole from one place.

Used for whole answers (the filter `join_parts`) and for streamed ones (`joined: true` in `stream.from_hub`), so that
both say the same.
"""

from __future__ import annotations

from typing import Any

from tollgate.mapping.values import List, Text


def join_parts(value: List, kind: Text) -> list[Any] | None:
    """The parts of an answer, those of one kind that follow each other joined as one; a part that is `apart` begins
    anew. Places of citations count from the beginning of the joined text.

    A list without such neighbours is the very same list.
    """
    if type(value) is not list or type(kind) is not str:
        return None
    runs: list[list[Any]] = []
    before: Any = None
    for part in value:
        if runs and goes_on(before, part, kind):
            runs[-1].append(part)
        else:
            runs.append([part])
        before = part
    return value if len(runs) == len(value) else [run[0] if len(run) == 1 else as_one(run) for run in runs]


def goes_on(before: Any, part: Any, kind: str) -> bool:
    """Whether the part continues the one before it."""
    return (
        type(before) is dict
        and type(part) is dict
        and before.get("kind") == kind == part.get("kind")
        and not part.get("apart")
    )


def as_one(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Some parts as one: lists grow, of every other field the last value counts."""
    made: dict[str, Any] = {}
    texts: list[str] = []
    length = 0
    for part in parts:
        text = part.get("text")
        text = text if type(text) is str else ""
        for key, item in part.items():
            if type(item) is not list:
                made[key] = item
                continue
            items = [_moved(note, length, len(text)) for note in item] if key == "annotations" else item
            if type(made.get(key)) is list:
                made[key] += items
            else:
                made[key] = [*items]
        texts.append(text)
        length += len(text)
    made["text"] = "".join(texts)
    return made


def _moved(note: Any, by: int, length: int) -> Any:
    """A citation of a text that stands `by` characters into a longer one; without a range it covers its own text."""
    if type(note) is not dict:
        return note
    start, end = note.get("start"), note.get("end")
    first = start if isinstance(start, (int, float)) else 0
    behind = end if isinstance(end, (int, float)) and end else length
    return {**note, "start": first + by, "end": behind + by}
