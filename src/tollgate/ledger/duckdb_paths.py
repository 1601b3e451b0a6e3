"""Paths as DuckDB takes them: which ones it cannot open, and how a file is named where it expects a pattern."""

from __future__ import annotations

from pathlib import Path

from tollgate.errors import TollgateError

_MISTAKEN = {
    "?": "has a ?, and what follows it DuckDB takes for options",
    "\\": "has a \\, which DuckDB takes for a /",
}
_LITERALLY = str.maketrans({each: f"[{each}]" for each in "*?["})


def require_openable(path: Path) -> None:
    """Raises `TollgateError` for a path at which DuckDB opens no file, or another one: its own messages do not say
    why."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TollgateError(
            f"{text!a}: cannot be used: its path is not UTF-8. Give it another folder, or LANG=C.UTF-8 where it is"
        ) from None
    for mark, why in _MISTAKEN.items():
        if mark in text:
            raise TollgateError(f"{text}: cannot be used: its path {why}. Give it another folder")


def literally(path: Path) -> str:
    """The pattern for `read_duckdb` that only this file fits: "a*b" -> "a[*]b"."""
    return str(path).translate(_LITERALLY)
