"""Formats values for messages: clipped texts, one-line errors, paths, and suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def clipped(text: str, most: int) -> str:
    """The text, cut to at most `most` characters and ended with `...` if it is longer."""
    return text if len(text) <= most else text[: most - 3] + "..."


def one_line(text: str) -> str:
    """A provider's message for the log: on one line, without control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the name of its class if it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def path_text(path: Iterable[str | int]) -> str:
    """`("models", "acme/a", "aliases", 0)` -> `models.acme/a.aliases[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` with the known word closest to `word`; an empty string if none is close."""
    close = nearest_word(word, known)
    return f"did you mean `{close}`?" if close else ""


def nearest_or_all(word: str, known: Collection[str]) -> str:
    """`did you mean ...?` with the known word closest to `word`, else all known words; an empty string if there are
    none."""
    return did_you_mean(word, known) or (f"one of {', '.join(known)}" if known else "")


def nearest_word(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """The known word closest to `word`, ignoring case first; an empty string if none is at least this much `alike` (0
    to 1)."""
    words = list(known)
    same = (each for each in words if each.lower() == word.lower())
    return next(same, "") or next(iter(difflib.get_close_matches(word, words, n=1, cutoff=alike)), "")
