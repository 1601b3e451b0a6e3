"""The examples inside a mapping file are its tests: this runs them and says, with position, which differ and where.

`of` names what is tried: `request.to_hub`, `response.from_hub`, `error.to_hub`, `stream.to_hub` (with `other:` the
client's protocol; without, the whole answer as a hub response) or `stream.from_hub` (given a list of operations). Every
hub value is checked against the hub's schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from collections.abc import Mapping as Table
from typing import Any

from tollgate.config.load import Document, Map, Mark, Node, Problem, Scalar, find, plain
from tollgate.errors import BadRequest
from tollgate.mapping import hub
from tollgate.mapping.compiler import CONDITIONS, DIRECTIONS, OPENING, Mapping
from tollgate.mapping.context import Context
from tollgate.mapping.convert import with_own_parts
from tollgate.mapping.failures import Fault, MappingFailure, Refused
from tollgate.mapping.scope import suggest
from tollgate.mapping.stream_in import OPERATIONS
from tollgate.mapping.stream_run import Run
from tollgate.mapping.streaming import StreamConverter, event_and_name, hub_of_stream
from tollgate.mapping.values import shown
from tollgate.wording import path_text

KEYS = ("name", "of", "other", "with", "given", "expect", "refused", "lost")
WITH = ("model", "can", "request", "asked", "headers", "inlined", "estimate", "strict")
SECTIONS = (
    *(
        f"{section}.{direction}"
        for section in ("request", "response", "error", "stream")
        for direction in ("to_hub", "from_hub")
    ),
    *(f"request.{condition}" for condition in CONDITIONS),
    f"stream.{OPENING}",
)
MODEL = {"upstream": "up"}
NOW = 1_700_000_000
"""Examples run at this moment, with this answer id, so that their results are the same every time."""
RUN_ID = "run_1"
NONCE = "0123456789abcdef" * 2


class Difference(Exception):
    """An example that does not hold; `path` is where in the expected value."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def run_examples(
    mapping: Mapping, others: Table[str, Mapping] | None = None, examples: Node | None = None
) -> list[Problem]:
    """Run every example of a mapping; what is wrong, in file order. `others` are the mappings `other:` may name,
    `examples` those of its file where it was compiled without them."""
    known = {mapping.name: mapping, **(others or {})}
    pure = not any(found.plugins for found in known.values())

    def run(entry: Example) -> None:
        if pure:
            _run(mapping, known, entry)
        else:
            _run_twice(mapping, known, entry)

    return each_example(mapping.document, mapping.examples or examples, run, SECTIONS)


def _run_twice(mapping: Mapping, known: Table[str, Mapping], entry: Example) -> None:
    """Plugins must be pure functions: the same result again, and the input as it was."""
    before = copy.deepcopy(entry.given)
    first = _run(mapping, known, entry)
    if entry.given != before:
        raise Difference("changes what it is given: a plugin is not a pure function")
    entry.context.lost.clear()
    if _run(mapping, known, entry) != first:
        raise Difference("gives something else the second time: a plugin is not a pure function")


def each_example(
    document: Document, examples: Node | None, run: Callable[[Example], None], sections: tuple[str, ...]
) -> list[Problem]:
    """Read and run a file's examples with `run`, which raises `Difference`."""
    problems: list[Problem] = []
    for node in getattr(examples, "items", ()):
        entry = _read(document, node, sections, problems)
        if entry is None:
            continue
        try:
            run(entry)
        except Difference as difference:
            at = find(node.get("expect") or node, difference.path) if difference.path else entry.mark
            problems.append(document.problem(at, f"example `{entry.name}` {difference.message}"))
        except (Fault, MappingFailure, BadRequest) as error:
            problems.append(document.problem(entry.mark, f"example `{entry.name}` fails: {error}"))
    return problems


