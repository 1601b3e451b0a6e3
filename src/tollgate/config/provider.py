"""A provider document becomes a `Provider`: endpoints with whole addresses, policies, edits, error rules, models.

Works on a tree whose shape has been checked; says what one file alone can show to be wrong. Checks across files are in
`cross_checks.py`, secrets are resolved in `build.py`, and the templates are compiled by the mapping engine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from tollgate.config.authorisation import Auth
from tollgate.config.endpoint_schema import POLL_CALLS, POLL_WANTED
from tollgate.config.fields import Fields, fields_of
from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.config.load import Document, Map, Node, Problem, Scalar, entries_of, items_of, text_in
from tollgate.config.model import Endpoint, Policy, Provider
from tollgate.config.provider_model import read_model, serves
from tollgate.config.reading import Reading
from tollgate.config.secrets import misplaced, plain_references
from tollgate.config.shape import found
from tollgate.wire import HEADER_NAME
from tollgate.wording import nearest_word

SECRET_PLACES = frozenset({"headers", "query", "auth", "vars"})
"""The only keys below which a file may name a secret."""
_WITH_SECRETS = SECRET_PLACES | {"speaks", "images", "discover"}
"""Keys at the top of a file that are such a place, or hold some."""

_CALL_OF_PATH = re.compile(r"\s*([A-Za-z]+)[ \t]+(/.*\S)\s*\Z", re.DOTALL)
_ADDRESS = re.compile(r"(https?|app)://[^\s/]|\{\{|\$")
_SECRET_HEADER = re.compile(r"(?i)(authorization|.*api-?key|x-key|.*(token|secret))\Z")


def read_provider(document: Document, root: Map) -> tuple[Provider, list[Problem]]:
    """The provider of a checked tree, and what is wrong with it. The `?` of optional secrets is taken off."""
    reading = Reading(document)
    reading.problems += misplaced(document, root, SECRET_PLACES)
    whole, root = root is document.root, _without_marks(root)
    top = Fields(root)
    endpoints = _endpoints(reading, top)
    _warn_of_written_keys(reading, root)
    _check_header_names(reading, root)
    if (discover_url := Fields(top.get("discover")).get("url")) is not None:
        _check_address(reading, discover_url, "discover.url")
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
        "ca_file": _ca_file(reading, top),
    }
    provider = Provider(**fields_of(Provider, root) | ruled)
    if models := top.map("models"):
        read = [read_model(reading, provider, name, each, models.keys[name]) for name, each in models.entries.items()]
        provider = replace(provider, models=tuple(read))
    if not endpoints and not provider.images and whole and not reading.problems:
        reading.say(root, "found neither `speaks` nor `images`, wanted at least one", "", hint="speaks: chat")
    return provider, reading.problems


def _without_marks(root: Map) -> Map:
    """The tree with the `?` of optional secrets taken off; nothing else may stand where that is costly."""
    entries = {key: plain_references(node) if key in _WITH_SECRETS else node for key, node in root.entries.items()}
    return replace(root, entries=entries)


def _endpoints(reading: Reading, top: Fields) -> dict[str, Endpoint]:
    speaks = top.get("speaks")
    base = top.get("url")
    written = reading.document.root
    torn = isinstance(written, Map) and written.torn
    if base is None and (torn or nearest_word("url", entries_of(written))):
        base = Scalar(None, "", False, written.mark)  # misspelt or none, which is said
    elif base is not None and not _check_address(reading, base, "url"):
        base = Scalar(None, "", False, base.mark)  # said once, and not again for each path behind it
    if isinstance(speaks, Scalar):
        if base is not None and not _is_written(base):
            return {}
        if base is None:
            reading.say(
                speaks,
                "found no `url`, wanted the complete address of the endpoint",
                "speaks",
                hint="url: https://api.example/v1/chat/completions",
            )
            return {}
        return {str(speaks.value): Endpoint(str(speaks.value), str(speaks.value), base)}
    if not isinstance(speaks, Map):
        return {}
    if isinstance(base, Map) and any(
        isinstance(node, Scalar) or "path" in entries_of(node) for node in speaks.entries.values()
    ):
        says = "found a map, behind which no path of `speaks` can be put, wanted text"
        reading.say(base, says, "url", hint="or each protocol's whole address under a `url:` of its own")
        base = Scalar(None, "", False, base.mark)
    endpoints = {}
    for protocol, node in speaks.entries.items():
        endpoint = _endpoint(reading, protocol, node, base, f"speaks.{protocol}")
        if endpoint:
            endpoints[protocol] = endpoint
    return endpoints


def _endpoint(reading: Reading, protocol: str, node: Node, base: Node | None, path: str) -> Endpoint | None:
    url: Node | None
    if isinstance(node, Scalar):
        url = _joined(reading, base, node, path)
        return Endpoint(protocol, protocol, url) if url else None
    at = Fields(node)
    own, tail = at.get("url"), at.get("path")
    if own is not None and tail is not None:
        reading.say(tail, "found both `url` and `path`, wanted one of them", f"{path}.path")
    if own is not None:
        url = own if _check_address(reading, own, f"{path}.url") else None
    elif tail is not None:
        url = _joined(reading, base, tail, f"{path}.path")
    else:
        url = base if _is_written(base) else None
        if base is None:
            reading.say(node, "found neither `url` nor `path`, wanted one of them", path)
    if url is None:
        return None
    _check_inner(reading, at, path)
    ruled = {
        "protocol": protocol,
        "url": url,
        "stream_url": _place(reading, base, at, "stream_url", path),
        "edits": reading.edits(at),
        "poll": _poll(reading, base, at.map("poll"), f"{path}.poll", protocol),
        "count_tokens_url": _place(reading, base, at, "count_tokens", path),
    }
    return Endpoint(**{"mapping": protocol} | fields_of(Endpoint, node) | ruled)


def _check_inner(reading: Reading, at: Fields, path: str) -> None:
    node = at.get("inner")
    torn = at.node is not None and at.node.torn and at.get("framing") is None  # what it says there is wrong, and told
    if node is not None and at.text("framing", "") != "aws-eventstream" and not torn:
        reading.say(
            node,
            "there is nothing inside the events of this framing, wanted `framing: aws-eventstream` beside it",
            f"{path}.inner",
        )


def _place(reading: Reading, base: Node | None, at: Fields, key: str, path: str) -> Node | None:
    """A path appended to the base, or an address of its own."""
    node = at.get(key)
    if node is None:
        return None
    if (text_in(node) or "").startswith("/"):
        return _joined(reading, base, node, f"{path}.{key}")
    return node if _check_address(reading, node, f"{path}.{key}") else None


def _poll(reading: Reading, base: Node | None, node: Map | None, path: str, protocol: str) -> Map | None:
    """What the file says of asking again, with paths appended to the base: `GET /jobs/{{ $.id }}`."""
    if node is None:
        return None
    if serves(protocol) == "embedding":
        reading.say(node, "vectors are there at once, wanted no `poll`", path)
    for key, wanted in POLL_WANTED.items():
        if node.torn:
            break  # what is wrong in it was told, and may be what is missing here
        if key not in node.entries and ("stream" not in node.entries or POLL_WANTED.keys() & node.entries.keys()):
            reading.say(node, f"found no `{key}`, wanted {wanted[0].lower()}{wanted[1:-1]}", path)
    entries = dict(node.entries)
    for key in POLL_CALLS:
        call = node.get(key)
        match = _CALL_OF_PATH.match(text_in(call) or "")
        if call is not None and match is not None:
            joined = _joined(reading, base, Scalar(match[2], match[2], True, call.mark), f"{path}.{key}")
            text = f"{match[1]} {joined.value}" if joined is not None else ""
            entries[key] = Scalar(text, text, True, call.mark)
    return Map(entries, node.keys, node.mark)


def _joined(reading: Reading, base: Node | None, tail: Node, path: str) -> Scalar | None:
    """`https://host/v1` + `/chat` as one template; it stands where the part with holes stands."""
    begin, end = text_in(base), text_in(tail) or ""
    if not end.startswith("/"):
        reading.say(
            tail, f"found {found(tail)}, wanted a path starting with /", path, hint="an address of its own is `url:`"
        )
        return None
    if base is None:
        reading.say(
            tail,
            f"found the path {found(tail)} but no `url`, wanted a base address",
            path,
            hint="url: https://api.example/v1",
        )
        return None
    if begin is None:
        return None
    text = _as_text(begin.rstrip("/")) + _as_text(end)
    return Scalar(text, text, True, base.mark if "{{" in begin and "{{" not in end else tail.mark)


def _is_written(base: Node | None) -> bool:
    """Whether there is an address, right as far as can be seen."""
    return base is not None and not (isinstance(base, Scalar) and base.value is None)


def _as_text(value: str) -> str:
    """A bare path (`$vars.base`) written as a hole, so that it can be joined to text."""
    return "{{ " + value + " | raw }}" if re.fullmatch(r"\$[\w.]+", value) else value


def _check_address(reading: Reading, node: Node, path: str) -> bool:
    if isinstance(node, Map):
        return True  # a template with $match or $first: the compiler's business
    text = text_in(node) or ""
    if not _ADDRESS.match(text):
        reading.say(node, f"found {found(node)}, wanted an address like https://api.example/v1", path)
        return False
    outside = re.sub(r"\{\{.*?\}\}", "", text)
    if "{{" in outside:
        reading.say(node, f"found `{{{{` that is never closed in {found(node)}, wanted `}}}}` behind it", path)
        return False
    if re.search(r"\s", outside):
        reading.say(node, f"found a blank in {found(node)}, wanted an address without blanks", path)
        return False
    return True


def _policies(reading: Reading, top: Fields) -> tuple[Policy, ...]:
    return tuple(
        Policy(**{"match": ()} | fields_of(Policy, node) | {"edits": reading.edits(Fields(node))})
        for node in items_of(top.get("policies"))
    )


def _auth(top: Fields) -> Auth:
    options = dict(top.nodes("auth"))
    kind = text_in(options.pop("kind", None))
    return Auth(kind, MappingProxyType(options)) if kind else Auth(options=MappingProxyType(options))


def _ca_file(reading: Reading, top: Fields) -> str | None:
    """The file's whole path. It is opened here: one that cannot be read would fail every call."""
    node, written = top.get("ca_file"), top.text("ca_file", None)
    if node is None or written is None:
        return None
    path = os.path.abspath(os.path.join(os.path.dirname(reading.document.file), written))
    try:
        with open(path, "rb"):
            return path
    except FileNotFoundError:
        says = f'found no file "{written}"'
    except OSError as error:
        says = f'found "{written}", which cannot be read: {error.strerror or error}'
    reading.say(node, says, "ca_file", hint="relative to this file")
    return None


