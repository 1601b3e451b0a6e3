"""How values stand in messages: texts cut to a length, errors in one line, places as paths, the known word that was
meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def clipped(text: str, most: int) -> str:
    """At most so many characters, with a mark where it was cut."""
    return text if len(text) <= most else text[: most - 3] + "..."


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the name of its class where it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def path_text(path: Iterable[str | int]) -> str:
    """`("models", "acme/a", "aliases", 0)` -> `models.acme/a.aliases[0]`."""
    shown = ""
    for step in path:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` for the known word nearest to `word`, or an empty string."""
    close = nearest_word(word, known)
    return f"did you mean `{close}`?" if close else ""


def nearest_word(word: str, known: Iterable[str]) -> str:
    """The known word nearest to `word`, or an empty string."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), "")
