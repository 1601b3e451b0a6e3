"""Reads `speaks` of a provider's file into endpoints: each with its whole address, its headers and its edits."""

from __future__ import annotations

import re
from dataclasses import replace

from tollgate.config.endpoint_schema import POLL_BODIES, POLL_WANTED
from tollgate.config.fields import Fields, fields_of
from tollgate.config.load import List, Map, Node, Scalar, entries_of, reported_missing, text_in
from tollgate.config.model import Endpoint, model_type_of
from tollgate.config.reading import Reading
from tollgate.config.shape import found

_CALL_OF_PATH = re.compile(r"\s*([A-Za-z]+)[ \t]+(/.*\S)\s*\Z", re.DOTALL)
_ADDRESS = re.compile(r"(https?|app)://[^\s/]|\{\{|\$")


def read_endpoints(reading: Reading, top: Fields) -> dict[str, Endpoint]:
    """The endpoints of a checked tree by protocol, without those whose address is invalid."""
    speaks = top.get("speaks")
    has_paths = any(isinstance(node, Scalar) or "path" in entries_of(node) for node in entries_of(speaks).values())
    addresses = _Addresses(reading, top.get("url"), is_base=has_paths)
    if isinstance(speaks, Scalar):
        hint = "url: https://api.example/v1/chat/completions"
        url = addresses.url_or_report(
            speaks, "speaks", "found no `url`, wanted the complete address of the endpoint", hint
        )
        return {speaks.text: Endpoint(speaks.text, speaks.text, url)} if url is not None else {}
    return {
        protocol: endpoint
        for protocol, node in entries_of(speaks).items()
        if (endpoint := _endpoint(reading, addresses, protocol, node, f"speaks.{protocol}")) is not None
    }


def _endpoint(reading: Reading, addresses: _Addresses, protocol: str, node: Node, path: str) -> Endpoint | None:
    if isinstance(node, Scalar):
        url: Node | None = addresses.joined(node, path)
        return Endpoint(protocol, protocol, url) if url else None
    at = Fields(node)
    own, tail = at.get("url"), at.get("path")
    if own is not None and tail is not None:
        reading.report(tail, "found both `url` and `path`, wanted one of them", f"{path}.path")
    if own is not None:
        url = own if check_address(reading, own, f"{path}.url") else None
    elif tail is not None:
        url = addresses.joined(tail, f"{path}.path")
    else:
        url = addresses.url_or_report(node, path, "found neither `url` nor `path`, wanted one of them")
    if url is None:
        return None
    _check_inner(reading, at, path)
    ruled = {
        "name": protocol,
        "url": url,
        "stream_url": addresses.path_or_address(at.get("stream_url"), f"{path}.stream_url"),
        "edits": reading.edits(at),
        "prepare": _prepare(reading, addresses, at.get("prepare"), f"{path}.prepare", protocol),
        "poll": _poll(reading, addresses, at.map("poll"), f"{path}.poll", protocol),
        "count_tokens_url": addresses.path_or_address(at.get("count_tokens"), f"{path}.count_tokens"),
    }
    return Endpoint(**{"mapping": protocol} | fields_of(Endpoint, node) | ruled)


def _check_inner(reading: Reading, at: Fields, path: str) -> None:
    """Report an `inner` for events that are JSON, where nothing says which text in them is the inner stream."""
    if at.node is not None and at.node.incomplete:
        return  # a key that was removed is reported already
    inner, piece = at.get("inner"), at.get("inner_of")
    if inner is not None and piece is None and at.text("framing", "sse") in ("sse", "ndjson", "json-array"):
        reading.report(
            inner,
            "found no `inner_of` beside it, wanted the text inside an event of this framing",
            f"{path}.inner",
            hint="inner_of: $.chunk",
        )
    if inner is None and piece is not None:
        reading.report(piece, "found no `inner` beside it, wanted the framing of that text", f"{path}.inner_of")


def _poll(reading: Reading, addresses: _Addresses, node: Map | None, path: str, protocol: str) -> Map | None:
    """The `poll` block, with its paths appended to the base address: `GET /jobs/{{ $.id }}`."""
    if node is None:
        return None
    if model_type_of(protocol) == "embedding":
        reading.report(node, "vectors are there at once, wanted no `poll`", path)
    for key, wanted in POLL_WANTED.items():
        if node.incomplete:
            break  # a removed key was reported already
        if key not in node.entries and ("stream" not in node.entries or POLL_WANTED.keys() & node.entries.keys()):
            reading.report(node, f"found no `{key}`, wanted {wanted[0].lower()}{wanted[1:-1]}", path)
    return _with_addresses(addresses, node, tuple(POLL_BODIES), path)


