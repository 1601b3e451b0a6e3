"""The repository's protocol mappings, compiled once for all tests that use them."""

from __future__ import annotations

import functools
from typing import Any

from support.places import ROOT
from tollgate.config.load import read_file
from tollgate.mapping import CompiledMapping, Context, StreamConverter, compile_mapping

FOLDER = ROOT / "mappings"
PROTOCOLS = ("chat", "responses", "messages", "gemini")
FILES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
"""Every mapping file: the protocols, the dialects that only upstreams speak, and the embeddings formats."""


@functools.cache
def mapping(name: str) -> CompiledMapping:
    """One compiled mapping file."""
    return compile_mapping(read_file(FOLDER / f"{name}.yaml", f"mappings/{name}.yaml"))


def context(**more: Any) -> Context:
    """A context with a fixed id and time."""
    made = Context({"upstream": "m", "max_output": 64000}, more.pop("can", {}), run_id="run", now=1_700_000_000)
    made.request = more.pop("request", None)
    return made


def converted(source: str, target: str, events: list[Any], run: Context | None = None) -> list[tuple[str | None, Any]]:
    """Converts a whole stream."""
    converter = StreamConverter(mapping(source), mapping(target), run or context())
    out = [sent for event in events for sent in converter.feed(event)]
    return out + converter.finish()
