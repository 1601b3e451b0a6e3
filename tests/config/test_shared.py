"""Parts that several provider files share: what wins, what is joined, where mistakes are reported, and when the files
are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from support.files import write_file
from support.places import ROOT
from tollgate.config.build import load_gateway
from tollgate.config.included import over_shared
from tollgate.config.load import plain, read_text
from tollgate.config.reusable_bytes import dump_reusable, load_reusable
from tollgate.errors import ConfigErrors
from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure
from tollgate.runtime import build_runtime

OWN = """
provider: {name}
shared: [shared/acme.yaml]
vars: {{host: {name}.example}}
policies: [{{match: acme/large, can: {{first: true}}}}]
models:
  acme/large: {{price: {{prompt: "1", completion: "2"}}}}
"""
SHARED = """
url: "https://{{ $vars.host }}/v1"
speaks: {chat: /chat, responses: {path: /answers, models: "other/*"}}
headers: {x-key: $secret.ACME_KEY}
request: [{drop: [user]}]
errors: {message: $.no, retry: [429], rules: [{when: $.late, verdict: later}]}
policies: [{match: "*", protocols: [chat, responses], can: {second: true}}, {match: "elsewhere/*", can: {third: true}}]
models:
  acme/large: {context: 100, price: {unit: 1000000}}
examples: [{of: request, given: {user: u, a: 1}, expect: {a: 1}}]
"""


class Folder:
    """Two providers that share a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("one", "two"):
            self.write(f"{name}.yaml", OWN.format(name=name))
        self.write("shared/acme.yaml", SHARED)

    def write(self, name: str, text: str) -> None:
        write_file(self.path / "providers" / name, text)

    def load(self, previous=None, key="k", **more):
        loaded = load_gateway(self.path, environ={"ACME_KEY": key} if key else {}, previous=previous, **more)
        loaded.reusable.let_go()
        return loaded

    def mistakes(self, **more) -> list[str]:
        with pytest.raises(ConfigErrors) as caught:
            build_runtime(self.load(**more))
        return [problem.render(source=False).replace(f"{self.path}/", "") for problem in caught.value.problems]


@pytest.fixture
def files(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def merged(own: str, *others: str):
    return plain(
        over_shared(read_text(own, "own.yaml").root, [read_text(other, "other.yaml").root for other in others])
    )


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ("a: {b: 1}", "a: {b: 2, c: 3}", {"a": {"b": 1, "c": 3}}),
        ("retry: [1]", "retry: [2]", {"retry": [1]}),
        ("errors: {rules: [1]}", "errors: {rules: [2], retry: [3]}", {"errors": {"rules": [1, 2], "retry": [3]}}),
        (
            "speaks: {chat: {request: [1]}}",
            "speaks: {chat: {request: [2], path: /x}}",
            {"speaks": {"chat": {"request": [1, 2], "path": "/x"}}},
        ),
        ("speaks: {chat: /a}", "speaks: {chat: {path: /b}}", {"speaks": {"chat": "/a"}}),
        ("body: {$copy: $.a}", "body: {b: 1}", {"body": {"$copy": "$.a"}}),
        ("body: {b: 1}", "body: {$copy: $.a}", {"body": {"b": 1}}),
        ("define: {f($a): {x: 1}}", "define: {f($a): {y: 1}, g($a): 2}", {"define": {"f($a)": {"x": 1}, "g($a)": 2}}),
        ("models: {a/b: }", "models: {a/b: {context: 1}}", {"models": {"a/b": None}}),
        ("a: 1", "provider: x\nmodels_from: y\nb: 2", {"a": 1, "b": 2}),
    ],
    ids=[
        "map",
        "list",
        "rules",
        "an endpoint's edits",
        "text over map",
        "directives",
        "over directives",
        "functions",
        "null",
        "keys of providers only",
    ],
)
def test_the_own_file_wins(own, other, expected):
    assert merged(own, other) == expected


def test_the_first_of_several_shared_files_wins():
    assert merged("a: {}", "a: {b: 1}\npolicies: [1]", "a: {b: 2, c: 3}\npolicies: [2]") == {
        "a": {"b": 1, "c": 3},
        "policies": [1, 2],
    }


def test_a_provider_combines_both_files(files):
    offer = build_runtime(files.load()).providers["two"].offers["acme/large"][0]
    assert offer.url(stream=False) == "https://two.example/v1/chat" and offer.headers()["x-key"] == "k"
    assert (offer.model.context, offer.model.price.unit, dict(offer.can)) == (
        100,
        1000000,
        {"first": True, "second": True},
    )
    assert offer.request_edits({"user": "u", "a": 1}, Context()) == {"a": 1}
    verdict = offer.errors.judge(400, {}, {"late": True, "no": "later"})
    assert (verdict.kind, verdict.message) == ("later", "later")


def test_an_unset_secret_of_a_shared_file_disables_its_providers(files):
    assert [p.off for p in files.load(key=None).gateway.providers.values()] == ["secret ACME_KEY is not set"] * 2


def test_shared_policies_may_be_for_other_endpoints_and_models(files):
    files.write("shared/acme.yaml", SHARED.replace(', responses: {path: /answers, models: "other/*"}', ""))
    assert files.load(everything=True).warnings == ()
    files.write("shared/acme.yaml", SHARED.replace("[chat, responses]", "[caht]"))
    assert 'found "caht"' in files.mistakes()[0]