def _lacks_variables(written: Node, top: Fields) -> bool:
    """Whether some of `vars`, or all, were cut out of what is read."""
    if not isinstance(written, Map):
        return False
    node = written.get("vars")
    if node is None:
        return written.torn or bool(nearest_word("vars", written.entries))
    return not isinstance(node, Map) or node.torn or node.entries.keys() != top.nodes("vars").keys()


def _warn_of_written_keys(reading: Reading, root: Map) -> None:
    """A key typed into a header is read by everyone who reads the file."""
    for path, headers in _common_headers(root):
        for name, node in headers.entries.items():
            if _SECRET_HEADER.match(name) and (text := text_in(node)) is not None and "$" not in text:
                reading.say(
                    node,
                    "found a key written in the file, wanted a reference",
                    f"{path}.{name}",
                    hint="$secret.NAME: an environment variable or a file in secrets_dir",
                    level="warning",
                )


def _check_header_names(reading: Reading, root: Map) -> None:
    for path, headers in (*_common_headers(root), *_special_headers(root)):
        for name in headers.entries:
            if not HEADER_NAME.fullmatch(name):
                reading.say(
                    headers.keys[name], f'found "{name}", wanted a header\'s name: letters, digits and hyphens', path
                )


def _common_headers(root: Map) -> Iterator[tuple[str, Map]]:
    """The headers of the provider and of its endpoints, with their paths."""
    yield from _headers_in("", root)
    for name, node in entries_of(root.get("speaks")).items():
        yield from _headers_in(f"speaks.{name}.", node)


def _special_headers(root: Map) -> Iterator[tuple[str, Map]]:
    """The headers of the list of models and of image steps, with their paths."""
    yield from _headers_in("discover.", root.get("discover"))
    images = root.get("images")
    if not isinstance(images, Map):
        return
    models = ((f"models.{name}.", node) for name, node in entries_of(root.get("models")).items())
    for path, holder in (("images.", images), *models):
        for step, node in entries_of(holder).items():
            if step in IMAGE_STEPS:
                yield from _headers_in(f"{path}{step}.", node)


def _headers_in(path: str, holder: Node | None) -> Iterator[tuple[str, Map]]:
    headers = Fields(holder).map("headers")
    if headers is not None:
        yield f"{path}headers", headers
