"""`tollgate models`: the catalog, from the configuration alone."""

import json

import pytest

from support.inprocess import unspoken
from tollgate.config.files import defaults_root

PROVIDER = """
provider: {name}
url: app://sandbox/v1
speaks: {{chat: /chat/completions, messages: /messages}}
priority: {priority}
models:
  acme/large: {{upstream: {name}-large, aliases: [large], context: 1000, price: {{prompt: "{price}", completion: "2.50", unit: 1000}}}}
"""  # noqa: E501


@pytest.fixture
def tollgate_with_models(tollgate):
    tollgate.write("gateway.yaml", "aliases: {best: large}\n")
    for name, priority, price in (("one", 1, "1"), ("two", 0, "0.25")):
        tollgate.write(f"providers/{name}.yaml", PROVIDER.format(name=name, priority=priority, price=price))
    tollgate.write(
        "providers/off.yaml",
        "provider: off\nurl: https://off.example/v1\nspeaks: {chat: /c}\nheaders: {x-key: "
        "$secret.NO_SUCH_KEY}\nmodels: {off/m: {}}\n",
    )
    for path in (defaults_root() / "mappings").glob("*.yaml"):
        tollgate.write(f"mappings/{path.name}", unspoken(path.stem))
    return tollgate


def test_the_table_has_prices_per_million_tokens_of_the_first_route(tollgate_with_models):
    done = tollgate_with_models("models")
    assert done.code == 0
    line = next(line for line in done.out.splitlines() if "acme/large" in line)
    assert line.split() == ["acme/large", "chat", "1000", "250", "2500", "USD", "two", "2", "best,", "large"]
    assert "off/m" not in done.out
    assert "prompt, per M" in done.out and "completion, per M" in done.out
    assert "providers are off, because a secret is not set (`tollgate check` names it): off" in done.err


def test_routes_are_listed_in_the_order_they_are_tried(tollgate_with_models):
    done = tollgate_with_models("models", "--routes")
    assert done.out.index("two-large") < done.out.index("one-large")
    assert "chat, messages" in done.out


def test_json_contains_the_catalog_entry_and_the_routes(tollgate_with_models):
    (entry,) = json.loads(tollgate_with_models("models", "--json", "--routes").out)
    assert entry["pricing"]["prompt"] == "0.25"
    assert entry["aliases"] == ["best", "large"]
    assert [route["provider"] for route in entry["routes"]] == ["two", "one"]
    assert entry["routes"][1]["price"]["prompt"] == "1"


def test_a_pattern_filters_the_list(tollgate_with_models):
    assert "acme/large" in tollgate_with_models("models", "acme/*").out
    assert "acme/large" in tollgate_with_models("models", "lar*").out
    missing = tollgate_with_models("models", "none/*")
    assert (missing.code, missing.err) == (1, "no model matches none/*\n")


def test_an_invalid_configuration_is_reported(tollgate_with_models):
    tollgate_with_models.write("providers/one.yaml", "provider: one\nspeeks: chat\n")
    done = tollgate_with_models("models")
    assert done.code == 1
    assert "did you mean `speaks`" in done.err
