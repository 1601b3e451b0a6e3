"""Helpers of the mapping tests: YAML text in, compiled object out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tollgate.config.load import Document, read_text
from tollgate.mapping import Context
from tollgate.mapping.pieces import Template, compile_template


def document(text: str, name: str = "mappings/x.yaml") -> Document:
    """A YAML document; a syntax problem fails the test."""
    read = read_text(text, name)
    assert not read.problems, [problem.render() for problem in read.problems]
    return read


def template(text: str, names: Iterable[str] = ("$", "model", "can")) -> Template:
    """A template over `$`."""
    read = document(text)
    return compile_template(read, read.root, names=names)


def run(text: str, given: object, context: Context | None = None) -> Any:
    """Compiles the template and runs it."""
    return template(text)(given, context)
