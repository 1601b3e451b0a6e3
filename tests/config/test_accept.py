"""The fast check accepts exactly what jsonschema accepts."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from support.places import ROOT
from tollgate.config.accept import compile_accept
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.included import read_whole
from tollgate.config.load import plain, read_file, read_text
from tollgate.config.provider_schema import models_schema, provider_schema, shared_schema

FILES = sorted((ROOT / "providers").glob("**/*.yaml"))
SCHEMAS = {
    "gateway": gateway_schema(),
    "provider": provider_schema(),
    "models": models_schema(),
    "shared": shared_schema(),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_unknown_key_passes_in_no_schema(kind: str) -> None:
    assert not compile_accept(SCHEMAS[kind])(read_text("no_such_key: 1", "x").root)


def test_the_shipped_gateway_yaml_passes_the_fast_check() -> None:
    assert compile_accept(SCHEMAS["gateway"])(read_file(ROOT / "gateway.yaml").root)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "providers")))
def test_every_shipped_file_passes_the_fast_check(path: Path) -> None:
    kind = path.parent.name if path.parent.name in SCHEMAS else "provider"
    assert compile_accept(SCHEMAS[kind])((read_whole(path) if kind == "provider" else read_file(path)).root)


SEED = """
provider: acme
url: https://api.acme.example/v1
speaks: {chat: /chat, embeddings: {path: /embed, batch: 12, framing: sse, models: ["a/*"]}}
headers: {Authorization: "Bearer {{ $secret.K }}"}
errors: {retry: [429, 500], rules: [{when: "$.a == 1", verdict: next, alarm: balance, status: [200], as: 500}]}
usage: {excludes: [reasoning]}
policies: [{match: ["a/*"], can: {x: true}, request: [{drop: [y]}], priority: 2}]
timeouts: {first_byte: 1.5}
models:
  acme/large:
    upstream: large
    aliases: [l]
    created: 5
    context: 100
    modalities: {input: [text], output: [text]}
    encoding: cl100k_base
    parameters: [temperature]
    retires: 2027-01-31
    price:
      prompt: "0.30"
      unit: 1000000
      currency: USD
      volumes: [{min_prompt_tokens: 5, prompt: 1}]
      service_tiers: {flex: {prompt: "0.1"}}
      windows: [{start: "16:30", end: "00:30", days: [1, 2], prices: {prompt: "0.1"}}]
"""


def mutations(seed: int) -> Any:
    """The seed with one random change."""
    rng = random.Random(seed)
    tree = copy.deepcopy(plain(read_text(SEED, "x").root))
    node: Any = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        match rng.randrange(5):
            case 0:
                del node[key]
            case 1:
                node[key] = rng.choice(
                    [None, True, "", "x", -1, 0, 7, 10**9, [], {}, ["x"], {"x": 1}, 429, "chat", "$.x", "next"]
                )
            case 2 if isinstance(node, dict):
                node[rng.choice(["x", "price", "path", "URL/x", "acme/b c", "status", "unit"])] = node[key]
            case 3 if isinstance(node, list):
                node.append(copy.deepcopy(node[key]))
            case _:
                node[key] = [node[key], node[key]]
        return tree


@pytest.mark.parametrize("block", range(10))
def test_the_fast_check_agrees_with_the_validator(block: int) -> None:
    accepts, validator = compile_accept(SCHEMAS["provider"]), Draft202012Validator(SCHEMAS["provider"])
    missed = 0
    for seed in range(block * 150, block * 150 + 150):
        tree = mutations(seed)
        document = read_text(json.dumps(tree, default=str), "x")
        valid = validator.is_valid(plain(document.root))
        accepted = accepts(document.root)
        assert valid or not accepted, tree
        missed += valid and not accepted
    assert missed == 0


def test_an_unknown_schema_keyword_is_an_error() -> None:
    with pytest.raises(NotImplementedError, match="dependentRequired"):
        compile_accept({"type": "object", "dependentRequired": {"a": ["b"]}})
