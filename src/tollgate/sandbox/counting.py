"""The sandbox's rule for tokens: up to eight word characters, or one other character, with one blank before it.

The deltas of a stream are the same pieces, so an answer of N tokens streams as N deltas. It is unlike any real
tokenizer on purpose: a test can count by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s")

PER_MESSAGE = 4
PER_IMAGE = 85
"""Tokens that a message's frame, and a picture, add to a prompt."""

_FILLER = " and so it goes on,"


def pieces(text: str) -> Iterator[str]:
    """`"You said: hi"` -> `"You"`, `" said"`, `":"`, `" hi"`; joined again they are the text.

    One by one: a stream whose client does not read may have 200,000, which would take 10 MB of the gateway's memory.
    """
    return (found[0] for found in _PIECE.finditer(text))


def count(text: str) -> int:
    """How many tokens a text has."""
    return len(_PIECE.findall(text))


def fitted(text: str, tokens: int) -> str:
    """The text with exactly `tokens` tokens, shortened or filled."""
    found = list(pieces(text))
    if len(found) < tokens:
        filler = list(pieces(_FILLER))
        missing = tokens - len(found)
        found += (filler * (missing // len(filler) + 1))[:missing]
    return "".join(found[:tokens])
