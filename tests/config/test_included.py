"""Models and policies in files of their own: which wins, where mistakes are shown, and when they are read at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors
from tollgate.runtime import build_runtime

pytestmark = pytest.mark.usefixtures("shipped_mappings")

PROVIDER = """
provider: acme
url: https://api.acme.example/v1
speaks: {chat: /chat/completions, responses: {path: /responses, models: "!acme/b*"}}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}
policies: [{match: "acme/b", priority: 7}]
models_from: models/acme.yaml
models:
  acme/a: {name: By hand, price: {prompt: "1", unit: 1000000}}
"""
MODELS = """
from: {provider: acme}
models:
  acme/a: {name: Made, price: {prompt: "2", unit: 1000000}}
  acme/b: {name: Made, price: {prompt: "3", completion: "1", unit: 1000000}}
"""
ON = {"ACME_KEY": "x"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "providers" / "models").mkdir(parents=True)
    (tmp_path / "providers" / "acme.yaml").write_text(PROVIDER)
    (tmp_path / "providers" / "models" / "acme.yaml").write_text(MODELS)
    return tmp_path


def models(folder: Path, environ=ON, **more):
    return {model.id: model for model in load_gateway(folder, environ=environ, **more).gateway.providers["acme"].models}


def test_the_providers_own_entry_wins(folder: Path) -> None:
    found = models(folder)
    assert {name: model.name for name, model in found.items()} == {"acme/a": "By hand", "acme/b": "Made"}


def test_a_policy_may_say_the_priority_of_its_models(folder: Path) -> None:
    assert {name: model.priority for name, model in models(folder).items()} == {"acme/a": 0, "acme/b": 7}


def test_the_file_is_watched_for_changes(folder: Path) -> None:
    files = load_gateway(folder, environ=ON).gateway.files
    assert folder / "providers" / "models" / "acme.yaml" in files


def test_a_provider_that_is_off_is_spared_the_reading(folder: Path) -> None:
    assert list(models(folder, {})) == ["acme/a"]
    assert list(models(folder, {}, everything=True)) == ["acme/a", "acme/b"]


def test_a_mistake_is_shown_where_it_stands(folder: Path) -> None:
    (folder / "providers" / "models" / "acme.yaml").write_text(
        MODELS.replace('name: Made, price: {prompt: "3"', 'nmae: Made, price: {prompt: "3"')
    )
    with pytest.raises(ConfigErrors) as caught:
        load_gateway(folder, environ=ON)
    said = str(caught.value)
    assert "models/acme.yaml:5:12: models.acme/b: found unknown key `nmae`" in said
    assert "acme/b: {nmae: Made" in said


def test_a_warning_about_a_price_shows_the_line_of_the_models_file_and_can_be_explained(folder: Path) -> None:
    loaded = load_gateway(folder, environ=ON)
    [warning] = loaded.warnings
    assert "below the prompt price" in warning.message
    assert 'completion: "1"' in warning.line_text
    file = folder / "providers" / "models" / "acme.yaml"
    file.write_text(MODELS.replace('completion: "1"', 'completion: "1", why: it only classifies'))
    assert load_gateway(folder, environ=ON).warnings == ()


def test_a_missing_file_is_said(folder: Path) -> None:
    (folder / "providers" / "models" / "acme.yaml").unlink()
    with pytest.raises(ConfigErrors, match='models_from.*found no file "models/acme.yaml"'):
        load_gateway(folder, environ=ON)


def test_an_endpoint_may_serve_some_models_only(folder: Path) -> None:
    provider = load_gateway(folder, environ=ON).gateway.providers["acme"]
    serves = {
        model.id: [name for name, endpoint in provider.endpoints.items() if endpoint.serves(model)]
        for model in provider.models
    }
    assert serves == {"acme/a": ["chat", "responses"], "acme/b": ["chat"]}


def test_a_model_no_endpoint_serves_is_a_mistake(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(PROVIDER.replace("chat: /chat/completions, ", ""))
    with pytest.raises(ConfigErrors, match="models.acme/b: found a model of type chat, but no endpoint serves it"):
        load_gateway(folder, environ=ON)


POLICIES = """
policies:
  - {match: "acme/a", priority: 9}
  - {match: "acme/b", priority: 8, request: [{drop: [top_k]}]}
"""


def test_policies_of_a_file_come_after_the_providers_own(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES)
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.txt\n")
    provider = load_gateway(folder, environ=ON).gateway.providers["acme"]
    assert [policy.priority for policy in provider.policies] == [7, 9, 8]
    assert {model.id: model.priority for model in provider.models} == {"acme/a": 9, "acme/b": 8}


def test_a_mistake_in_shared_policies_is_shown_there(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES.replace("drop", "dorp"))
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.txt\n")
    with pytest.raises(ConfigErrors) as caught:
        build_runtime(load_gateway(folder, environ=ON))
    [problem] = caught.value.problems
    assert (Path(problem.mark.file).name, problem.mark.line) == ("shared.txt", 4)
    assert "dorp: [top_k]" in problem.line_text


def test_a_shared_policy_may_be_for_models_of_other_providers(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES.replace("acme/a", "other/*"))
    own = PROVIDER.replace('match: "acme/b"', 'match: "acme/c"')
    (folder / "providers" / "acme.yaml").write_text(own + "shared: shared.txt\n")
    assert not any("fits no model" in each.message for each in load_gateway(folder, environ=ON).warnings), (
        "the next import may bring it"
    )
    (folder / "providers" / "models" / "acme.yaml").write_text(MODELS.replace("from: {provider: acme}\n", ""))
    [warning] = [each for each in load_gateway(folder, environ=ON).warnings if "fits no model" in each.message]
    assert 'found "acme/c"' in warning.message


def test_a_mistake_inside_a_function_of_a_shared_file_is_shown_at_its_letter(folder: Path) -> None:
    """Labels in quotes are looked up there as well: `"true"` is a text."""
    (folder / "providers" / "shared.yaml").write_text(
        'define:\n  word($c):\n    {$match: $c, "true": one, $else: "the {{ $c | jsn }}"}\n'
    )
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.yaml\n")
    (folder / "gateway.yaml").write_text("providers: [providers/acme.yaml]\n")
    with pytest.raises(ConfigErrors) as raised:
        build_runtime(load_gateway(folder / "gateway.yaml", environ=ON))
    said = [problem.render(source=False) for problem in raised.value.problems]
    assert said[0].endswith("shared.yaml:3:51: unknown filter `jsn` (did you mean `json`?)")
