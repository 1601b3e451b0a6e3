"""The repository's protocol mappings, compiled once for all tests that convert with them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tollgate.config.load import read_file
from tollgate.mapping import Context, Mapping, StreamConverter, compile_mapping

FOLDER = Path(__file__).resolve().parents[2] / "mappings"
PROTOCOLS = ("chat", "responses", "messages", "gemini")
FILES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
"""Every mapping file: the protocols, the dialects only upstreams speak, and those of embeddings."""


@functools.cache
def mapping(name: str) -> Mapping:
    """One compiled mapping file."""
    return compile_mapping(read_file(FOLDER / f"{name}.yaml", f"mappings/{name}.yaml"))


def context(**more: Any) -> Context:
    """A context that gives the same answer every time."""
    return Context(
        {"upstream": "m", "max_output": 64000},
        more.pop("can", {}),
        more.pop("request", None),
        run_id="run",
        now=1_700_000_000,
    )


def converted(source: str, target: str, events: list[Any], run: Context | None = None) -> list[tuple[str | None, Any]]:
    """A whole stream through a converter."""
    converter = StreamConverter(mapping(source), mapping(target), run or context())
    out = [said for event in events for said in converter.feed(event)]
    return out + converter.finish()
