"""The words of `error:` in a mapping file: how providers of a format express what the status does not say.

Their consequences are decided elsewhere: `provider/errors.py` judges answers, `completions/minters.py` sends again what
could not be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tollgate.config.load import List, Map, items_of, lookup, text_in
from tollgate.mapping.scope import Unit


@dataclass(frozen=True, slots=True)
class Kind:
    """One list of words: its description in editors, what its items are, and an example."""

    about: str
    items: str
    example: str


ERROR_WORDS: Mapping[str, Kind] = {
    "too_long": Kind(
        "words by which providers that speak this format say that a prompt does not fit the model",
        "words that a message holds",
        "[prompt is too long]",
    ),
    "spent": Kind(
        "codes by which providers that speak this format say that our money there is used up",
        "codes or types of errors",
        "[spend_limit_exceeded]",
    ),
    "unreadable": Kind(
        "codes or words by which providers that speak this format say that they cannot read encrypted reasoning",
        "codes, or words that a message holds",
        "[invalid_encrypted_content]",
    ),
}
"""The lists by their key under `error:`."""


def read_error_words(unit: Unit, root: Map) -> dict[str, tuple[str, ...]]:
    """The lists of a mapping file by key, in lower case. Mistakes are noted in the unit."""
    return {key: _words(unit, root, key, kind) for key, kind in ERROR_WORDS.items()}


def _words(unit: Unit, root: Map, key: str, kind: Kind) -> tuple[str, ...]:
    listed = lookup(root, "error", key)
    if listed is None:
        return ()
    words = tuple(word.lower() for item in items_of(listed) if (word := text_in(item)) and word.strip())
    if isinstance(listed, List) and len(words) == len(listed.items):
        return words
    unit.mistake(listed, f"`{key}` is a list of {kind.items}", kind.example)
    return ()
