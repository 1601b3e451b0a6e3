"""Files for tests."""

from __future__ import annotations

from pathlib import Path


def write_file(path: Path, text: str) -> None:
    """Writes a file and creates its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
