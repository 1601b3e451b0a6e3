"""How values stand in messages: texts cut to a length, places as paths."""

from __future__ import annotations

from collections.abc import Iterable


def clipped(text: str, most: int) -> str:
    """At most so many characters, with a mark where it was cut."""
    return text if len(text) <= most else text[: most - 3] + "..."


def path_text(path: Iterable[str | int]) -> str:
    """`("models", "acme/a", "aliases", 0)` -> `models.acme/a.aliases[0]`."""
    said = ""
    for step in path:
        said += f"[{step}]" if isinstance(step, int) else f".{step}" if said else step
    return said
