"""The errors for mistakes in a mapping: one golden file per mistake, the YAML above, the messages below."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.yaml_words import without_parser_words
from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import compile_mapping, run_examples

GOLDEN = Path(__file__).parents[1] / "golden" / "mapping"
DIVIDER = "\n--- says\n"
CASES = sorted(GOLDEN.glob("*.txt"))


def messages_for(text: str) -> str:
    try:
        mapping = compile_mapping(read_text(text, "mappings/x.yaml"))
    except ConfigErrors as errors:
        return f"{errors}\n"
    found = [*mapping.warnings, *run_examples(mapping)]
    return "".join(problem.render() + "\n" for problem in found)


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_config_error_has_a_place_and_a_hint(path: Path) -> None:
    text, _, expected = path.read_text(encoding="utf-8").partition(DIVIDER)
    assert without_parser_words(messages_for(text + "\n")) == without_parser_words(expected)


def test_there_are_at_least_forty_golden_errors() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_every_message_names_its_place(path: Path) -> None:
    expected = path.read_text(encoding="utf-8").partition(DIVIDER)[2]
    assert expected.startswith("mappings/x.yaml:")
    assert "^" in expected, "a caret marks the place"


def test_a_name_whose_fields_are_copied_counts_as_used() -> None:
    assert messages_for("mapping: x\nrequest:\n  to_hub: {$let: {a: $.meta}, $copy: {$a: [user]}}\n") == ""
