"""DESIGN section 1: the invariants that no other file of this folder tests."""

from __future__ import annotations

import pytest

from conformance.upstreams import ASKS, PATHS
from support.inprocess import inprocess
from support.places import SANDBOX_IMAGES
from tollgate.config import load
from tollgate.config.build import load_gateway
from tollgate.mapping import emit, grammar

SPOKEN = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
PROVIDERS = {
    "sandbox-images": SANDBOX_IMAGES,
    **{
        name: f"""
provider: {name}
speaks: {name}
url: app://sandbox/v1{path}
request: [{{set: {{user: $model.upstream}}, when: $.nothing}}]
errors: {{rules: [{{when: $.error.code == 'odd', verdict: next}}]}}
models: {{only/{name}: {{upstream: echo, context: 9000, max_output: 900, price: {{prompt: "1", completion: "2", unit: 1000000}}}}}}
"""  # noqa: E501
        for name, path in SPOKEN.items()
    },
}


async def test_a_request_runs_compiled_code_only(tmp_path, monkeypatch):
    """Invariant 6: after its start the gateway never parses YAML, a path or an expression, and never compiles code."""
    async with inprocess(tmp_path, providers=PROVIDERS) as here:
        for owner, name in ((load, "read_text"), (grammar, "Parser"), (emit.Module, "build")):
            monkeypatch.setattr(owner, name, lambda *given, name=name, **named: pytest.fail(f"{name} of {given}"))
        with pytest.raises(pytest.fail.Exception):
            load_gateway(tmp_path / "gateway.yaml", environ={})
        with pytest.raises(pytest.fail.Exception):
            grammar.parse_expression("1 + never_read_before")
        for client, path in PATHS.items():
            for upstream in SPOKEN:
                for words in ("hi", "[[tool]] hi", "[[think]] hi", "[[error=400]] hi", "[[stream-error=2]] hi"):
                    ask = {**ASKS[client], "model": f"only/{upstream}"}
                    ask["input" if client == "responses" else "messages"] = [{"role": "user", "content": words}]
                    for stream in (False, True):
                        reply = await here.post(path, {**ask, "stream": stream})
                        assert reply.status_code in ((400,) if "=400" in words else (200, 500)), reply.text
        embedded = await here.post("/v1/embeddings", {"model": "sandbox/embed", "input": ["a", "b"]})
        painted = await here.post("/v1/images/generations", {"model": "sandbox/paint", "input": {"prompt": "a cat"}})
        assert (embedded.status_code, painted.status_code) == (200, 200)
        assert (await here.get("/v1/models")).status_code == 200
