"""The objects that a valid configuration becomes."""

import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from config.golden import messages_of
from tollgate.config.build import load_gateway
from tollgate.config.model import Gateway
from tollgate.config.settings import Retry, Server, Timeouts
from tollgate.errors import ConfigErrors

ACME = """
provider: acme
url: https://api.acme.example/v1/
speaks:
  chat: /chat/completions
  responses: {path: /responses}
  messages: {url: "https://{{ $vars.region }}.acme.example/messages", count_tokens: /count, can: {cache_control: true}}
  embeddings: {path: /embeddings, batch: 96, stream_url: /streamed}
vars: {region: eu}
priority: 3
weight: 4
models:
  acme/large:
    upstream: large-2026
    aliases: [large]
    context: 131072
    modalities: {input: [text, image]}
    price: {prompt: "0.30", completion: 0.450, input_cache_write: "", unit: 1000000}
    timeouts: {first_byte: 300}
  acme/small: {priority: 0, protocols: [messages], can: {files: true}}
  acme/bare:
  acme/embed: {type: embedding, dimensions: [256, 1024], price: {prompt: "0.02", currency: CNY, unit: 1000000}}
"""


@pytest.fixture
def gateway(folder: Path) -> Gateway:
    assert messages_of({"providers/acme.yaml": ACME}, folder).endswith("it loads\n")
    return load_gateway(environ={}).gateway


def model(gateway: Gateway, name: str):
    return next(model for provider in gateway.providers.values() for model in provider.models if model.id == name)


