"""Any text either loads or has its problems reported; it never crashes. The valid parts of a file with mistakes are
compiled all the same, as `tollgate check` does."""

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tollgate.config.build import examine_gateway
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.load import Problem
from tollgate.config.provider_schema import provider_schema
from tollgate.runtime import compile_files

PATIENT = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

KEYS = sorted(
    {
        "acme/a",
        "x",
        "chat",
        "1",
        "USD",
        "",
        *gateway_schema()["properties"],
        *provider_schema()["properties"],
        *(key for block in gateway_schema()["properties"].values() for key in block.get("properties", ())),
        *(key for part in provider_schema()["$defs"].values() for key in part.get("properties", ())),
    }
)
WORDS = st.one_of(
    st.sampled_from(
        [
            "chat",
            "$secret.X",
            "$secret.",
            "{{ $.a }}",
            "/p",
            "https://a.example",
            "0.30",
            "-1",
            "1e400",
            ":99999",
            "a/b",
            "*",
            "[::]:1",
        ]
    ),
    st.text(max_size=12),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-10, 10**12), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=25,
)


def problems_of(gateway: str, provider: str) -> list[Problem]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "providers").mkdir()
        (folder / "providers" / "acme.yaml").write_text(provider, "utf-8", newline="")
        (folder / "gateway.yaml").write_text(gateway, "utf-8", newline="")
        loaded, found = examine_gateway(folder / "gateway.yaml", environ={"X": "value"})
        problems = [*found, *(compile_files(loaded, everything=True).problems if loaded is not None else ())]
        assert all(p.mark.line >= 1 and p.mark.column >= 1 and p.message for p in problems)
        return problems


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("defaults")
    monkeypatch.setattr("tollgate.config.files.defaults_root", lambda: empty)


TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


@PATIENT
@given(TEXT, TEXT)
def test_any_text_loads_or_is_rejected_with_a_place(gateway: str, provider: str) -> None:
    problems_of(gateway, provider)


@PATIENT
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
)
def test_any_values_of_known_keys_load_or_are_rejected(gateway: dict, provider: dict) -> None:
    problems_of(
        yaml.safe_dump(gateway, allow_unicode=True),
        yaml.safe_dump({**provider, "provider": "acme"}, allow_unicode=True),
    )


@PATIENT
@given(st.data())
def test_a_valid_file_with_one_changed_value_loads_or_is_rejected(data: st.DataObject) -> None:
    good = {
        "provider": "acme",
        "url": "https://a.example/v1",
        "speaks": {
            "chat": "/c",
            "messages": {"path": "/m", "headers": {"h": "$secret.X"}, "framing": "sse"},
            "responses": {
                "path": "/r",
                "poll": {"while": "$.a", "call": "GET /r/{{ $.id }}", "hosts": ["a.example"], "every": [1, 2]},
            },
        },
        "headers": {"a": "$secret.X"},
        "auth": {"kind": "sigv4", "region": "eu"},
        "policies": [{"match": "*", "request": [{"drop": ["a"]}]}],
        "errors": {"retry": [500], "rules": [{"when": "$.a", "verdict": "next"}]},
        "models": {
            "acme/a": {
                "aliases": ["a"],
                "price": {
                    "prompt": "1",
                    "completion": "2",
                    "unit": 1000000,
                    "currency": "USD",
                    "volumes": [{"min_prompt_tokens": 5, "prompt": "2"}],
                    "windows": [{"start": "01:00", "end": "02:00", "prices": {"prompt": "1"}}],
                },
            }
        },
    }
    node: object = good
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(VALUES)
        break
    problems_of("", yaml.safe_dump(good, allow_unicode=True))


@pytest.mark.parametrize("pause", ["soon", "-1", "null", "{a: 1}", "[1]", "true"])
def test_an_invalid_polling_interval_is_reported(pause: str) -> None:
    poll = "{while: $.a, call: GET /r, every: [1, " + pause + "]}"
    provider = f"provider: acme\nurl: https://a.example\nspeaks: {{chat: {{path: /c, poll: {poll}}}}}\n"
    assert "speaks.chat.poll.every[1]" in [problem.path for problem in problems_of("", provider)]
