"""The reference page, the architecture page and the editor schema match the compiler; every example in their tables
is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from mapping.support import document, run
from support.places import ROOT
from tollgate.config.load import plain, read_file
from tollgate.mapping import Context
from tollgate.mapping.directive_table import DIRECTIVES
from tollgate.mapping.editor_schema import editor_schema
from tollgate.mapping.filter_table import FILTERS
from tollgate.mapping.reference import renewed
from tollgate.mapping.scope import Unit
from tollgate.mapping.sections import compile_file

PAGE = ROOT / "docs" / "mapping-reference.md"
SCHEMA = ROOT / "src" / "tollgate" / "schemas" / "mapping.schema.json"
AGAIN = "generate it with `python -m tollgate.mapping.write_reference`"


def test_the_page_matches_the_tables() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), AGAIN


def test_the_page_contains_every_table_once() -> None:
    page = PAGE.read_text("utf-8")
    for other in (page.replace("<!-- filters -->", ""), page.replace("<!-- filters -->", "<!-- filtres -->"), page * 2):
        with pytest.raises(ValueError, match="filters"):
            renewed(other)


def test_the_editor_schema_matches_the_tables() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == editor_schema(), AGAIN
    Draft7Validator.check_schema(editor_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "mappings").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_editor_schema_accepts_the_shipped_mappings(path: Path) -> None:
    problems = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in Draft7Validator(editor_schema()).iter_errors(plain(read_file(path).root, floats=True))
    ]
    assert problems == []


def test_the_architecture_page_shows_the_python_that_is_generated() -> None:
    page = (ROOT / "docs" / "building.md").read_text("utf-8")
    shown = page.split("### How a template becomes Python", 1)[1]
    mapping, python = re.findall(r"^```\w*\n(.*?)^```", shown, re.DOTALL | re.MULTILINE)[:2]
    unit = Unit(document(mapping))
    compile_file(unit, None)
    assert unit.module.source()[0] == python


@pytest.mark.parametrize("name", DIRECTIVES)
def test_the_example_of_a_directive_is_correct(name: str) -> None:
    entry = DIRECTIVES[name]
    assert name in entry.example
    document(entry.example)
    assert json.dumps(run(entry.example, json.loads(entry.given), Context())) == json.dumps(json.loads(entry.makes))


@pytest.mark.parametrize("name", [name for name, entry in FILTERS.items() if entry.example])
def test_the_example_of_a_filter_is_correct(name: str) -> None:
    expression, _, result = FILTERS[name].example.rpartition(" → ")
    assert f"| {name}" in expression
    assert run(json.dumps({"a": "{{ " + expression + " }}"}), {}, Context()) == {"a": json.loads(result)}
