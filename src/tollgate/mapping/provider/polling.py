"""An endpoint whose answer is not ready at once: the first answer says where it will be, and it is polled until it is
ready, or streamed from there.

Owns what the file declares (`speaks.<protocol>.poll`); the waiting is `completions/polling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.config.endpoint_schema import POLL_BODIES
from tollgate.config.fields import Fields
from tollgate.config.load import Map
from tollgate.mapping.hosts import Host, is_admitted, origin
from tollgate.mapping.http_calls import EVERY, CallPieces, CallRead
from tollgate.mapping.mentions import mentions
from tollgate.mapping.provider.pieces import Pieces, Read

_METHODS = ("GET", "POST", "PUT", "DELETE")
_NAMES = ("http", "model", "vars")
_LAST = "last"
"""The additional name that the address of `fetch` reads: the answer that ended the polling."""
_FIRST = "first"
"""The additional name that `keep` reads, where `$` is the last answer: the first one."""


class NoAddress(Exception):
    """An answer without an address to poll, or with one whose host the file does not declare."""


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """An answer as the file's templates read it: its body as `$`, its `status` and `headers` as `$http`."""

    body: Any
    http: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The address of one of the calls; it reads the first answer, that of `fetch` also the last one."""

    method: str
    url: CallRead
    hosts: tuple[Host, ...] | None
    body: CallRead | None = None

    def address(
        self, first: JobAnswer, model: Mapping[str, Any], variables: Mapping[str, Any], last: JobAnswer | None = None
    ) -> str:
        """The address after the first answer, and the last one. Raises `NoAddress`."""
        url = self.url(_values(first, model, variables, last))
        if not isinstance(url, str) or not url:
            raise NoAddress("the provider's answer does not say where to ask for the rest")
        if self.hosts is not None and not is_admitted(url, self.hosts):
            hosts = ", ".join(str(host) for host in self.hosts)
            raise NoAddress(
                f"the provider's answer leads to {origin(url)}, which is under no host of its file; `hosts` has {hosts}"
            )
        return url

    def content(
        self, first: JobAnswer, model: Mapping[str, Any], variables: Mapping[str, Any], last: JobAnswer | None = None
    ) -> Any:
        """The body of the call as a JSON value; None for a call without a body."""
        return self.body(_values(first, model, variables, last)) if self.body is not None else None


def _values(
    first: JobAnswer, model: Mapping[str, Any], variables: Mapping[str, Any], last: JobAnswer | None
) -> dict[str, Any]:
    latest = last.body if last is not None else None
    return {"$": first.body, "$http": first.http, "$model": model, "$vars": variables, "$last": latest}


@dataclass(frozen=True, slots=True)
class Polling:
    """How an endpoint's answer is polled. `unfinished` is the condition `while`; it and `again` are None if the
    first answer leads to a `stream` only."""

    unfinished: Read | None
    again: CallTarget | None
    fetch: CallTarget | None
    stream: CallTarget | None
    cancel: CallTarget | None
    keep: Read | None
    every: tuple[float, ...]
    variables: Mapping[str, Any]

    def with_kept_fields(self, first: JobAnswer, last: JobAnswer, fetched: Any) -> Any:
        """The fetched answer, with the fields that `keep` takes from the answer that ended the polling or from the
        first one and that it does not have."""
        kept = self.keep(last.body, http=last.http, first=first.body) if self.keep is not None else None
        return {**kept, **fetched} if isinstance(kept, dict) and isinstance(fetched, dict) else fetched

    def waits(self, latest: JobAnswer) -> bool:
        """Whether the latest answer is unfinished."""
        return self.unfinished is not None and bool(self.unfinished(latest.body, http=latest.http))

    def describe(
        self, first: JobAnswer, model: Mapping[str, Any], variables: Mapping[str, Any] | None = None, last: Any = None
    ) -> dict[str, Any]:
        """What follows a first answer, for examples: whether it `waits`, and the possible calls; for a `last`
        answer, what is kept. An example has `variables` of its own where those of the file are secrets that are not
        set."""
        known = {**self.variables, **(variables or {})}
        unset = [f"`$vars.{name}` has no value" for name, value in known.items() if value is None]
        ended = JobAnswer(last, {"status": 200, "headers": {}}) if last is not None else None
        description: dict[str, Any] = {"waits": self.waits(first)}
        if ended is not None and (kept := self.with_kept_fields(first, ended, {})):
            description["keep"] = kept
        places = {"call": self.again, "fetch": self.fetch, "stream": self.stream, "cancel": self.cancel}
        for name, place in places.items():
            if place is not None and (description["waits"] or name == "stream"):
                try:
                    description[name] = f"{place.method} {place.address(first, model, known, ended)}"
                    if (content := place.content(first, model, known, ended)) is not None:
                        description[POLL_BODIES[name]] = content
                except NoAddress as error:
                    description[name] = "; ".join([str(error), *unset])
        return description


def compile_polling(pieces: Pieces, node: Map | None, path: str) -> Polling | None:
    """The `poll:` of an endpoint; None without one, or with its mistakes noted in `pieces`."""
    if node is None:
        return None
    names = pieces.names("$", *_NAMES)

    def place(key: str) -> CallTarget | None:
        step, reads = node.get(key), {**names, **({_LAST: None} if key == "fetch" else {})}
        if step is None:
            return None
        call_pieces = CallPieces(pieces, reads, _METHODS)
        called = call_pieces.call(step, node.get("hosts"), f"{path}.{key}", incomplete=node.incomplete)
        body = node.get(POLL_BODIES[key])
        content = call_pieces.template(body, answer=True)
        if called is None:
            return None
        if body is not None and called[0] == "GET":
            pieces.mistake(body, f"`{key}` is a GET, which has no body", f"{path}.{POLL_BODIES[key]}", "write POST")
        return CallTarget(*called, content)

    again, fetch, stream, cancel = (place(key) for key in POLL_BODIES)
    for key, body in POLL_BODIES.items():
        if body in node.entries and key not in node.entries and not node.incomplete:
            pieces.mistake(node.entries[body], f"`{body}` has no effect without `{key}`", f"{path}.{body}")
    kept = node.get("keep")
    without_fetch = "fetch" not in node.entries and not node.incomplete
    if kept is not None and without_fetch and not mentions(kept, _FIRST):
        pieces.mistake(kept, "`keep` has no effect without `fetch`", f"{path}.keep", "the last answer is the answer")
    keep = pieces.reader(kept, "http", _FIRST)
    waits = pieces.condition(node.get("while"), "http")
    if (again is None or waits is None) and stream is None:
        return None
    every = Fields(node).numbers("every", EVERY)
    return Polling(waits, again, fetch, stream, cancel, keep, every, pieces.variables)
