"""The image parts of providers/: every file compiles and its examples come out."""

from pathlib import Path

import pytest

from tollgate.config.load import read_file
from tollgate.config.provider import read_provider
from tollgate.config.shape import check_shape
from tollgate.mapping.images import Surroundings, compile_images, is_image_example, run_examples
from tollgate.config.load import plain

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in (ROOT / "providers").glob("*.yaml") if "\nimages:" in path.read_text())


def compiled(path):
    document = read_file(path, f"providers/{path.name}")
    assert document.problems == []
    problems, tree = check_shape(document, "provider")
    assert [problem.render() for problem in problems] == []
    provider, problems = read_provider(document, tree)
    assert [problem.render() for problem in problems if problem.level == "error"] == []
    return provider, compile_images(provider, Surroundings(errors=None))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_compiles_and_its_examples_come_out(path):
    provider, offers = compiled(path)
    assert offers
    assert [problem.render() for problem in run_examples(provider, offers)] == []
    examples = [plain(node)["of"] for node in provider.examples.items]
    assert len([of for of in examples if is_image_example(of)]) >= 2


def test_enough_services_and_models():
    offers = [offer for path in FILES for offer in compiled(path)[1]]
    assert len(FILES) >= 12
    assert len(offers) >= 40
    assert all(offer.price.price > 0 for offer in offers)
    assert all(offer.schema.document["properties"] for offer in offers)
