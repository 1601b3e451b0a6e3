"""The messages of `shape.py`, and that they agree with JSON Schema."""

import json
from typing import Literal

import pytest
from jsonschema import Draft202012Validator

from support.places import ROOT
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.load import read_text
from tollgate.config.provider_schema import provider_schema
from tollgate.config.schema import EDIT_BESIDE, EDIT_VERBS
from tollgate.config.schema_export import export
from tollgate.config.shape import check_shape
from tollgate.mapping.edits.reading import BESIDE, VERBS

SCHEMAS = {"gateway": gateway_schema(), "provider": provider_schema()}
PACKAGE = ROOT / "src" / "tollgate" / "schemas"


def nodes(schema: object, path: str = ""):
    if isinstance(schema, dict):
        yield path, schema
        for key, value in schema.items():
            if key in ("properties", "$defs"):
                for name, inner in value.items():
                    yield from nodes(inner, f"{path}.{name}")
            elif key in ("items", "additionalProperties"):
                yield from nodes(value, f"{path}[]")
            elif key == "anyOf":
                for inner in value:
                    yield from nodes(inner, path)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schema_is_a_valid_schema(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_record_is_closed_and_every_key_has_a_description(kind: str) -> None:
    for path, node in nodes(SCHEMAS[kind]):
        if "properties" in node:
            assert node.get("additionalProperties", True) is not True, path
            for name, inner in node["properties"].items():
                assert "description" in inner or "$ref" in inner, f"{path}.{name}"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_shipped_schema_is_the_one_that_validates(kind: str) -> None:
    """Written by `tollgate check --write-schema src/tollgate/schemas`."""
    name = f"{kind}.schema.json"
    assert json.loads((PACKAGE / name).read_text("utf-8")) == json.loads(json.dumps(export()[name]))


def test_our_own_keywords_are_not_exported() -> None:
    found = {key for schema in export().values() for _, node in nodes(schema) for key in node}
    assert not {"wanted", "hidden", "editor"} & found


FOR_EDITORS = {
    "an option unknown to any kind of auth": ({"auth": {"kind": "oauth_client", "tokenurl": "x"}}, "tokenurl"),
    "a misspelt edit": ({"request": [{"renam": {"a": "b"}}]}, "renam"),
    "a misspelt key of an endpoint": ({"speaks": {"chat": {"pth": "/chat"}}}, "pth"),
    "a misspelt key of polling": ({"speaks": {"chat": {"path": "/c", "poll": {"whle": "$.x"}}}}, "whle"),
}


@pytest.mark.parametrize("written, unknown", FOR_EDITORS.values(), ids=FOR_EDITORS)
def test_an_editor_reports_a_misspelt_key_once(written: dict, unknown: str) -> None:
    """With the exported schema alone: one error each, for the form that was meant."""
    [error] = Draft202012Validator(export()["provider.schema.json"]).iter_errors({"provider": "acme", **written})
    assert unknown in error.message and error.validator == "additionalProperties"


def test_the_editor_schema_has_all_edit_verbs() -> None:
    kinds = {"[": "array", "{": "object", "t": "string"}
    assert {name: kinds[verb.takes[0]] for name, verb in VERBS.items()} == EDIT_VERBS
    assert set(BESIDE) == set(EDIT_BESIDE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speaks: {chat: [1]}", "found a list, wanted a path starting with /, or a map"),
        ("speaks: {chat: {path: x, pth: y}}", "found unknown key `pth`"),
        ("speaks: {chat: {path: x, enclosing: multipart}}", "found unknown key `enclosing`"),
        ("speaks: {}", "found an empty map, wanted at least one entry"),
        ("policies: [{match: []}]", "found an empty list, wanted at least one entry"),
        ("usage: {excludes: [reasoning, reasoning]}", "found an entry twice, wanted each once"),
        ("discover: {url: x, model: {id: $.id}}", "found no `list`, wanted where the entries are"),
        ("models: {a/b: {retires: tomorrow}}", 'found "tomorrow", wanted a date like 2027-01-31'),
        ("models: {a/b: {retires: 2027-13-01}}", 'found "2027-13-01", wanted a date like 2027-01-31'),
        ("models: {a/b: {public: on}}", 'found "on", wanted true or false'),
        ("timeouts: {connect: 100000}", "found 100000, wanted a number of seconds above 0 and at most 86400"),
        ("models: {a/b: {max_inputs: 0}}", "found 0, wanted a whole number from 1 to 1000000"),
        ("auth: {region: eu}", "found no `kind`"),
        ("headers: {a: [x]}", "found a list, wanted text, a number or a map"),
    ],
)
def test_a_mistake_is_reported_once_without_alternative_forms(text: str, message: str) -> None:
    document = read_text(f"provider: acme\n{text}\n", "acme.yaml")
    problems, _ = check_shape(document, "provider")
    assert message in problems[0].message
    assert len({problem.path for problem in problems}) == len(problems)


@pytest.mark.parametrize(
    ("written", "hint"), [("15m", "write 900"), ("5s", "write 5"), ("2 h", "write 7200"), ("soon", ""), ("1d", "")]
)
def test_a_duration_with_a_unit_has_a_hint_in_seconds(written: str, hint: str) -> None:
    problems, _ = check_shape(read_text(f"timeouts: {{total: {written}}}\n", "gateway.yaml"), "gateway")
    assert [(problem.message, problem.hint) for problem in problems] == [
        (f'found "{written}", wanted a number of seconds above 0', hint)
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("gateway", "store: {url: 'postgresql:/me:canary@db.example/x'}\n"),
        ("gateway", "store: me:canary@db.example/x\n"),
        ("provider", "provider: acme\nproxy: me:canary@proxy.example:3128\n"),
    ],
)
def test_a_password_in_a_malformed_address_is_not_shown(kind: Literal["gateway", "provider"], text: str) -> None:
    """Only passwords behind `//` were masked in the line below a mistake, which the log and the pages show."""
    problems, _ = check_shape(read_text(text, "a.yaml"), kind)
    shown = "\n".join(problem.render() for problem in problems)
    assert "found something else" in shown and "canary" not in shown


def test_invalid_parts_are_removed_and_the_rest_is_kept() -> None:
    document = read_text(
        "provider: acme\nwieght: 1\nmodels: {a/b: {context: x, name: A}}\nproxy: http://p.example\n", "acme.yaml"
    )
    _, root = check_shape(document, "provider")
    assert list(root.entries) == ["provider", "models", "proxy"]
    assert list(root.entries["models"].entries["a/b"].entries) == ["name"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('models: {"acme/large\\n": {}}', 'found "acme/large ", wanted a canonical id vendor/model'),
        ('models: {acme/large: {aliases: ["large\\n"]}}', 'found "large ", wanted a name without blanks'),
        ('models: {acme/large: {price: {currency: "USD\\n"}}}', "wanted a currency code of three capital letters"),
    ],
)
def test_a_name_with_a_line_break_at_its_end_is_none(text: str, message: str) -> None:
    """Python's `$` also matches before it. A list of models may have such an id."""
    document = read_text(f"provider: acme\nspeaks: {{chat: /c}}\nurl: https://acme.example\n{text}\n", "acme.yaml")
    problems, _ = check_shape(document, "provider")
    assert len(problems) == 1 and message in problems[0].render(source=False)
