"""Building a runtime: its contents, what a reload reuses, and that all mistakes are reported."""

import gc
import time
from pathlib import Path

import pytest

from support.files import write_file
from support.inprocess import unspoken
from tollgate.config.build import load_gateway
from tollgate.config.files import defaults_root
from tollgate.config.load import Document, Map
from tollgate.config.model import Model
from tollgate.errors import ConfigErrors
from tollgate.mapping import plugins
from tollgate.mapping.scope import Unit
from tollgate.runtime import RuntimeHolder, build_runtime

PROVIDER = """
provider: {name}
url: https://{name}.example/v1
speaks: {{chat: /chat/completions}}
headers: {{Authorization: "Bearer {{{{ $secret.{key} }}}}"}}
priority: {priority}
models:
  acme/large: {{upstream: {name}-large, aliases: [large], price: {{prompt: "{price}", unit: 1}}}}
  {name}/own: {{}}
"""


def mapping(name: str, about: str) -> str:
    return f"{unspoken(name)}about: {about}\n"


class Files:
    """A folder with a gateway, two mappings and two providers of one model."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environ = {"ONE_KEY": "k1", "TWO_KEY": "k2"}
        self.write(
            "gateway.yaml", "mappings: ['mappings/*.yaml']\nproviders: ['providers/*.yaml']\naliases: {best: large}\n"
        )
        # leaves no built-in mapping
        for name in sorted(
            {"chat", "messages", *(path.stem for path in (defaults_root() / "mappings").glob("*.yaml"))}
        ):
            self.write(f"mappings/{name}.yaml", mapping(name, "x"))
        self.provider("one", 0, "1")
        self.provider("two", 1, "2")

    def write(self, name: str, text: str) -> None:
        write_file(self.folder / name, text)

    def provider(self, name: str, priority: int, price: str, more: str = "") -> None:
        self.write(
            f"providers/{name}.yaml",
            PROVIDER.format(name=name, key=f"{name.upper()}_KEY", priority=priority, price=price) + more,
        )

    def load(self):
        return load_gateway(self.folder / "gateway.yaml", environ=self.environ)

    def build(self, previous=None, **more):
        return build_runtime(self.load(), previous, **more)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_a_runtime_contains_everything_compiled(files):
    runtime = files.build()
    assert sorted(runtime.providers) == ["one", "two"]
    assert {"chat", "messages"} <= set(runtime.mappings)
    assert list(runtime.catalog.models) == ["acme/large", "one/own", "two/own"]
    assert [route.provider for route in runtime.catalog.models["acme/large"].routes] == ["one", "two"]
    assert runtime.catalog.resolve("best").id == "acme/large"
    assert runtime.route_names() == {"one/one-large", "two/two-large", "one/own", "two/own"}
    assert runtime.catalog.resolve("large").routes[0].offers[0].mapping is runtime.mappings["chat"]


def test_every_route_bills_the_catalog_price(files):
    model = files.build().catalog.resolve("acme/large")
    assert model.entry["pricing"]["prompt"] == "1"
    first, second = (route.ranked["chat"][0] for route in model.routes)
    assert first.tariff is second.tariff is model.tariff
    assert second.prices_text == first.prices_text == '{"prompt":"1","unit":1}'
    assert str(second.own_tariff.pricing.prices["prompt"]) == "2"


def test_every_route_keeps_the_priority_and_weight_of_its_provider(files):
    files.provider("one", 3, "1", "weight: 5\n")
    files.provider("two", 4, "2", "weight: 7\n")
    routes = files.build().catalog.resolve("acme/large").routes
    assert [(route.provider, route.priority, route.weight) for route in routes] == [("one", 3, 5), ("two", 4, 7)]


def test_a_disabled_provider_is_not_listed(files):
    del files.environ["ONE_KEY"]
    runtime = files.build()
    assert list(runtime.catalog.models) == ["acme/large", "two/own"]
    assert runtime.catalog.resolve("acme/large").entry["model_provider"] == "two"
    assert runtime.catalog.resolve("one/own") is None
    assert runtime.loaded.notes == ("provider one is off: secret ONE_KEY is not set",)


def test_a_disabled_provider_is_compiled_only_for_a_check(files):
    del files.environ["ONE_KEY"]
    files.provider("one", 0, "1", "request: [{dorp: [x]}]\n")
    assert list(files.build().providers) == ["two"]
    with pytest.raises(ConfigErrors, match="did you mean `drop`"):
        files.build(everything=True)


def test_a_reload_compiles_only_what_changed(files):
    old = files.build()
    same = files.build(old)
    assert all(same.providers[name] is old.providers[name] for name in old.providers)
    assert all(same.mappings[name] is old.mappings[name] for name in old.mappings)
    files.provider("two", 1, "3")
    new = files.build(old)
    assert new.providers["one"] is old.providers["one"]
    assert new.providers["two"] is not old.providers["two"]
    assert new.mappings["chat"] is old.mappings["chat"]
    assert str(new.catalog.resolve("acme/large").routes[1].offers[0].own_tariff.pricing.prices["prompt"]) == "3"


def test_a_reload_reuses_models_whose_routes_are_unchanged(files):
    old = files.build()
    files.provider("two", 1, "3")
    new = files.build(old)
    assert new.catalog.resolve("one/own") is old.catalog.resolve("one/own")
    assert new.catalog.resolve("two/own") is not old.catalog.resolve("two/own")
    files.provider("one", 0, "5")  # its price is also billed by the other provider's route of the model
    again = files.build(new)
    model = again.catalog.resolve("acme/large")
    assert model.entry["pricing"]["prompt"] == "5"
    assert [str(route.ranked["chat"][0].tariff.pricing.prices["prompt"]) for route in model.routes] == ["5", "5"]
    assert again.catalog.resolve("two/own") is new.catalog.resolve("two/own")


def test_a_provider_is_rebuilt_if_its_mapping_secrets_or_budgets_change(files):
    old = files.build()
    files.write("mappings/chat.yaml", mapping("chat", "changed"))
    changed = files.build(old)
    assert changed.mappings["messages"] is old.mappings["messages"]
    assert changed.providers["one"].offers["acme/large"][0].mapping is changed.mappings["chat"]
    files.environ["ONE_KEY"] = "new"
    rotated = files.build(changed)
    assert rotated.providers["one"].offers["acme/large"][0].headers()["authorization"] == "Bearer new"
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + "timeouts: {idle: 3}\n")
    assert files.build(rotated).providers["one"].offers["acme/large"][0].timeouts.idle == 3


def test_the_retry_statuses_of_the_gateway_count_for_every_provider_and_after_a_reload(files):
    first = files.build()
    settings = (files.folder / "gateway.yaml").read_text()
    files.write("gateway.yaml", settings + "retry: {statuses: [418]}\n")
    for runtime, kind in ((first, "stop"), (files.build(first), "later")):
        [offer] = runtime.catalog.models["one/own"].routes[0].offers
        assert offer.errors.judge(418, {}, {"error": {"message": "m"}}).kind == kind


def test_a_provider_is_rebuilt_if_its_models_file_changes(files):
    files.write("providers/models/more.yaml", "models: {one/more: {context: 5}}\n")
    files.provider("one", 0, "1", "models_from: [models/more.yaml]\n")
    old = files.build()
    assert old.catalog.resolve("one/more").facts.context == 5
    files.write("providers/models/more.yaml", "models: {one/more: {context: 6}}\n")
    new = files.build(old)
    assert new.catalog.resolve("one/more").facts.context == 6
    assert new.providers["two"] is old.providers["two"]


def test_all_providers_that_share_a_file_are_rebuilt_if_it_changes(files):
    files.write("providers/shared/large.yaml", "policies: [{match: acme/large, can: {reasoning: true}}]\n")
    for name in ("one", "two"):
        files.provider(name, 0, "1", "shared: shared/large.yaml\n")
    old = files.build()
    files.write("providers/shared/large.yaml", "policies: [{match: acme/large, can: {reasoning: false}}]\n")
    for runtime, able in ((old, True), (files.build(old), False)):
        assert [runtime.providers[name].offers["acme/large"][0].can for name in ("one", "two")] == [
            {"reasoning": able}
        ] * 2


def test_a_new_alias_compiles_nothing(files):
    old = files.build()
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text().replace("best", "finest"))
    new = files.build(old)
    assert new.catalog.resolve("finest").id == "acme/large"
    assert new.catalog.resolve("best") is None
    assert new.providers["one"] is old.providers["one"]


def test_the_mistakes_of_all_files_are_reported_together(files):
    files.provider("one", 0, "1", "request: [{dorp: [x]}]\n")
    files.provider("two", 0, "1", "response: [{clamp: {a: 1}}]\n")
    files.write("mappings/messages.yaml", "mapping: messages\nrequest: {to_hub: {a: $modle.x}}\n")
    with pytest.raises(ConfigErrors) as errors:
        files.build()
    message = str(errors.value)
    assert "did you mean `drop`" in message
    assert "`clamp` takes" in message
    assert "$modle" in message
    marks = [(p.mark.file, p.mark.line) for p in errors.value.problems]
    assert marks == sorted(marks)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "has no request.to_hub and no response.from_hub and no stream.from_hub, which clients"),
        ("request: {to_hub: {user: $.user}}\n", "has no response.from_hub and no stream.from_hub, which clients"),
    ],
)
def test_a_client_format_with_missing_sections_is_rejected(files, written, message):
    running = files.build()  # the file may be half written, or meant to extend the built-in one
    files.write("mappings/messages.yaml", f"mapping: messages\n{written}")
    with pytest.raises(ConfigErrors, match=f"mappings/messages.yaml:1:1: mapping `messages` {message}"):
        files.build(running)
    files.write("mappings/messages.yaml", mapping("messages", "x"))
    files.write("mappings/embeddings.yaml", "mapping: embeddings\nhub: embeddings\n")
    with pytest.raises(ConfigErrors, match="mappings/embeddings.yaml:1:1: .* has no request.to_hub, which clients"):
        files.build(running)


def test_a_client_format_without_the_provider_sections_is_rejected(files):
    whole = mapping("chat", "x")
    files.write("mappings/chat.yaml", whole.replace("to_hub: {$copy: [model]}, from_hub", "to_hub: {}, from_hub", 1))
    files.build()
    files.write("mappings/chat.yaml", whole.replace("response: {to_hub: {$copy: [model]}, ", "response: {"))
    with pytest.raises(ConfigErrors, match=r"providers/one.yaml:\d+:\d+: .*`chat` has no response.to_hub, which"):
        files.build()


@pytest.mark.parametrize("whole", ["100", "false"])
def test_a_route_that_neither_streams_nor_answers_as_a_whole_is_rejected(files, whole):
    files.provider("one", 0, "1", f"can: {{whole: {whole}}}\n")  # and its mapping has no stream rules
    found = "speaks.chat: `chat` has neither streams nor whole answers of any length"
    with pytest.raises(ConfigErrors, match=rf"providers/one.yaml:\d+:\d+: {found}"):
        files.build()


def test_a_failed_build_keeps_the_current_runtime(files):
    holder = RuntimeHolder(files.build())
    before = holder.current
    files.provider("one", 0, "1", "request: [{dorp: [x]}]\n")
    with pytest.raises(ConfigErrors):
        holder.current = files.build(holder.current)
    assert holder.current is before


def test_discovered_models_are_added_to_the_written_ones(files):
    files.provider("one", 0, "1", 'discover: {url: "https://one.example/v1/models", list: $.data, model: {id: $.id}}\n')
    runtime = files.build()
    mark = runtime.gateway.providers["one"].document.root.mark
    found = (Model("one/found", "one", "found", mark), Model("one/own", "one", "other", mark))
    more = files.build(runtime, discovered={"one": found})
    assert more.catalog.resolve("one/found").routes[0].offers[0].url(False) == "https://one.example/v1/chat/completions"
    assert more.catalog.resolve("one/own").facts.upstream == "own"
    assert more.providers["two"] is runtime.providers["two"]
    assert files.build(more).catalog.resolve("one/found") is None


def test_reloading_one_provider_is_fast(files):
    for n in range(20):
        files.write(f"providers/p{n}.yaml", PROVIDER.format(name=f"p{n}", key="ONE_KEY", priority=n, price="1"))
    runtime = files.build()
    files.provider("one", 0, "5", "request: [{drop: [user]}]\n")
    loaded = files.load()
    began = time.process_time()
    build_runtime(loaded, runtime)
    assert time.process_time() - began < 0.1  # 4 ms on an idle machine; the goal is 20


def test_plugins_become_filters(files, tmp_path, monkeypatch):
    (tmp_path / "acme_filters.py").write_text(
        "def shout(value, sign='!'):\n    'A text, louder.'\n    return value.upper() + sign\n\ndef broken(value):\n   "
        " return 1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + "plugins: [acme_filters]\n")
    files.provider("one", 0, "1", 'request: [{set: {a: "{{ $.b | shout }}", c: "{{ $.d | broken }}"}}]\n')
    edits = files.build().providers["one"].offers["acme/large"][0].request_edits
    from tollgate.errors import BadRequest
    from tollgate.mapping import Context

    assert edits({"b": "hi"}, Context()) == {"b": "hi", "a": "HI!"}
    with pytest.raises(BadRequest, match="plugin filter `broken` failed"):
        edits({"d": 1}, Context())


def test_plugins_become_filters_in_image_jobs(files, tmp_path, monkeypatch):
    (tmp_path / "acme_painters.py").write_text("def shout(value):\n    return value.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + "plugins: [acme_painters]\n")
    files.write(
        "providers/three.yaml",
        "provider: three\nimages:\n"
        '  submit: {call: POST https://three.example/jobs, body: {words: "{{ $input.prompt | shout }}"}, result: {id: '
        '$.id}}\nmodels:\n  three/draw: {type: image, input_schema: {type: object}, price: {price: "1"}}\n',
    )
    offer = files.build().images.offer("three/draw", "three")
    assert offer.submit.body(offer.values(input={"prompt": "a cat"})) == {"words": "A CAT"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("no_such_plugin_module", "cannot be imported"), ("tollgate.process", "has no public function")],
)
def test_an_invalid_plugin_is_reported(files, text, message):
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + f"plugins:\n  - {text}\n")
    with pytest.raises(ConfigErrors, match=rf"gateway\.yaml:5:5: plugins: plugin `{text}` {message}"):
        files.build()


def test_a_plugin_that_exits_on_import_is_reported(files, tmp_path, monkeypatch):
    (tmp_path / "acme_script.py").write_text("def shout(value):\n    return value.upper()\n\nraise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + "plugins: [acme_script]\n")
    with pytest.raises(ConfigErrors, match="plugin `acme_script` cannot be imported: SystemExit: 3"):
        files.build()


def test_a_plugin_that_hangs_on_import_is_reported_and_abandoned(files, tmp_path, monkeypatch, caplog):
    (tmp_path / "acme_waiter.py").write_text("import threading\nthreading.Event().wait(60)\ndef f(value): return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(plugins, "_IMPORT_SECONDS", 0.2)
    files.write("gateway.yaml", (files.folder / "gateway.yaml").read_text() + "plugins: [acme_waiter]\n")
    with pytest.raises(
        ConfigErrors,
        match=r"gateway\.yaml:4:11: plugins: plugin `acme_waiter` is still being imported "
        r"after 0\.2 s \(a module may not wait for anything as it is imported\)",
    ):
        files.build()
    assert "plugin `acme_waiter` is being imported for 0.05 s now" in caplog.text


def test_a_replaced_runtime_is_freed_without_the_garbage_collector():
    """A server's garbage collector rarely runs, so each reload would leak."""

    def alive():
        return [each for each in gc.get_objects() if isinstance(each, Document | Map | Unit)]

    def build_and_drop():
        build_runtime(load_gateway(environ={"OPENAI_API_KEY": "x", "GROQ_API_KEY": "x", "FAL_KEY": "x"}))

    build_and_drop()  # fills the caches
    gc.collect()
    gc.disable()
    try:
        before = {id(each) for each in alive()}
        build_and_drop()
        assert not [each for each in alive() if id(each) not in before]
    finally:
        gc.enable()
