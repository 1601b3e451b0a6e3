"""A stage of `tollgate check`: what loads and compiles, and would still not run, or not as expected."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from importlib.util import find_spec

from tollgate.config.can_words import check_can
from tollgate.config.files import shown
from tollgate.config.load import Map, Problem, Scalar, find, lookup, read_file
from tollgate.config.model import Gateway
from tollgate.config.price_warnings import unpriced_warnings
from tollgate.config.retirement import retirement_warnings
from tollgate.mapping.answer_slips import count_slips
from tollgate.mapping.hub import USAGE_FIELDS
from tollgate.wording import did_you_mean


def problems(gateway: Gateway) -> Iterator[Problem]:
    """Warnings about providers without models, models without a price or near retirement, and names in `can:`
    and `usage: read:` that nothing reads; and errors for a store that cannot be opened here, and for invalid
    certificates."""
    yield from unpriced_warnings(gateway)
    yield from retirement_warnings(gateway.providers.values())
    yield from _idle(gateway)
    yield from check_can(gateway)
    yield from _usage(gateway)
    yield from _store(gateway)
    yield from _certificates(gateway)


def _idle(gateway: Gateway) -> Iterator[Problem]:
    """Providers that serve nothing, because no models are configured for them."""
    for provider in gateway.providers.values():
        if not provider.models and provider.discover is None:
            yield provider.document.warning(
                provider.document.root,
                "found no models, so this provider serves nothing, wanted `models`, `models_from` or `discover`",
            )


def _usage(gateway: Gateway) -> Iterator[Problem]:
    """Counts in a provider's `usage: read:` under names that nothing reads."""
    for provider in gateway.providers.values():
        places = [
            ("usage", provider.usage),
            *((f"speaks.{name}.usage", endpoint.usage) for name, endpoint in provider.endpoints.items()),
        ]
        for path, usage in places:
            read = lookup(usage, "read")
            if isinstance(read, Scalar) and str(read.value).startswith("$"):
                yield provider.document.warning(
                    read,
                    f"found `{read.value}`, of which only {', '.join(sorted(USAGE_FIELDS))} would be read",
                    path=f"{path}.read",
                    hint=f"name each: {{input: {read.value}.prompt_tokens, output: ...}}",
                )
            for node, message, hint in count_slips(read) if isinstance(read, Map) else ():
                yield provider.document.warning(node, message, path=f"{path}.read", hint=hint)
            for name, mark in read.keys.items() if isinstance(read, Map) else ():
                if name not in USAGE_FIELDS and not name.startswith("$"):
                    yield provider.document.warning(
                        mark,
                        f'found "{name}", wanted {", ".join(sorted(USAGE_FIELDS))}',
                        path=f"{path}.read",
                        hint=did_you_mean(name, USAGE_FIELDS),
                    )


def _store(gateway: Gateway) -> Iterator[Problem]:
    """A shared store needs an optional package; a start would report this without the position in the file."""
    if not gateway.store.url or find_spec("asyncpg") is not None:
        return
    document = read_file(gateway.files[0], shown(gateway.files[0]))
    path = "store.url" if isinstance(lookup(document.root, "store"), Map) else "store"
    yield document.problem(
        find(document.root, path.split(".")),
        "found a PostgreSQL store and no asyncpg here, wanted it installed",
        path=path,
        hint="pip install asyncpg",
    )


_PEM = {
    "ca_file": "found a file without certificates, wanted them in PEM form",
    "client_certificate": "found no certificate with its key, wanted both in PEM form, the key without a password",
}
"""What is said of a file of certificates that cannot be used, by its key."""


def _certificates(gateway: Gateway) -> Iterator[Problem]:
    for provider in gateway.providers.values():
        for name, message in _PEM.items():
            if (path := getattr(provider.connection, name)) is None:
                continue
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                if name == "ca_file":
                    context.load_verify_locations(cafile=path)
                else:
                    context.load_cert_chain(path, password="")  # without one, OpenSSL asks at the terminal
            except OSError:  # an SSLError is one
                yield provider.document.problem(find(provider.document.root, [name]), message, path=name)
