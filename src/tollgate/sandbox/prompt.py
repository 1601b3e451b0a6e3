"""A request as the sandbox understands it, the same for all protocols, and the collector that the three readers fill.

The readers check what published interfaces check (required fields, types, tool results that belong to calls, signatures
that were issued here), so that mistakes of a gateway show as they would with a real provider.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, Literal

import orjson

from tollgate.sandbox import counting
from tollgate.sandbox.caching import Segment
from tollgate.sandbox.controls import Controls, read_controls
from tollgate.sandbox.faults import Fault, missing, wrong
from tollgate.sandbox.samples import Budget

MOST_TOKENS = 131_072
"""Of a prompt, according to the catalog. Without a limit one request could block a whole gateway for seconds,
because the sandbox runs inside it."""
_MOST_CHARACTERS = 9 * MOST_TOKENS
"""A longer prompt always has too many tokens, so it need not be counted."""

_MOST_PARTS = 20_000
"""Blocks of a prompt, each of which takes 10 µs, also if it has no tokens."""

_MOST_STOPS = 100
"""Each is looked for in the whole answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared tool: a function with a schema, or a custom one that takes free text."""

    name: str
    schema: object
    kind: Literal["function", "custom"] = "function"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to answer. `choice` is auto, none, required or `=NAME`; `results` are tool outputs without an answer."""

    model: str
    stream: bool
    text: str
    controls: Controls
    segments: tuple[Segment, ...]
    images: int
    tools: tuple[Tool, ...]
    choice: str
    parallel: bool
    results: tuple[str, ...]
    settled: bool
    """True if tool results are the newest content: the answer is then text, and a tool loop ends."""
    schema: object = None
    json_mode: bool = False
    limit: int | None = None
    stop: tuple[str, ...] = ()
    effort: str | None = None
    """none, minimal, low, medium, high, ...; None if the request does not set it."""
    thinks: bool = False
    n: int = 1
    budget: Budget = attribute(default_factory=Budget)
    """For the sample values of all its choices and calls."""

    @property
    def tokens(self) -> int:
        """Input tokens, cached ones included."""
        return sum(segment.tokens for segment in self.segments)


class Gather:
    """Collects the pieces of one request in the order in which a model reads them."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.images = 0
        self.text = ""
        self.results: list[str] = []
        self.settled = False
        self.open_calls: Counter[str] = Counter()
        """The ids of calls without a result, in order; an id may be used more than once."""
        self._characters = self._tokens = 0

    def add(self, role: str, block: Mapping[str, object], text: str, *, extra: int = 0) -> None:
        """One block; its `cache_control` marks a boundary and is not part of what is remembered."""
        control = block.get("cache_control")
        mark = None
        if isinstance(control, Mapping):
            mark = "1h" if control.get("ttl") == "1h" else "5m"
        bare = {k: v for k, v in block.items() if k != "cache_control"}
        data = orjson.dumps([role, bare], option=orjson.OPT_SORT_KEYS)
        self._characters += len(text)
        if self._characters <= _MOST_CHARACTERS:
            tokens = counting.count(text) + extra
            self._tokens += tokens
        if len(self.segments) >= _MOST_PARTS:
            raise Fault(
                400, f"Invalid request: more than {_MOST_PARTS} messages and parts of them.", code="array_too_long"
            )
        if self._characters > _MOST_CHARACTERS or self._tokens > MOST_TOKENS:
            raise Fault(
                400,
                f"This model's maximum context length is {MOST_TOKENS} tokens. Your messages are longer.",
                param="messages",
                code="context_length_exceeded",
            )
        self.segments.append(Segment(data, tokens, mark))  # type: ignore[arg-type]

    def picture(self, role: str, block: Mapping[str, object]) -> None:
        """An image, a file or audio: counted as one picture."""
        self.images += 1
        self.add(role, block, "", extra=counting.PER_IMAGE)

    def user_text(self, texts: list[str]) -> None:
        """The newest user text."""
        if texts:
            self.text = "\n".join(texts)
            self.settled = False

    def assistant(self) -> None:
        """An assistant turn: it has answered earlier results and pictures."""
        self.results.clear()
        self.images = 0
        self.settled = False

    def result(self, call_id: str, text: str, where: str) -> None:
        """A tool's output; it must belong to a call without a result."""
        if call_id not in self.open_calls:
            raise Fault(400, f"{where}: no tool call found with id '{call_id}'.", param=where)
        self.open_calls[call_id] -= 1
        if not self.open_calls[call_id]:
            del self.open_calls[call_id]
        self.results.append(text)
        self.settled = True

    def closed(self, where: str) -> None:
        """Check that every call has its result."""
        if self.open_calls:
            ids = ", ".join(self.open_calls)
            raise Fault(400, f"{where}: tool calls without a result right after them: {ids}", param=where)

    def prompt(self, body: Mapping[str, object], headers: Mapping[str, str], **read: Any) -> Prompt:
        """What was collected, with the other fields of the request; markers are removed from its text."""
        model = str(body["model"])
        controls, text = read_controls(self.text, headers, model)
        return Prompt(
            model=model,
            stream=bool(body.get("stream")),
            text=text,
            controls=controls,
            segments=tuple(self.segments),
            images=self.images,
            results=tuple(self.results),
            settled=self.settled,
            **read,
        )


def field(body: Mapping[str, object], name: str, kind: type | tuple[type, ...], wanted: str) -> object:
    """A required field of a type, or a fault."""
    value = body.get(name)
    if value is None:
        raise missing(name)
    if not isinstance(value, kind):
        raise wrong(name, value, wanted)
    return value


def integer(body: Mapping[str, object], name: str) -> int | None:
    """An optional whole number of at least 1."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, value, "a valid integer")
    if value < 1:
        raise Fault(400, f"{name}: must be at least 1, got {value}.", param=name, code="integer_below_min_value")
    return value


def as_list(value: object, name: str) -> list[Mapping[str, object]]:
    """A list of objects (None: empty), or a fault."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise wrong(name, value, "a list of objects")
    return value


def requested_format(wanted: object, named: object, param: str) -> tuple[object, bool]:
    """The schema of the answer, and whether it must be JSON without a schema, from a request's format. `named` has
    the schema and its name (`param`)."""
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind != "json_schema":
        return None, kind == "json_object"
    if not isinstance(named, Mapping) or not named.get("name"):
        raise missing(param)
    return named.get("schema") or {}, False


def strings(value: object) -> tuple[str, ...]:
    """`stop` as a tuple, from a string, a list or nothing."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    if len(value) > _MOST_STOPS:
        raise Fault(400, f"Invalid 'stop': array too long. Expected at most {_MOST_STOPS} sequences.", param="stop")
    return tuple(str(v) for v in value)


def reasons(model: str) -> bool:
    """Whether a model of this name reasons without being asked: `reasoner`, and every name with `reason` in it."""
    return "reason" in model.lower()