def test_an_empty_gateway_file_has_all_defaults(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("")
    gateway = load_gateway(environ={}).gateway
    assert (gateway.server, gateway.retry, gateway.timeouts) == (Server(), Retry(), Timeouts())
    assert gateway.store.directory == folder / "var"
    assert gateway.secrets_dir == folder / "secrets"


def test_paths_are_appended_to_the_base_url(gateway: Gateway) -> None:
    addresses = {name: endpoint.url.value for name, endpoint in gateway.providers["acme"].endpoints.items()}
    assert addresses == {
        "chat": "https://api.acme.example/v1/chat/completions",
        "responses": "https://api.acme.example/v1/responses",
        "messages": "https://{{ $vars.region }}.acme.example/messages",
        "embeddings": "https://api.acme.example/v1/embeddings",
    }


def test_an_endpoint_in_long_form_has_all_its_settings(gateway: Gateway) -> None:
    endpoints = gateway.providers["acme"].endpoints
    assert endpoints["messages"].count_tokens_url.value == "https://api.acme.example/v1/count"
    assert endpoints["messages"].can == {"cache_control": True}
    assert (endpoints["embeddings"].batch, endpoints["embeddings"].stream_url.value) == (
        96,
        "https://api.acme.example/v1/streamed",
    )


def test_with_a_single_format_the_url_is_complete(folder: Path) -> None:
    files = {
        "providers/acme.yaml": "provider: acme\nspeaks: chat\nurl: https://acme.example/chat\nmodels: {acme/a: "
        "{upstream: x/y}}\n"
    }
    assert messages_of(files, folder) == "it loads\n"
    provider = load_gateway(environ={}).gateway.providers["acme"]
    assert provider.endpoints["chat"].url.value == "https://acme.example/chat"
    assert provider.models[0].upstream == "x/y"


def test_a_base_url_that_is_a_path_expression_is_inserted_as_a_placeholder(folder: Path) -> None:
    messages_of(
        {
            "providers/acme.yaml": "provider: acme\nvars: {base: $secret.BASE?}\nurl: $vars.base\nspeaks: {chat: "
            "/chat}\n"
        },
        folder,
    )
    provider = load_gateway(environ={}).gateway.providers["acme"]
    assert provider.endpoints["chat"].url.value == "{{ $vars.base | raw }}/chat"


@pytest.mark.parametrize(
    ("field", "value", "written"), [("prompt", Decimal("0.30"), "0.30"), ("completion", Decimal("0.450"), "0.450")]
)
def test_a_price_keeps_its_digits(gateway: Gateway, field: str, value: Decimal, written: str) -> None:
    price = model(gateway, "acme/large").price
    assert price.prices[field] == value
    assert str(price.prices[field]) == price.written[field] == written


def test_an_empty_price_is_absent_but_kept_as_written(gateway: Gateway) -> None:
    price = model(gateway, "acme/large").price
    assert "input_cache_write" not in price.prices
    assert price.written["input_cache_write"] == ""
    assert price.source["completion"] == "0.450"


def test_a_model_without_settings_has_defaults(gateway: Gateway) -> None:
    bare = model(gateway, "acme/bare")
    assert (bare.upstream, bare.type, bare.name, bare.canonical_slug, bare.price) == (
        "bare",
        "chat",
        "bare",
        "acme/bare",
        None,
    )
    assert (bare.priority, bare.weight, bare.input_modalities, bare.output_modalities) == (3, 4, ("text",), ("text",))


def test_a_model_overrides_its_provider(gateway: Gateway) -> None:
    small = model(gateway, "acme/small")
    assert (small.priority, small.weight, small.protocols, dict(small.can)) == (0, 4, ("messages",), {"files": True})
    assert dict(model(gateway, "acme/large").timeouts) == {"first_byte": 300.0}


def test_the_maximum_dimension_is_found(gateway: Gateway) -> None:
    embed = model(gateway, "acme/embed")
    assert (embed.type, embed.dimensions, embed.max_dimension, embed.output_modalities) == (
        "embedding",
        (256, 1024),
        1024,
        ("embeddings",),
    )


def test_models_of_an_embeddings_only_provider_are_embedding_models(folder: Path) -> None:
    messages_of(
        {"providers/v.yaml": "provider: v\nurl: https://v.example\nspeaks: {embeddings: /e}\nmodels: {v/a: {}}\n"},
        folder,
    )
    assert model(load_gateway(environ={}).gateway, "v/a").type == "embedding"


def test_volumes_windows_and_service_tiers_are_read(folder: Path) -> None:
    price = """{prompt: "1", completion: "2", unit: 1000000,
      volumes: [{min_prompt_tokens: 200000, prompt: "2"}, {thinking: true, completion: "4"}],
      service_tiers: {flex: {prompt: "0.5"}},
      windows: [{start: "16:30", end: 00:30, days: [1, 5], prices: {prompt: 0.1}}]}"""
    files = {
        "providers/a.yaml": f"provider: a\nurl: https://a.example\nspeaks: {{chat: /c}}\nmodels:\n  a/m:\n    price: "
        f"{price}\n"
    }
    assert messages_of(files, folder) == "it loads\n"
    found = model(load_gateway(environ={}).gateway, "a/m").price
    assert [(dict(v.prices), v.min_prompt_tokens, v.thinking) for v in found.volumes] == [
        ({"prompt": Decimal(2)}, 200000, None),
        ({"completion": Decimal(4)}, None, True),
    ]
    assert found.service_tiers == {"flex": {"prompt": Decimal("0.5")}}
    assert [(w.start, w.end, w.days, dict(w.prices)) for w in found.windows] == [
        ("16:30", "00:30", (1, 5), {"prompt": Decimal("0.1")})
    ]


def test_settings_are_read_with_their_types(folder: Path) -> None:
    text = """
server: {bind: ["[::1]:9000", unix:/run/tollgate.sock], legacy_base_urls: [https://old.example/ai/v1/]}
retry: {statuses: [500], cooldown_seconds: 5}
credits: {minimum: "0.05", rates: {EUR: "1.1"}}
store: {directory: /srv/var, instance: a1}
aliases: {fast: large, quick: fast}
"""
    assert messages_of({"gateway.yaml": text, "providers/acme.yaml": ACME}, folder).endswith("it loads\n")
    gateway = load_gateway(environ={}).gateway
    assert gateway.server.bind == ("[::1]:9000", "unix:/run/tollgate.sock")
    assert gateway.server.base_url == "http://[::1]:9000"
    assert gateway.server.legacy_base_urls == ("https://old.example/ai/v1",)
    assert (gateway.retry.statuses, gateway.retry.cooldown_seconds, gateway.retry.attempts) == (
        frozenset({500}),
        5.0,
        3,
    )
    assert gateway.credits.minimum == Decimal("0.05")
    assert gateway.credits.rates == {"USD": Decimal(1), "CNY": Decimal("0.14"), "EUR": Decimal("1.1")}
    assert (gateway.store.directory, gateway.store.instance) == (Path("/srv/var"), "a1")
    assert gateway.aliases == {"fast": "large", "quick": "fast"}


@pytest.mark.parametrize(
    ("bind", "base"),
    [
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        (":8080", "http://127.0.0.1:8080"),
        ("[::]:1", "http://127.0.0.1:1"),
        ("host:2", "http://host:2"),
        ("unix:/tmp/x", "http://127.0.0.1:8787"),
    ],
)
def test_the_default_base_url_is_the_first_bind_address(folder: Path, bind: str, base: str) -> None:
    (folder / "gateway.yaml").write_text(f'server: {{bind: "{bind}"}}\n')
    assert load_gateway(environ={}).gateway.server.base_url == base


def test_two_routes_of_a_model_may_have_the_same_alias(folder: Path) -> None:
    one = "provider: NAME\nurl: https://a.example\nspeaks: {chat: /c}\nmodels: {a/m: {aliases: [m]}}\n"
    assert (
        messages_of({f"providers/{name}.yaml": one.replace("NAME", name) for name in ("a", "b")}, folder)
        == "it loads\n"
    )


def test_an_alias_of_a_model_to_be_discovered_is_only_a_warning(folder: Path) -> None:
    provider = (
        "provider: a\nurl: https://a.example\nspeaks: {chat: /c}\ndiscover: {url: https://a.example/models, list: "
        "$.data, model: {id: $.id}}\n"
    )
    messages = messages_of({"gateway.yaml": "aliases: {fast: a/later}\n", "providers/a.yaml": provider}, folder)
    assert "warning: aliases.fast" in messages
    assert messages.endswith("it loads\n")


def test_the_configuration_is_frozen(gateway: Gateway) -> None:
    with pytest.raises(TypeError):
        gateway.providers["other"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        gateway.server.bind = ()  # type: ignore[misc]


def test_a_broken_symbolic_link_is_reported(folder: Path) -> None:
    (folder / "providers").mkdir()
    (folder / "providers/acme.yaml").symlink_to("/mnt/gone/acme.yaml")
    assert (
        messages_of({}, folder)
        == 'providers/acme.yaml:1:1: found a link to "/mnt/gone/acme.yaml", which is not there\n'
    )


def test_a_folder_with_the_name_of_a_provider_file_is_reported(folder: Path) -> None:
    """Mounting a file that is not there into a container makes a folder of its name, and the provider was just gone."""
    (folder / "providers/acme.yaml").mkdir(parents=True)
    (folder / "providers/bemo.yaml").mkdir()
    (folder / "providers/bemo.yaml/own.yaml").touch()
    assert messages_of({}, folder) == (
        "providers/acme.yaml:1:1: warning: not read: found a folder, wanted a file (mounting a file that is not there "
        "makes one)\nproviders/bemo.yaml:1:1: warning: not read: found a folder, wanted a file\nit loads\n"
    )


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/mnt/gone.yaml")], ids=["folder", "link"])
def test_a_gateway_file_that_is_no_file_is_an_error_and_not_as_if_it_were_absent(
    folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder / "gateway.yaml")
    for path in (None, folder):
        with pytest.raises(ConfigErrors, match=r"^gateway\.yaml:1:1: cannot be read: "):
            load_gateway(path, environ={})


def test_a_folder_of_providers_that_must_not_be_read_is_an_error_and_not_as_if_it_were_empty(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's providers would be used instead. (The rights themselves do not bind root, who runs some tests.)"""
    (folder / "providers").mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "providers" and allowed(path, mode))
    assert messages_of({}, folder) == (
        "providers:1:1: cannot be read: Permission denied, wanted a folder this process may read\n"
    )


def test_what_must_not_be_looked_at_is_reported_and_breaks_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised, and `tollgate check` ended in a traceback. (Root may look everywhere, as above.)"""
    (folder / "providers/acme.yaml").mkdir(parents=True)
    (folder / "providers/bemo.yaml").symlink_to("/secret/bemo.yaml")
    (folder / "providers/cold.yml").symlink_to("/secret/cold.yml")
    (folder / "mine").mkdir()
    allowed, stat = os.access, os.stat
    closed = ("bemo.yaml", "cold.yml", "mine")

    def checked_stat(path: Path | str, *, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks and Path(path).name in closed:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "acme.yaml" and allowed(path, mode))
    monkeypatch.setattr(os, "stat", checked_stat)
    assert messages_of({"gateway.yaml": "mappings: [mine]\n"}, folder) == (
        'gateway.yaml:1:12: mappings[0]: found no file "mine" (relative to this file)\n'
        "    mappings: [mine]\n"
        "               ^\n"
        "providers/acme.yaml:1:1: warning: not read: found a folder, wanted a file\n"
        'providers/bemo.yaml:1:1: found a link to "/secret/bemo.yaml", which this process may not read\n'
    )
