"""The shipped mapping files, read, compiled and checked with their examples once in this process, for all
configurations that use them. A reload reuses unchanged files the same way; a command starts from nothing, and tests run
hundreds of commands in one process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tollgate import mapping, runtime
from tollgate.cli import check_examples, convert_job
from tollgate.config import file_reader
from tollgate.config.files import built_in_mappings
from tollgate.config.load import Document, Problem, read_file

_documents: dict[tuple[str | None, str], Document] = {}
_compiled: dict[Document, Any] = {}
_examined: dict[tuple[int, ...], list[Problem]] = {}


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Active inside the `with` block."""
    shipped = built_in_mappings()

    def read(path: Path, shown_as: str | None = None, *, without: str = "", known: Document | None = None) -> Document:
        if path.parent != shipped:
            return read_file(path, shown_as, without=without, known=known)
        name = (shown_as, without)
        _documents[name] = read_file(path, shown_as, without=without, known=known or _documents.get(name))
        return _documents[name]

    def compiled(document: Document, *, plugins: Any = None, trace: bool = False) -> Any:
        if plugins or trace or document not in _documents.values():
            return compile_mapping(document, plugins=plugins, trace=trace)
        if document not in _compiled:
            _compiled[document] = compile_mapping(document)
        return _compiled[document]

    def examined(one: Any, others: Any = None) -> list[Problem]:
        shipped_ones = {id(each) for each in _compiled.values()}
        key = (id(one), *(id(each) for each in (others or {}).values()))
        if sys.gettrace() is not None or not shipped_ones.issuperset(key):
            return run_examples(one, others)  # a traced mapping counts its own lines
        if key not in _examined:
            _examined[key] = run_examples(one, others)
        return list(_examined[key])

    compile_mapping, run_examples = mapping.compile_mapping, check_examples.run_examples
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_reader, "read_file", read)
        patch.setattr(mapping, "compile_mapping", compiled)
        patch.setattr(runtime, "compile_mapping", compiled)
        patch.setattr(convert_job, "compile_mapping", compiled)
        patch.setattr(check_examples, "run_examples", examined)
        yield
