"""The examples in the mapping files pass, and reach every line of their file."""

from __future__ import annotations

import pytest

from mappings.support import FILES, FOLDER, PROTOCOLS, mapping
from tollgate.mapping import run_examples
from tollgate.mapping.coverage import Watch, covered


@pytest.mark.parametrize("name", FILES)
def test_every_example_passes(name: str) -> None:
    problems = run_examples(mapping(name), {other: mapping(other) for other in PROTOCOLS})
    assert not problems, "\n".join(problem.render() for problem in problems)


@pytest.mark.parametrize("name", FILES)
def test_a_mapping_has_no_warnings(name: str) -> None:
    assert not mapping(name).warnings


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("embeddings")])
def test_an_embeddings_mapping_uses_its_hub_and_has_at_least_two_examples(name: str) -> None:
    file = mapping(name)
    assert file.hub == "embeddings"
    assert file.examples is not None and len(file.examples.items) >= 2


def test_the_examples_reach_every_line() -> None:
    files = [mapping(name) for name in FILES]
    watch = Watch([file.file for file in files])
    with watch.watching():
        for name in FILES:
            run_examples(mapping(name), {other: mapping(other) for other in PROTOCOLS})
    for found in covered(files, watch):
        lines = found.file and (FOLDER.parent / found.file).read_text("utf-8").splitlines()
        # no example runs the stamp of streamed events, or the place of the service tier (test_sent_tier.py)
        missed = [
            f"{number}: {line}"
            for number in found.missed
            if "stamp:" not in (line := lines[number - 1]) and not line.startswith("  service_tier:")
        ]
        assert not missed, "\n".join(missed)
