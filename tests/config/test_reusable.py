"""A second load parses only what changed, and has the same result as a first one."""

from __future__ import annotations

import pytest

from support.files import write_file
from tollgate.config import file_reader, load
from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors

PROVIDER = """
provider: {name}
url: https://{name}.example/v1
speaks: {{chat: /chat/completions}}
headers: {{Authorization: "Bearer {{{{ $secret.{key} }}}}"}}
models_from: [models/{name}.yaml]
models: {{{name}/own: {{aliases: [{alias}]}}}}
examples: [{{about: left unread}}]
"""
MODELS = 'models:\n  {name}/large: {{price: {{prompt: "{price}", completion: "2", unit: 1000000}}}}\n'
SAME_MODEL = """provider: {name}
models: {{acme/one: {{price: {{prompt: "{price}", completion: "{price}", unit: 1000000, currency: USD}}}}}}
url: https://{name}.example/v1
speaks: {{chat: /chat/completions}}
"""


class Folder:
    def __init__(self, path):
        self.path = path
        self.environ = {"ONE_KEY": "1", "TWO_KEY": "2"}
        self.write("gateway.yaml", "")
        for name in ("one", "two"):
            self.provider(name)
            self.models(name, "1")

    def write(self, name, text):
        write_file(self.path / name, text)

    def provider(self, name, alias=""):
        self.write(
            f"providers/{name}.yaml",
            PROVIDER.format(name=name, key=f"{name.upper()}_KEY", alias=alias or f"{name}-small"),
        )

    def models(self, name, price):
        self.write(f"providers/models/{name}.yaml", MODELS.format(name=name, price=price))

    def load(self, previous=None):
        loaded = load_gateway(
            self.path / "gateway.yaml", environ=self.environ, previous=previous.reusable if previous else None
        )
        loaded.reusable.let_go()
        return loaded


@pytest.fixture
def files(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def parsed(monkeypatch):
    """The names of parsed YAML files."""
    names = []
    before = load.read_text

    def read_text(text, name):
        names.append(name.rpartition("/")[2])
        return before(text, name)

    monkeypatch.setattr(load, "read_text", read_text)
    return names


def _facts(loaded):
    return {
        provider.name: (
            provider.off,
            [(model.id, model.aliases, model.price and dict(model.price.prices)) for model in provider.models],
        )
        for provider in loaded.gateway.providers.values()
    }


def test_a_load_parses_no_file_twice(files, parsed):
    files.environ.pop("TWO_KEY")
    files.load()
    assert parsed.count("one.yaml") == 2  # the provider's file and its models file
    assert parsed.count("two.yaml") == parsed.count("chat.yaml") == 1


def test_a_load_without_changes_parses_only_the_gateway_file(files, parsed):
    first = files.load()
    parsed.clear()
    second = files.load(first)
    assert parsed == ["gateway.yaml"]
    assert all(second.gateway.providers[name] is first.gateway.providers[name] for name in ("one", "two"))
    assert second.gateway.files == first.gateway.files and _facts(second) == _facts(first)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (lambda files: files.provider("two", "other"), {"two.yaml"}),
        (lambda files: files.models("two", "3"), {"two.yaml"}),
        (lambda files: files.environ.pop("TWO_KEY"), {"two.yaml"}),
        (
            lambda files: files.write(
                "providers/three.yaml",
                PROVIDER.format(name="three", key="ONE_KEY", alias="x").replace("models_from", "#"),
            ),
            {"three.yaml"},
        ),
        (lambda files: (files.path / "providers/two.yaml").unlink(), set()),
    ],
    ids=["provider", "its models", "its secret", "an added provider", "a removed provider"],
)
def test_a_load_after_a_change_equals_a_first_load(files, parsed, change, read):
    first = files.load()
    change(files)
    parsed.clear()
    second = files.load(first)
    assert set(parsed) - {"gateway.yaml"} == read
    assert second.gateway.providers["one"] is first.gateway.providers["one"]
    assert _facts(second) == _facts(files.load()) and second.notes == files.load().notes
    third = files.load(second)
    assert _facts(third) == _facts(second)


