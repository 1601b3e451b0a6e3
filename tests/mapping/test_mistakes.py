"""What a mapping author is told about a mistake: one golden file per mistake, the YAML above, the words below."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.yaml_words import in_our_words
from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import compile_mapping, run_examples

GOLDEN = Path(__file__).parents[1] / "golden" / "mapping"
DIVIDER = "\n--- says\n"
CASES = sorted(GOLDEN.glob("*.txt"))


def messages_of(text: str) -> str:
    try:
        mapping = compile_mapping(read_text(text, "mappings/x.yaml"))
    except ConfigErrors as errors:
        return f"{errors}\n"
    found = [*mapping.warnings, *run_examples(mapping)]
    return "".join(problem.render() + "\n" for problem in found)


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_mistake_is_said_with_place_and_hint(path: Path) -> None:
    text, _, expected = path.read_text(encoding="utf-8").partition(DIVIDER)
    assert in_our_words(messages_of(text + "\n")) == in_our_words(expected)


def test_there_are_at_least_forty() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_every_message_names_its_place(path: Path) -> None:
    expected = path.read_text(encoding="utf-8").partition(DIVIDER)[2]
    assert expected.startswith("mappings/x.yaml:")
    assert "^" in expected, "a caret points at it"


def test_a_name_whose_fields_are_copied_is_read() -> None:
    assert messages_of("mapping: x\nrequest:\n  to_hub: {$let: {a: $.meta}, $copy: {$a: [user]}}\n") == ""
