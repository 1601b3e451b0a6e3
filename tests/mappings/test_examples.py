"""The examples inside the protocol mappings hold, and reach the lines of the file they stand in."""

from __future__ import annotations

import pytest

from mappings.support import PROTOCOLS, mapping
from tollgate.mapping import run_examples


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_example_holds(name: str) -> None:
    problems = run_examples(mapping(name), {other: mapping(other) for other in PROTOCOLS})
    assert not problems, "\n".join(problem.render() for problem in problems)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_mapping_has_no_warnings(name: str) -> None:
    assert not mapping(name).warnings
