from pathlib import Path
from typing import Any

import pytest
import yaml

from tollgate.config.yaml_parser import Parser, PlainParser

ROOT = Path(__file__).parents[2]


def told(parser: Any) -> list[tuple[object, ...]]:
    """What a parser tells of a text: of each event its kind, and of a value what it says and where."""
    events = []
    while (event := parser.get_event()) is not None:
        where = (event.start_mark.line, event.start_mark.column)
        value = (event.value, where) if isinstance(event, yaml.ScalarEvent) else ()
        events.append((type(event).__name__, *value))
        if isinstance(event, yaml.StreamEndEvent):
            break
    return events


@pytest.mark.parametrize("parser", [Parser, PlainParser])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("vars: {project: $secret.ACME_PROJECT?}", ["vars", "project", "$secret.ACME_PROJECT?"]),
        ("[What is this?, b? c, d ? e]", ["What is this?", "b? c", "d ? e"]),
        ("{a?: b, c: d?e}", ["a?", "b", "c", "d?e"]),
        ("{a: b?,\n c: d?\n  e}", ["a", "b?", "c", "d? e"]),
        ("? a\n: b ? c", ["a", "b ? c"]),
    ],
)
def test_a_question_mark_in_a_value_is_read_with_and_without_libyaml(parser: Any, text: str, values: list[str]) -> None:
    assert [what[1] for what in told(parser(text)) if what[0] == "ScalarEvent"] == values


@pytest.mark.parametrize("file", ["providers/mistral.yaml", "providers/vertex.yaml", "mappings/ollama.yaml"])
def test_without_libyaml_shipped_files_are_read_as_with_it(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert told(PlainParser(text)) == told(Parser(text))