class Example:
    """One example, read: `given` and `expect` are plain values, `mark` is where it stands."""

    __slots__ = ("context", "expect", "given", "has_expect", "lost", "mark", "name", "of", "other", "refused")

    def __init__(self, node: Map) -> None:
        self.mark: Mark = node.mark
        self.name = _text(node, "name") or "without a name"
        self.of = _text(node, "of") or ""
        self.other = _text(node, "other")
        self.given: Any = _plain(node, "given")
        self.has_expect = "expect" in node.entries
        self.expect: Any = _plain(node, "expect")
        self.refused = _text(node, "refused")
        self.lost: Any = _plain(node, "lost")
        with_: Any = _plain(node, "with") or {}
        self.context = Context(
            {**MODEL, **(with_.get("model") or {})},
            with_.get("can"),
            with_.get("request"),
            bool(with_.get("strict")),
            run_id=RUN_ID,
            now=NOW,
        )
        self.context.nonce = NONCE
        self.context.asked = with_.get("asked")
        self.context.headers = with_.get("headers") or {}
        self.context.inlined = with_.get("inlined") or {}
        self.context.estimate = with_.get("estimate")


def _text(node: Map, key: str) -> str | None:
    value = node.get(key)
    return value.text if isinstance(value, Scalar) else None


def _plain(node: Map, key: str) -> Any:
    value = node.get(key)
    return None if value is None else plain(value, floats=True)


def _read(document: Document, node: Node, sections: tuple[str, ...], problems: list[Problem]) -> Example | None:
    def wrong(at: Node | Mark, message: str, hint: str = "") -> None:
        problems.append(document.problem(at, message, hint=hint))

    if not isinstance(node, Map):
        wrong(node, "an example has keys", ", ".join(KEYS))
        return None
    before = len(problems)
    for key, mark in node.keys.items():
        if key not in KEYS:
            wrong(mark, f"unknown key `{key}`", suggest(key, KEYS) or f"one of {', '.join(KEYS)}")
    of = node.get("of")
    if of is None:
        wrong(node, "an example says what it tries", f"of: {sections[0]}")
    elif not isinstance(of, Scalar) or of.text not in sections:
        found = of.text if isinstance(of, Scalar) else "this"
        wrong(of, f"an example cannot be of `{found}`", suggest(found, sections) or f"one of {', '.join(sections)}")
    if "given" not in node.entries:
        wrong(node, "an example needs `given`")
    if "expect" not in node.entries and "refused" not in node.entries and "lost" not in node.entries:
        wrong(node, "an example needs `expect`, `refused` or `lost`")
    with_ = node.get("with")
    if isinstance(with_, Map):
        for key, mark in with_.keys.items():
            if key not in WITH:
                wrong(mark, f"unknown key `{key}`", suggest(key, WITH) or f"one of {', '.join(WITH)}")
    elif with_ is not None:
        wrong(with_, "`with` gives the engine's values", "{model: {...}, can: {...}}")
    return Example(node) if len(problems) == before else None


def _run(mapping: Mapping, known: Table[str, Mapping], entry: Example) -> Any:
    section, _, direction = entry.of.partition(".")
    context = entry.context
    context.lenient = section != "request"
    if entry.of == "request.from_hub" and context.request is None:
        context.request = entry.given if type(entry.given) is dict else None
    result: Any = None
    try:
        with mapping.clean_request if section == "request" else mapping.clean_answer:
            if section == "stream" and direction in DIRECTIONS:
                result = _stream(mapping, known, entry, direction)
            else:
                result = _section(mapping, entry, section, direction)
    except Refused as refused:
        if entry.refused is None:
            raise Difference(f"is refused: {refused.message}") from None
        if entry.refused not in refused.message:
            raise Difference(f"is refused with `{refused.message}`, wanted `{entry.refused}`") from None
        return refused.message
    if entry.refused is not None:
        raise Difference("is not refused")
    if entry.has_expect:
        compare(result, entry.expect)
    if entry.lost is not None:
        lost = list(context.lost)
        if section != "stream":
            lost += [words for words in mapping.walkers[entry.of].lost(entry.given) if words not in lost]
        if sorted(lost) != sorted(entry.lost):
            raise Difference(f"loses {_shown(lost)}, wanted {_shown(entry.lost)}")
    return result


def _section(mapping: Mapping, entry: Example, section: str, direction: str) -> Any:
    """What a section other than `stream` makes of an example."""
    compiled = mapping.section(entry.of)
    if compiled is None:
        raise Difference(f"is of `{entry.of}`, which this file does not have")
    kind = f"{mapping.hub}_{section}" if mapping.hub and section != "error" else section
    _check_hub(kind, entry.given if direction == "from_hub" else None)
    result = compiled(entry.given, entry.context)
    if entry.of == "response.to_hub" and type(result) is dict:
        result = with_own_parts(mapping, result, entry.context)
    if direction == "to_hub":
        _check_hub(kind, result, "gives")
    return result


