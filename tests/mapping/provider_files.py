"""Provider files as text, compiled by the same steps as at a start."""

from tollgate.config.load import read_text
from tollgate.config.provider import read_provider
from tollgate.config.secrets import Secrets
from tollgate.config.shape import check_shape
from tollgate.mapping.provider import compile_provider

SMALL = """
provider: acme
url: https://api.acme.example/v1
speaks: {chat: /chat/completions}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}
models:
  acme/large: {upstream: large-2026, price: {prompt: "1", completion: "2", unit: 1000000}}
"""


def config(text):
    """The configuration of a provider file without any problem."""
    document = read_text(text, "providers/acme.yaml")
    assert not document.problems, document.problems
    problems, root = check_shape(document, "provider")
    assert not problems, [problem.render() for problem in problems]
    provider, more = read_provider(document, root)
    assert not more, [problem.render() for problem in more]
    return provider


def compiled(text=SMALL, secrets=None, mappings=None, **more):
    """The compiled provider; `ACME_KEY` is set unless other secrets are given."""
    return compile_provider(
        config(text), mappings or {}, Secrets({"ACME_KEY": "sk-canary"} if secrets is None else secrets), **more
    )


def offer(text, model="acme/large", endpoint=None, **more):
    """One offer of the compiled provider."""
    offers = compiled(text, **more).offers[model]
    return offers[0] if endpoint is None else next(found for found in offers if found.endpoint == endpoint)