def test_a_secret_set_later_enables_a_provider_with_all_its_models(files):
    del files.environ["TWO_KEY"]
    off = files.load()
    assert off.gateway.providers["two"].off and len(off.gateway.providers["two"].models) == 1
    files.environ["TWO_KEY"] = "2"
    on = files.load(off)
    assert not on.gateway.providers["two"].off and len(on.gateway.providers["two"].models) == 2


def test_warnings_of_unchanged_files_are_reported_again(files):
    files.models("one", "9999")
    first = files.load()
    files.provider("two", "other")
    second = files.load(first)
    assert first.warnings and second.warnings == first.warnings
    files.models("one", "1")
    assert not files.load(second).warnings


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("gateway.yaml", 'credits: {rates: {CNY: "100"}}\n', ""),
        ("providers/two.yaml", SAME_MODEL.format(name="two", price="0.01"), SAME_MODEL.format(name="two", price="1")),
    ],
    ids=["an exchange rate", "another provider's price"],
)
def test_prices_are_judged_anew_when_what_they_are_judged_by_changes(files, name, wrong, right):
    """A start with a cache would not tell of a rate that has one zero too many, and go on telling of one mended."""
    files.write("providers/one.yaml", SAME_MODEL.format(name="one", price="7").replace("USD", "CNY"))
    files.write("providers/two.yaml", SAME_MODEL.format(name="two", price="1"))
    first = files.load()
    assert first.warnings == ()
    files.write(name, wrong)
    second = files.load(first)
    assert second.warnings == files.load().warnings != ()
    files.write(name, right)
    assert files.load(second).warnings == ()


def test_a_mistake_has_its_exact_place_even_if_its_file_is_unchanged(files):
    first = files.load()
    files.provider("two", "one-small")
    with pytest.raises(ConfigErrors) as fresh:
        load_gateway(files.path / "gateway.yaml", environ=files.environ)
    with pytest.raises(ConfigErrors) as again:
        files.load(first)
    assert again.value.problems == fresh.value.problems


def test_a_check_reads_everything(files, parsed):
    files.load()
    parsed.clear()
    loaded = load_gateway(files.path / "gateway.yaml", environ=files.environ, everything=True)
    assert {"one.yaml", "two.yaml", "gemini.yaml"} <= set(parsed)
    assert loaded.gateway.providers["one"].examples is not None
    assert file_reader.EXAMPLES in load.find(loaded.gateway.mappings["chat"].root, ()).entries


def test_a_released_tree_is_parsed_again_on_access(files):
    loaded = files.load()
    document = loaded.gateway.providers["one"].document
    assert load.find(document.root, ["provider"]).value == "one"
    assert str(load.find(document.root, ["models", "one/large", "price"]).mark).endswith("models/one.yaml:2:22")


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nexamples:\n- x: 1\n# end\n",
        "a: 1\r\nexamples: [1]\r\n",
        "a: |\n  text\nexamples:\n  - '\n\n    b: '\n",
    ],
    ids=["list", "crlf", "quoted"],
)
def test_the_last_key_of_a_file_can_be_skipped(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode())
    document = load.read_file(path, without="examples")
    assert list(document.root.entries) == ["a"]
    document.let_go()
    assert list(document.root.entries) == ["a"]  # nor after its tree is parsed again


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nexamples: []\nb: 2\n",
        "a: '\n\nexamples: x'\nb: 2\n",
        "a: {\nexamples: 1}\n",
        "a: [\n",
        "examples: [1]\n",
    ],
    ids=["not last", "in quotes", "in braces", "broken", "alone"],
)
def test_a_key_that_cannot_be_skipped_is_read(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    left, whole = load.read_file(path, without="examples"), load.read_file(path)
    assert load.plain(left.root) == load.plain(whole.root) and left.problems == whole.problems