@pytest.mark.usefixtures("shipped_mappings")
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "verdict: later",
            "verdict: latr",
            (
                'providers/shared/acme.yaml:6:71: errors.rules[0].verdict: found "latr", wanted "later", "next" or '
                '"stop" '
                "(did you mean `later`?)"
            ),
        ),
        ("drop: [user]", "dorp: [user]", "providers/shared/acme.yaml:5:12: unknown edit `dorp` (did you mean `drop`?)"),
        (
            "$vars.host",
            "$vars.hots",
            "providers/shared/acme.yaml:2:18: `$vars` has no field `hots` (did you mean `host`?)",
        ),
        (
            "url:",
            "ca_file: a.pem\nurl:",
            (
                "providers/shared/acme.yaml:2:1: ca_file: found `ca_file`, which stands in the provider's own file, "
                "wanted no such key in a shared one"
            ),
        ),
        (
            "$secret.ACME_KEY",
            "$secret.",
            (
                "providers/shared/acme.yaml:4:18: headers.x-key: found `$secret` without a proper name, wanted "
                "`$secret.NAME`"
            ),
        ),
        (
            "policies:",
            "policies_from: x\npolicies:",
            "providers/shared/acme.yaml:7:1: found unknown key `policies_from`, wanted a known one",
        ),
    ],
    ids=["shape", "edit", "name", "key", "secret", "unknown"],
)
def test_a_mistake_in_a_shared_file_is_reported_once_in_its_place(files, before, after, message):
    files.write("shared/acme.yaml", SHARED.replace(before, after))
    found = files.mistakes()
    assert found[0].startswith(message), found
    assert len(found) == len(set(found))


def test_invalid_yaml_in_a_shared_file_is_the_only_mistake_reported(files):
    files.write("shared/acme.yaml", SHARED.replace("headers: {", "headers: {{"))
    assert len(files.mistakes()) == 1
    files.write("shared/acme.yaml", "- a\n")
    assert files.mistakes()[0].startswith(
        "providers/shared/acme.yaml:1:1: found a list, wanted a map: parts of a provider file"
    )


def test_a_missing_shared_file_is_reported_without_its_consequences(files):
    files.write("one.yaml", OWN.format(name="one").replace("shared/acme", "shared/acne"))
    assert [line for line in files.mistakes() if "one.yaml" in line] == [
        'providers/one.yaml:3:10: shared[0]: found no file "shared/acne.yaml" (relative to this file)'
    ]


@pytest.mark.usefixtures("shipped_mappings")
def test_an_example_of_a_shared_file_is_run_for_each_provider(files):
    from tollgate.mapping.provider import run_provider_examples

    files.write("shared/acme.yaml", SHARED.replace("expect: {a: 1}", "expect: {a: 2}"))
    providers = build_runtime(files.load(everything=True), everything=True).providers
    for name in ("one", "two"):
        [problem] = run_provider_examples(providers[name])
        assert problem.mark.file.endswith("shared/acme.yaml") and "differs" in problem.message


def test_a_changed_shared_file_affects_all_its_providers(files):
    first = files.load()
    again = files.load(first.reusable)
    assert all(again.gateway.providers[name] is first.gateway.providers[name] for name in ("one", "two"))
    assert files.path / "providers" / "shared" / "acme.yaml" in again.gateway.files
    files.write(
        "shared/acme.yaml",
        SHARED.replace("context: 100", "context: 200").replace("$secret.ACME_KEY", "$secret.OTHER_KEY?"),
    )
    second = files.load(again.reusable, key=None)
    assert [(p.off, p.models[0].context) for p in second.gateway.providers.values()] == [("", 200)] * 2
    assert build_runtime(second).providers["one"].offers["acme/large"][0].model.context == 200


def test_a_start_from_the_cache_restores_providers_with_shared_files(files, monkeypatch):
    monkeypatch.chdir(files.path)
    reusable = load_reusable(dump_reusable(files.load().reusable))
    again = files.load(reusable)
    assert all(
        again.gateway.providers[name] is reusable.sources[f"providers/{name}.yaml"].provider for name in ("one", "two")
    )
    assert (
        build_runtime(again).providers["one"].offers["acme/large"][0].url(stream=False) == "https://one.example/v1/chat"
    )


@pytest.mark.usefixtures("shipped_mappings")
def test_a_runtime_failure_is_located_in_its_file(files):
    files.write("one.yaml", OWN.format(name="one") + "request: [{set: {a: 1}}]\n")
    files.write("shared/acme.yaml", SHARED.replace("drop: [user]", 'set: {n: "{{ $.n | parse_json }}"}'))
    offer = build_runtime(files.load()).providers["one"].offers["acme/large"][0]
    assert offer.request_edits({"n": "[1]"}, Context()) == {"a": 1, "n": [1]}
    with pytest.raises(MappingFailure) as caught:
        offer.request_edits({"n": "{"}, Context())
    assert caught.value.place.endswith("shared/acme.yaml:5")


def test_the_examples_of_the_shipped_marked_text_file_pass(tmp_path):
    from tollgate.mapping.provider import run_provider_examples

    shipped = ROOT / "providers"
    own = (shipped / "vllm.yaml").read_text().replace("shared: [", "shared: [shared/marked-text.yaml, ")
    shutil.copytree(shipped / "shared", tmp_path / "providers" / "shared")
    (tmp_path / "providers" / "vllm.yaml").write_text(own)
    loaded = load_gateway(tmp_path, environ={"VLLM_URL": "http://127.0.0.1:9"}, everything=True)
    compiled = build_runtime(loaded, everything=True).providers["vllm"]
    names = [plain(example)["name"] for example in compiled.config.examples.items]
    shared = yaml.safe_load((shipped / "shared" / "marked-text.yaml").read_text())["examples"]
    assert {example["name"] for example in shared} < set(names)
    assert run_provider_examples(compiled) == []
