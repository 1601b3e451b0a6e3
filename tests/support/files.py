"""Files that a test needs."""

from __future__ import annotations

from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Write a file, and make the folders that it stands in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
