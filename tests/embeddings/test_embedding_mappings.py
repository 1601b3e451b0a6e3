"""mappings/*embeddings.yaml: every file compiles without a warning and its examples pass."""

from pathlib import Path

import pytest

from tollgate.config.load import read_file
from tollgate.mapping import compile_mapping, run_examples

FILES = sorted((Path(__file__).resolve().parents[2] / "mappings").glob("*embeddings.yaml"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_an_embeddings_mapping_compiles_and_its_examples_pass(path):
    mapping = compile_mapping(read_file(path, f"mappings/{path.name}"))
    assert [warning.render() for warning in mapping.warnings] == []
    assert mapping.hub == "embeddings"
    assert len(mapping.examples.items) >= 2
    assert [problem.render() for problem in run_examples(mapping)] == []
