"""The repository's own gateway.yaml and providers."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from support.places import ROOT
from tollgate.cli.check import check
from tollgate.config.build import Loaded, load_gateway, load_mappings
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.load import Map, plain, read_text
from tollgate.config.provider_warnings import provider_warnings
from tollgate.config.shape import check_shape

PROVIDERS = sorted((ROOT / "providers").glob("**/*.yaml"))


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_gateway(ROOT / "gateway.yaml", environ={}, everything=True)


def uncommented(text: str) -> str:
    """The text with its commented-out settings uncommented."""
    return re.sub(r"^# ?(?=( {2})*[a-z_]+:)", "", text, flags=re.MULTILINE)


def test_everything_shipped_loads_without_a_warning(loaded: Loaded) -> None:
    assert [problem.render() for problem in loaded.warnings] == []


def test_no_shipped_provider_has_a_warning_when_it_is_on(loaded: Loaded) -> None:
    """An operator would see such a warning at every start and could not fix it."""
    on = [replace(provider, off="") for provider in loaded.gateway.providers.values()]
    assert [problem.render() for provider in on for problem in provider_warnings(provider)] == []


def test_mappings_that_are_not_needed_are_only_listed() -> None:
    mappings = load_mappings(ROOT / "gateway.yaml", environ={}, needed={"chat", "cohere"}).mappings
    assert [name for name, document in mappings.items() if document.text] == [
        "chat",
        "cohere",
    ] and "messages" in mappings


def test_only_the_sandbox_needs_no_secret(loaded: Loaded) -> None:
    assert [p.name for p in loaded.gateway.providers.values() if not p.off] == ["sandbox-images", "sandbox"]


def test_some_models_have_several_routes(loaded: Loaded) -> None:
    routes: dict[str, set[str]] = {}
    for provider in loaded.gateway.providers.values():
        for model in provider.models:
            routes.setdefault(model.id, set()).add(provider.name)
    assert routes["openai/gpt-5.2"] >= {"openai", "azure-openai", "openrouter"}
    assert routes["anthropic/claude-opus-5.5"] >= {"anthropic", "bedrock", "vertex", "azure-ai", "openrouter"}
    assert sum(len(providers) > 2 for providers in routes.values()) > 130


def test_every_chat_and_embedding_model_has_a_price(loaded: Loaded) -> None:
    assert [
        m.id for p in loaded.gateway.providers.values() for m in p.models if m.type != "image" and not m.price
    ] == []


def test_the_gateway_file_documents_every_key_with_its_default() -> None:
    document = read_text(uncommented((ROOT / "gateway.yaml").read_text("utf-8")), "gateway.yaml")
    problems, root = check_shape(document, "gateway")
    assert [problem.render() for problem in document.problems + problems] == []
    written = plain(root, floats=True)
    assert written.keys() == gateway_schema()["properties"].keys()
    for name, block in gateway_schema()["properties"].items():
        block = next((form for form in block.get("anyOf", ()) if "properties" in form), block)
        if "properties" not in block:
            assert written[name] == block["default"], name
            continue
        for key, schema in block["properties"].items():
            default = schema["default"]
            assert written[name][key] == (pytest.approx(default) if isinstance(default, float) else default), (
                f"{name}.{key}"
            )
        assert written[name].keys() == block["properties"].keys()


def test_the_shipped_gateway_file_sets_nothing() -> None:
    root = read_text((ROOT / "gateway.yaml").read_text("utf-8"), "gateway.yaml").root
    assert isinstance(root, Map)
    assert root.entries == {}


@pytest.mark.parametrize("path", [ROOT / "gateway.yaml", *PROVIDERS], ids=lambda path: path.name)
def test_every_file_names_its_schema_for_editors(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    schema = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert schema, first
    assert Path(os.path.normpath(path.parent / schema[1])).is_file()


def test_every_example_of_every_shipped_file_passes() -> None:
    """Including those of providers that are off. `tests/mappings` runs only those of mappings."""
    report = check(ROOT / "gateway.yaml")
    assert [problem.render() for problem in report.problems] == []
    assert report.compiled is not None and len(report.compiled.providers) > 60
