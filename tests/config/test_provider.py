"""Mistakes found in a provider's file alone, beyond the golden files: files it names, and header names."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.golden import messages_of
from tollgate.config.build import load_gateway
from tollgate.upstream.proxies import parse_proxy

ACME = """provider: acme
url: https://a.example
speaks: {chat: /c}
"""


@pytest.mark.parametrize(
    ("proxy", "fits"),
    [
        ("http://proxy.example:3128", True),
        ("http://user:p%40ss@[2001:db8::1]:3128/", True),
        ("http://proxy.example", True),
        ("socks5://proxy.example:1080", False),
        ("https://proxy.example", False),
        ("http://proxy.example:port", False),
    ],
)
def test_a_proxy_that_loads_is_one_that_calls_can_use(folder: Path, proxy: str, fits: bool) -> None:
    """Others loaded, and then every call of the provider failed."""
    found = messages_of({"providers/acme.yaml": f'{ACME}proxy: "{proxy}"\n'}, folder)
    assert ("it loads" in found) is fits and "p%40ss" not in found
    if fits:
        assert parse_proxy(proxy).port in (80, 3128)
    else:
        assert "found something else, wanted an HTTP proxy like http://proxy.example:3128" in found


@pytest.mark.parametrize("name", ["ca_file", "client_certificate"])
@pytest.mark.parametrize("written", ["own.pem", "../certs/own.pem"], ids=["beside", "elsewhere"])
def test_a_certificate_file_is_relative_to_the_file_that_names_it(folder: Path, written: str, name: str) -> None:
    path = folder / "providers" / written
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "providers").mkdir(exist_ok=True)
    path.write_text("")
    assert messages_of({"providers/acme.yaml": f"{ACME}{name}: {written}\n"}, folder) == "it loads\n"
    connection = load_gateway(folder, environ={}).gateway.providers["acme"].connection
    assert getattr(connection, name) == str(path.resolve())


def test_an_absolute_ca_file_is_kept(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("")
    assert messages_of({"providers/acme.yaml": f"{ACME}ca_file: {tmp_path / 'own.pem'}\n"}, folder) == "it loads\n"
    assert load_gateway(folder, environ={}).gateway.providers["acme"].connection.ca_file == str(tmp_path / "own.pem")


def test_a_missing_ca_file_is_reported_with_its_place(folder: Path) -> None:
    (folder / "nope.pem").write_text("beside gateway.yaml, not beside the provider's file")
    assert messages_of({"providers/acme.yaml": ACME + "ca_file: nope.pem\n"}, folder) == (
        'providers/acme.yaml:4:10: ca_file: found no file "nope.pem" (relative to this file)\n    ca_file: nope.pem\n  '
        "           ^\n"
    )


def test_an_unreadable_ca_file_is_reported(folder: Path) -> None:
    (folder / "providers" / "own.pem").mkdir(parents=True)
    assert 'ca_file: found "own.pem", which cannot be read: Is a directory' in messages_of(
        {"providers/acme.yaml": ACME + "ca_file: own.pem\n"}, folder
    )


IMAGES = """images:
  submit: {call: "POST https://a.example/j", headers: {x y: "1"}, result: {images: [{url: $.u}]}}
models: {acme/draw: {price: {price: "1"}, submit: {headers: {"": "1"}}}}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'headers: {x route: "1"}\n',
            ['4:11: headers: found "x route", wanted a header\'s name: letters, digits and hyphens'],
        ),
        ('headers: {"x:": "1", x-fine_1.ok: "2"}\n', ['4:11: headers: found "x:"']),
        (
            "discover: {url: https://a.example/m, list: $.data, model: {id: $.id}, headers: {x/y: a}}\n",
            ['discover.headers: found "x/y"'],
        ),
        (IMAGES, ['images.submit.headers: found "x y"', 'models.acme/draw.submit.headers: found ""']),
        (
            'auth: {kind: oauth_jwt, credentials: a, headers: {"x-a\\n": "1"}}\n',
            ['auth.headers: found "x-a'],
        ),
    ],
    ids=["a blank", "a colon", "the list of models", "image steps", "a line break, in a token request"],
)
def test_an_invalid_header_name_is_reported(folder: Path, text: str, words: list[str]) -> None:
    messages = messages_of({"providers/acme.yaml": ACME + text}, folder)
    assert all(each in messages for each in words), messages
    assert messages.count("wanted a header's name") == len(words)


def test_header_names_of_an_endpoint_are_checked(folder: Path) -> None:
    messages = messages_of({"providers/acme.yaml": ACME.replace("/c}", '{path: /c, headers: {"é": a}}}')}, folder)
    assert 'speaks.chat.headers: found "é"' in messages


LEFT_OUT = """priority: 5
policies:
  - {match: "acme/*", priority: 3}
  - {match: "acme/large", can: {logprobs: true}}
  - {match: "small-*", priority: 4}
  - {match: "other/*", priority: 9}
models:
  acme/large: {}
  acme/small: {upstream: small-2, name: Small, priority: 1}
  acme/mini: {upstream: small-3}
  acme/embed: {protocols: [embeddings], dimensions: [8, 16]}
  beta/one: {canonical_slug: beta/one-2026}
"""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("acme/large", {"upstream": "large", "name": "large", "canonical_slug": "acme/large", "priority": 3}),
        ("acme/small", {"upstream": "small-2", "name": "Small", "priority": 1, "type": "chat"}),
        ("acme/mini", {"priority": 4, "output_modalities": ("text",)}),
        ("acme/embed", {"type": "embedding", "output_modalities": ("embeddings",), "max_dimension": 16}),
        ("beta/one", {"priority": 5, "canonical_slug": "beta/one-2026", "name": "one", "max_dimension": None}),
    ],
)
def test_missing_values_of_a_model_come_from_its_id_its_protocols_and_the_last_policy(
    folder: Path, model: str, expected: dict[str, object]
) -> None:
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "acme.yaml").write_text(ACME.replace("{chat: /c}", "{chat: /c, embeddings: /e}") + LEFT_OUT)
    models = load_gateway(folder, environ={}).gateway.providers["acme"].models
    [found] = [each for each in models if each.id == model]
    assert {name: getattr(found, name) for name in expected} == expected
