"""Models and policies in separate files: which entry wins, where mistakes are reported, and when the files are read."""

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


def test_the_provider_s_own_entry_wins(folder: Path) -> None:
    found = models(folder)
    assert {name: model.name for name, model in found.items()} == {"acme/a": "By hand", "acme/b": "Made"}


def test_a_policy_sets_the_priority_of_its_models(folder: Path) -> None:
    assert {name: model.priority for name, model in models(folder).items()} == {"acme/a": 0, "acme/b": 7}


def test_a_models_file_is_watched_for_changes(folder: Path) -> None:
    files = load_gateway(folder, environ=ON).gateway.files
    assert folder / "providers" / "models" / "acme.yaml" in files


def test_the_models_file_of_a_disabled_provider_is_not_read(folder: Path) -> None:
    assert list(models(folder, {})) == ["acme/a"]
    assert list(models(folder, {}, everything=True)) == ["acme/a", "acme/b"]


def test_a_mistake_in_a_models_file_is_reported_there(folder: Path) -> None:
    (folder / "providers" / "models" / "acme.yaml").write_text(
        MODELS.replace('name: Made, price: {prompt: "3"', 'nmae: Made, price: {prompt: "3"')
    )
    with pytest.raises(ConfigErrors) as caught:
        load_gateway(folder, environ=ON)
    message = str(caught.value)
    assert "models/acme.yaml:5:12: models.acme/b: found unknown key `nmae`" in message
    assert "acme/b: {nmae: Made" in message


def test_a_price_warning_has_the_line_of_the_models_file_and_can_be_silenced(folder: Path) -> None:
    loaded = load_gateway(folder, environ=ON)
    [warning] = loaded.warnings
    assert "below the prompt price" in warning.message
    assert 'completion: "1"' in warning.line_text
    file = folder / "providers" / "models" / "acme.yaml"
    file.write_text(MODELS.replace('completion: "1"', 'completion: "1", why: it only classifies'))
    assert load_gateway(folder, environ=ON).warnings == ()


def test_a_missing_models_file_is_reported(folder: Path) -> None:
    (folder / "providers" / "models" / "acme.yaml").unlink()
    with pytest.raises(ConfigErrors, match='models_from.*found no file "models/acme.yaml"'):
        load_gateway(folder, environ=ON)


def test_an_endpoint_may_serve_only_some_models(folder: Path) -> None:
    provider = load_gateway(folder, environ=ON).gateway.providers["acme"]
    serves = {
        model.id: [name for name, endpoint in provider.endpoints.items() if endpoint.serves(model)]
        for model in provider.models
    }
    assert serves == {"acme/a": ["chat", "responses"], "acme/b": ["chat"]}


def test_a_model_without_an_endpoint_is_an_error(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(PROVIDER.replace("chat: /chat/completions, ", ""))
    with pytest.raises(ConfigErrors, match="models.acme/b: found a model of type chat, but no endpoint serves it"):
        load_gateway(folder, environ=ON)


POLICIES = """
policies:
  - {match: "acme/a", priority: 9}
  - {match: "acme/b", priority: 8, request: [{drop: [top_k]}]}
"""


def test_shared_policies_follow_the_provider_s_own(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES)
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.txt\n")
    provider = load_gateway(folder, environ=ON).gateway.providers["acme"]
    assert [policy.priority for policy in provider.policies] == [7, 9, 8]
    assert {model.id: model.priority for model in provider.models} == {"acme/a": 9, "acme/b": 8}


def test_a_mistake_in_shared_policies_is_reported_there(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES.replace("drop", "dorp"))
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.txt\n")
    with pytest.raises(ConfigErrors) as caught:
        build_runtime(load_gateway(folder, environ=ON))
    [problem] = caught.value.problems
    assert (Path(problem.mark.file).name, problem.mark.line) == ("shared.txt", 4)
    assert "dorp: [top_k]" in problem.line_text


def test_a_shared_policy_may_match_no_model_of_the_provider(folder: Path) -> None:
    (folder / "providers" / "shared.txt").write_text(POLICIES.replace("acme/a", "other/*"))
    own = PROVIDER.replace('match: "acme/b"', 'match: "acme/c"')
    (folder / "providers" / "acme.yaml").write_text(own + "shared: shared.txt\n")
    assert not any("fits no model" in each.message for each in load_gateway(folder, environ=ON).warnings), (
        "the next import may add a match"
    )
    (folder / "providers" / "models" / "acme.yaml").write_text(MODELS.replace("from: {provider: acme}\n", ""))
    [warning] = [each for each in load_gateway(folder, environ=ON).warnings if "fits no model" in each.message]
    assert 'found "acme/c"' in warning.message


def test_a_mistake_in_a_shared_function_has_its_exact_place(folder: Path) -> None:
    """Quoted labels are found as well: `"true"` is text."""
    (folder / "providers" / "shared.yaml").write_text(
        'define:\n  word($c):\n    {$match: $c, "true": one, $else: "the {{ $c | jsn }}"}\n'
    )
    (folder / "providers" / "acme.yaml").write_text(PROVIDER + "shared: shared.yaml\n")
    (folder / "gateway.yaml").write_text("providers: [providers/acme.yaml]\n")
    with pytest.raises(ConfigErrors) as raised:
        build_runtime(load_gateway(folder / "gateway.yaml", environ=ON))
    messages = [problem.render(source=False) for problem in raised.value.problems]
    assert messages[0].endswith("shared.yaml:3:51: unknown filter `jsn` (did you mean `json`?)")
