from typing import Any

import pytest
import yaml

from support.places import ROOT
from tollgate.config.yaml_parser import Parser, PlainParser


def events_of(parser: Any) -> list[tuple[object, ...]]:
    """The events of a parser: their kinds, and the values and places of scalars."""
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
    assert [what[1] for what in events_of(parser(text)) if what[0] == "ScalarEvent"] == values


@pytest.mark.parametrize("file", ["providers/mistral.yaml", "providers/vertex.yaml", "mappings/ollama.yaml"])
def test_shipped_files_are_parsed_alike_without_libyaml(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert events_of(PlainParser(text)) == events_of(Parser(text))