def _check_hub(section: str, value: object, verb: str = "is given") -> None:
    if value is not None and (wrong := hub.faults(section, value)):
        raise Difference(f"{verb} what is no hub {section.replace('_', ' ')}: {wrong[0]}")


def _stream(mapping: Mapping, known: Table[str, Mapping], entry: Example, direction: str) -> Any:
    if type(entry.given) is not list:
        raise Difference("needs a list of events")
    if direction == "from_hub":
        return _operations(mapping, entry)
    if mapping.stream_in is None:
        raise Difference("is of `stream.to_hub`, which this file does not have")
    other = known.get(entry.other) if entry.other else None
    if entry.other and other is None:
        raise Difference(f"names `{entry.other}`, which is no mapping here")
    if other is None:
        return _whole(mapping, entry)
    converter = StreamConverter(mapping, other, entry.context)
    events = [event for given in entry.given for event in converter.feed(*event_and_name(given))]
    events += converter.finish()
    if converter.failure:
        raise converter.failure
    return [data for _, data in events]


def _whole(mapping: Mapping, entry: Example) -> Any:
    whole = hub_of_stream(mapping, entry.given, entry.context)
    if whole.keys() != {"error"}:
        _check_hub("response", whole, "gives")
    return whole


def _operations(mapping: Mapping, entry: Example) -> Any:
    if mapping.speaker is None:
        raise Difference("is of `stream.from_hub`, which this file does not have")
    run = Run(mapping.speaker, entry.context, closes=True)
    methods: dict[str, Callable[..., None]] = {
        "start": lambda given: run.start(given.get("id"), given.get("model"), given.get("created")),
        "open": lambda given: run.open(
            given["kind"], *(given.get(key) for key in ("key", "id", "name", "origin", "token"))
        ),
        "delta": lambda given: run.delta(
            given["kind"], *(given.get(key) for key in ("key", "text", "token", "id", "name", "origin"))
        ),
        "close": lambda given: run.close(given.get("key")),
        "part": lambda given: run.part(**given),
        "stop": lambda given: run.finished(given.get("reason"), given.get("text")),
        "usage": run.count_usage,
        "error": run.fail,
    }
    for given in entry.given:
        for name, value in given.items() if type(given) is dict else ():
            method = methods.get(name)
            if method is None:
                raise Difference(
                    f"has an unknown operation `{name}` ({suggest(name, OPERATIONS) or 'one of ' + ', '.join(methods)})"
                )
            method(value)
        run.settle()
    run.finish(marked=False)
    return [data for _, data in run.out]


def compare(found: Any, wanted: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise `Difference` at the first place where two values differ; true is not 1, 1 is 1.0, key order is free."""
    if type(found) is dict and type(wanted) is dict:
        for key in wanted:
            if key not in found:
                raise Difference(
                    f"differs at {path_text((*path, key))}: found nothing, wanted {_shown(wanted[key])}", (*path, key)
                )
            compare(found[key], wanted[key], (*path, key))
        for key in found:
            if key not in wanted:
                raise Difference(
                    f"differs at {path_text((*path, key))}: found {_shown(found[key])}, wanted nothing", path
                )
    elif type(found) is list and type(wanted) is list:
        for number, (one, two) in enumerate(zip(found, wanted, strict=False)):
            compare(one, two, (*path, number))
        if len(found) != len(wanted):
            place = (*path, min(len(found), len(wanted)))
            more = found[len(wanted)] if len(found) > len(wanted) else None
            said = (
                f"found {_shown(more)}, wanted no more"
                if len(found) > len(wanted)
                else f"found no more, wanted {_shown(wanted[len(found)])}"
            )
            raise Difference(f"differs at {path_text(place)}: {said}", place if len(wanted) > len(found) else path)
    elif found != wanted or isinstance(found, bool) is not isinstance(wanted, bool):
        where = f"differs at {path_text(path)}: " if path else "differs: "
        raise Difference(f"{where}found {_shown(found, whole=not path)}, wanted {_shown(wanted, whole=not path)}", path)


def _shown(value: object, *, whole: bool = False) -> str:
    """A value as messages show it: None is `null` inside another value, and `nothing` as the `whole` result."""
    return "nothing" if whole and value is None else "null" if value is None else shown(value, 160)
