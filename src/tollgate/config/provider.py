"""Reads a provider document into a `Provider`: endpoints (`provider_endpoints`), policies, edits, error rules, models.

Works on a tree whose shape has been checked, and reports the mistakes that one file alone can show. Checks across files
are in `cross_checks.py`, secrets are resolved in `build.py`, templates are compiled by the mapping engine.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from types import MappingProxyType

from tollgate.config.authorisation import Auth
from tollgate.config.fields import Fields, fields_of
from tollgate.config.load import Document, Map, Node, Problem, entries_of, items_of, lookup, reported_missing, text_in
from tollgate.config.model import Policy, Provider
from tollgate.config.provider_endpoints import check_address, read_endpoints
from tollgate.config.provider_model import read_model
from tollgate.config.reading import Reading
from tollgate.config.secrets import misplaced, plain_references
from tollgate.config.settings import ConnectionSettings

SECRET_PLACES = frozenset({"headers", "query", "auth", "vars"})
"""The only keys below which a file may refer to a secret."""
_WITH_SECRETS = SECRET_PLACES | {"speaks", "images", "discover"}
"""Keys at the top of a file that are, or contain, one of `SECRET_PLACES`."""

_SECRET_HEADER = re.compile(r"(?i)(authorization|.*api-?key|x-key|.*(token|secret))\Z")


def read_provider(document: Document, root: Map) -> tuple[Provider, list[Problem]]:
    """The provider of a checked tree, and its problems. The `?` of optional secrets is removed."""
    reading = Reading(document)
    reading.problems += misplaced(document, root, SECRET_PLACES)
    nothing_removed, root = root is document.root, _without_marks(root)  # by the check of its shape
    top = Fields(root)
    endpoints = read_endpoints(reading, top)
    _warn_of_written_keys(reading, root)
    if (discover_url := Fields(top.get("discover")).get("url")) is not None:
        check_address(reading, discover_url, "discover.url")
    ruled = {
        "name": top.text("provider"),
        "document": document,
        "auth": _auth(top),
        "variables": top.nodes("vars"),
        "lacks_variables": _lacks_variables(document.root, top),
        "endpoints": MappingProxyType(endpoints),
        "defines": top.map("define"),
        "edits": reading.edits(top),
        "policies": _policies(reading, top),
        "examples": top.list("examples"),
        "connection": ConnectionSettings(
            **fields_of(ConnectionSettings, root)
            | {name: _certificate_file(reading, top, name) for name in ("ca_file", "client_certificate")}
        ),
    }
    provider = Provider(**fields_of(Provider, root) | ruled)
    if models := top.map("models"):
        read = [read_model(reading, provider, name, each, models.keys[name]) for name, each in models.entries.items()]
        provider = replace(provider, models=tuple(read))
    if not endpoints and not provider.images and nothing_removed and not reading.problems:
        reading.report(root, "found neither `speaks` nor `images`, wanted at least one", "", hint="speaks: chat")
    return provider, reading.problems


def _without_marks(root: Map) -> Map:
    """The tree without the `?` of optional secrets. Only keys that may hold secrets are copied, because copying is
    slow."""
    entries = {key: plain_references(node) if key in _WITH_SECRETS else node for key, node in root.entries.items()}
    return replace(root, entries=entries)


def _policies(reading: Reading, top: Fields) -> tuple[Policy, ...]:
    return tuple(
        Policy(**{"match": ()} | fields_of(Policy, node) | {"edits": reading.edits(Fields(node))})
        for node in items_of(top.get("policies"))
    )


def _auth(top: Fields) -> Auth:
    options = dict(top.nodes("auth"))
    kind = text_in(options.pop("kind", None))
    return Auth(kind, MappingProxyType(options)) if kind else Auth(options=MappingProxyType(options))


def _certificate_file(reading: Reading, top: Fields, name: str) -> str | None:
    """The absolute path of the file. It is opened here, because every call would fail if it cannot be read."""
    node, written = top.get(name), top.text(name, None)
    if node is None or written is None:
        return None
    path = os.path.abspath(os.path.join(os.path.dirname(reading.document.file), written))
    try:
        with open(path, "rb"):
            return path
    except FileNotFoundError:
        message = f'found no file "{written}"'
    except OSError as error:
        message = f'found "{written}", which cannot be read: {error.strerror or error}'
    reading.report(node, message, name, hint="relative to this file")
    return None


def _lacks_variables(written: Node, top: Fields) -> bool:
    """Whether some of `vars`, or all, were removed as wrong."""
    node = lookup(written, "vars")
    if node is None:
        return reported_missing(written, "vars")
    return not isinstance(node, Map) or node.incomplete or node.entries.keys() != top.nodes("vars").keys()


def _warn_of_written_keys(reading: Reading, root: Map) -> None:
    """Warn of a key typed into a header of the provider or an endpoint: everyone who reads the file can read it."""
    endpoints = ((f"speaks.{name}.", node) for name, node in entries_of(root.get("speaks")).items())
    for path, holder in (("", root), *endpoints):
        for name, node in entries_of(lookup(holder, "headers")).items():
            if _SECRET_HEADER.match(name) and (text := text_in(node)) is not None and "$" not in text:
                reading.report(
                    node,
                    "found a key written in the file, wanted a reference",
                    f"{path}headers.{name}",
                    hint="$secret.NAME: an environment variable or a file in secrets_dir",
                    level="warning",
                )