def _prepare(reading: Reading, addresses: _Addresses, node: Node | None, path: str, protocol: str) -> List | None:
    """The `prepare` list, with the paths of its calls appended to the base address."""
    if not isinstance(node, List):
        return None
    if model_type_of(protocol) == "embedding":
        reading.report(node, "only chat requests have calls before them, wanted no `prepare`", path)
    items = (
        _with_addresses(addresses, item, ("call",), f"{path}[{at}]") if isinstance(item, Map) else item
        for at, item in enumerate(node.items)
    )
    return replace(node, items=type(node.items)(items))


def _with_addresses(addresses: _Addresses, node: Map, keys: tuple[str, ...], path: str) -> Map:
    """A block whose calls under these keys have whole addresses: their paths are appended to the base address."""
    entries = dict(node.entries)
    for key in keys:
        call = node.get(key)
        match = _CALL_OF_PATH.match(text_in(call) or "")
        if call is not None and match is not None:
            joined = addresses.joined(Scalar(match[2], match[2], True, call.mark), f"{path}.{key}")
            text = f"{match[1]} {joined.value}" if joined is not None else ""
            entries[key] = Scalar(text, text, True, call.mark)
    return Map(entries, node.keys, node.mark, incomplete=node.incomplete)


class _Addresses:
    """The addresses of a file: its `url`, paths that are appended to it, and other addresses."""

    def __init__(self, reading: Reading, url: Node | None, *, is_base: bool) -> None:
        self._reading = reading
        self._base = url if url is not None and check_address(reading, url, "url") else None
        if is_base and isinstance(self._base, Map):
            message = "found a map, behind which no path of `speaks` can be put, wanted text"
            reading.report(
                self._base, message, "url", hint="or each protocol's whole address under a `url:` of its own"
            )
            self._base = None
        self._url_is_reported = reported_missing(reading.document.root, "url") if url is None else self._base is None
        """The `url` is invalid or misspelt, which is reported once, and not for each path that would be appended to
        it."""

    def url_or_report(self, at: Node, path: str, message: str, hint: str = "") -> Node | None:
        """The `url` itself; where there is none, `message` is reported."""
        if self._base is None and not self._url_is_reported:
            self._reading.report(at, message, path, hint)
        return self._base

    def joined(self, tail: Node, path: str) -> Scalar | None:
        """`https://host/v1` + `/chat` as one template, with the position of the part that has holes."""
        end, shown = text_in(tail) or "", found(tail)
        if not end.startswith("/"):
            hint = "an address of its own is `url:`"
            self._reading.report(tail, f"found {shown}, wanted a path starting with /", path, hint)
            return None
        message = f"found the path {shown} but no `url`, wanted a base address"
        base = self.url_or_report(tail, path, message, "url: https://api.example/v1")
        begin = text_in(base)
        if base is None or begin is None:
            return None
        text = _as_text(begin.rstrip("/")) + _as_text(end)
        return Scalar(text, text, True, base.mark if "{{" in begin and "{{" not in end else tail.mark)

    def path_or_address(self, node: Node | None, path: str) -> Node | None:
        """A path that is appended to the `url`, or an address of its own."""
        if node is None:
            return None
        if (text_in(node) or "").startswith("/"):
            return self.joined(node, path)
        return node if check_address(self._reading, node, path) else None


def _as_text(value: str) -> str:
    """A bare path (`$vars.base`) written as a hole, so that it can be joined to text."""
    return "{{ " + value + " | raw }}" if re.fullmatch(r"\$[\w.]+", value) else value


def check_address(reading: Reading, node: Node, path: str) -> bool:
    """Whether this may be an address; reports a mistake if not."""
    if isinstance(node, Map):
        return True  # a template with $match or $first: the compiler checks it
    text = text_in(node) or ""
    if not _ADDRESS.match(text):
        reading.report(node, f"found {found(node)}, wanted an address like https://api.example/v1", path)
        return False
    outside = re.sub(r"\{\{.*?\}\}", "", text)
    if "{{" in outside:
        reading.report(node, f"found `{{{{` that is never closed in {found(node)}, wanted `}}}}` behind it", path)
        return False
    if re.search(r"\s", outside):
        reading.report(node, f"found a blank in {found(node)}, wanted an address without blanks", path)
        return False
    return True
