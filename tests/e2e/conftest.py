"""One real gateway for the end-to-end tests, in its own process, with the sandbox in-process and over HTTP."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.inprocess import write_config
from support.running import Running, gateway, start_sandbox

OVER_HTTP = """
provider: remote
about: The sandbox over real HTTP
url: {base}/v1
speaks:
  chat: /chat/completions
  responses: /responses
  messages: {{path: /messages, count_tokens: /messages/count_tokens}}
  embeddings: /embeddings
models:
  remote/echo:
    upstream: echo
    context: 131072
    max_output: 4096
    encoding: o200k_base
    modalities: {{input: [text, image, file], output: [text]}}
    price: {{prompt: "0.10", completion: "0.40", unit: 1000000, currency: USD}}
  remote/embed:
    upstream: embed
    type: embedding
    dimensions: [256, 512, 1536]
    price: {{prompt: "0.02", unit: 1000000, currency: USD}}
"""

ONLY = """
provider: only-{speaks}
about: The sandbox over real HTTP, in one wire format only
url: {base}/v1{path}
speaks: {speaks}
models:
  only-{speaks}/reasoner:
    upstream: reasoner
    context: 131072
    max_output: 32000
    encoding: o200k_base
    modalities: {{input: [text, image, file], output: [text]}}
    price: {{prompt: "0.10", completion: "0.40", unit: 1000000, currency: USD}}
"""
PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


@contextlib.contextmanager
def gateway_with_sandbox(folder: Path, settings: str = "", store: str = "") -> Iterator[Running]:
    """Runs a gateway in its own process, with the models sandbox/* (in-process), remote/* (over HTTP) and
    only-*/reasoner (over HTTP, one wire format each). `.sandbox` is the address of the sandbox process."""
    base, sandbox = start_sandbox(folder)
    single = {f"only-{name}": ONLY.format(speaks=name, base=base, path=path) for name, path in PATHS.items()}
    write_config(folder, providers={"remote": OVER_HTTP.format(base=base), **single}, settings=settings, store=store)
    try:
        with gateway(folder) as started:
            started.sandbox = base
            yield started
    finally:
        sandbox.terminate()
        sandbox.wait(60)


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """One gateway for the whole run."""
    with gateway_with_sandbox(tmp_path_factory.mktemp("gateway")) as started:
        yield started
