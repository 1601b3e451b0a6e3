"""Runs the examples in a mapping file, which are its tests, and reports those with another result, with their position.

`of` is what is tested: `request.to_hub`, `response.from_hub`, `error.to_hub`, `stream.to_hub` (with `other:` the
client's protocol; without it the result is the whole answer as a hub response) or `stream.from_hub` (given a list of
operations). Every hub value is checked against the hub's schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tollgate.config.load import Node, Problem
from tollgate.mapping import hub, sections
from tollgate.mapping.compiler import CompiledMapping
from tollgate.mapping.convert import with_own_parts
from tollgate.mapping.example import Difference, Example, Form, checked, run_each
from tollgate.mapping.scope import suggest
from tollgate.mapping.sections import CONDITIONS, DIRECTIONS, OPENING
from tollgate.mapping.streams.converter import StreamConverter
from tollgate.mapping.streams.operations import OPERATIONS
from tollgate.mapping.streams.part import part_arguments
from tollgate.mapping.streams.run import Run
from tollgate.mapping.streams.whole import event_and_name, hub_of_stream
from tollgate.wording import nearest_word

KEYS = ("name", "of", "other", "with", "given", "expect", "refused", "lost")
WITH = ("model", "can", "request", "asked", "headers", "inlined", "estimate", "strict")
SECTIONS = (
    *(f"{section}.{direction}" for section in (*sections.SECTIONS, "stream") for direction in DIRECTIONS),
    *(f"request.{condition}" for condition in CONDITIONS),
    f"stream.{OPENING}",
)
FORM = Form(KEYS, SECTIONS, WITH, {}, scalars=("strict",))


def run_examples(
    mapping: CompiledMapping, others: Mapping[str, CompiledMapping] | None = None, examples: Node | None = None
) -> list[Problem]:
    """Run every example of a mapping; returns the problems, in file order. `others` are the mappings that `other:`
    may name, `examples` those of its file if it was compiled without them."""
    known = {mapping.name: mapping, **(others or {})}
    make = partial(_made, mapping, known)
    run = _checked_twice if any(found.plugins for found in known.values()) else checked
    return run_each(mapping.document, mapping.examples or examples, FORM, lambda example: run(example, make))


def _checked_twice(example: Example, make: Callable[[Example], Any]) -> None:
    """Run an example twice: plugins must be pure functions, with the same result again and the input unchanged."""
    before = copy.deepcopy(example.given)
    first = checked(example, make)
    if example.given != before:
        raise Difference("changes what it is given: a plugin is not a pure function")
    example.context.lost.clear()
    if checked(example, make) != first:
        raise Difference("gives something else the second time: a plugin is not a pure function")


def _made(mapping: CompiledMapping, known: Mapping[str, CompiledMapping], example: Example) -> Any:
    """The result of an example. What is not read is in `lost` of its context, with the losses that its mapping
    reports."""
    section, _, direction = example.of.partition(".")
    context, brought = example.context, example.brought
    context.model = {"upstream": "up", **(brought.get("model") or {})}
    context.can = brought.get("can") or {}
    context.request = brought.get("request")
    context.strict = bool(brought.get("strict"))
    context.asked = brought.get("asked")
    context.headers = brought.get("headers") or {}
    context.inlined = brought.get("inlined") or {}
    context.estimate = brought.get("estimate")
    context.lenient = section != "request"
    if example.of == "request.from_hub" and context.request is None and type(example.given) is dict:
        context.request = example.given
    with mapping.clean_request if section == "request" else mapping.clean_answer:
        if section == "stream" and direction in DIRECTIONS:
            return _stream(mapping, known, example, direction)
        made = _section(mapping, example, section, direction)
        if section != "stream":
            for words in mapping.walkers[example.of].lost(example.given):
                context.lose(words)
        return made


def _section(mapping: CompiledMapping, example: Example, section: str, direction: str) -> Any:
    """The result of a section other than `stream`."""
    compiled = mapping.sections.get(example.of)
    if compiled is None:
        raise Difference(f"is of `{example.of}`, which this file does not have")
    kind = f"{mapping.hub}_{section}" if mapping.hub and section != "error" else section
    _check_hub(kind, example.given if direction == "from_hub" else None)
    result = compiled(example.given, example.context)
    if example.of == "response.to_hub" and type(result) is dict:
        result = with_own_parts(mapping, result, example.context)
    if direction == "to_hub":
        _check_hub(kind, result, "gives")
    return result


def _check_hub(section: str, value: object, verb: str = "is given") -> None:
    if value is not None and (wrong := hub.faults(section, value)):
        raise Difference(f"{verb} what is no hub {section.replace('_', ' ')}: {wrong[0]}")


def _is_misnamed(event: object) -> bool:
    """Whether an event was probably to have a name; a provider's own keys may begin with `$`, too (`$type`)."""
    if type(event) is not dict or event.keys() == {"$event", "data"}:
        return False
    return any(key[:1] == "$" and nearest_word(key, ["$event"], alike=0.75) for key in event)


def _stream(mapping: CompiledMapping, known: Mapping[str, CompiledMapping], example: Example, direction: str) -> Any:
    if type(example.given) is not list:
        raise Difference("needs a list of events")
    if direction == "from_hub":
        return _operations(mapping, example)
    if mapping.stream_in is None:
        raise Difference("is of `stream.to_hub`, which this file does not have")
    if any(_is_misnamed(event) for event in example.given):
        raise Difference("is given an event with a name in another form than {$event: name, data: event}")
    name = example.fields.get("other")
    if not name:
        return _whole(mapping, example)
    if name not in known:
        raise Difference(f"names `{name}`, which is no mapping here")
    converter = StreamConverter(mapping, known[name], example.context)
    events = [event for given in example.given for event in converter.feed(*event_and_name(given))]
    events += converter.finish()
    if converter.failure:
        raise converter.failure
    return [data for _, data in events]


def _whole(mapping: CompiledMapping, example: Example) -> Any:
    whole = hub_of_stream(mapping, example.given, example.context)
    if whole.keys() != {"error"}:
        _check_hub("response", whole, "gives")
    return whole


def _operations(mapping: CompiledMapping, example: Example) -> Any:
    if mapping.writer is None:
        raise Difference("is of `stream.from_hub`, which this file does not have")
    run = Run(mapping.writer, example.context, closes=True)

    def opened(given: dict[str, Any]) -> None:
        kind, key, _, details = part_arguments(given)
        run.open(kind, key, details)

    methods: dict[str, Callable[..., None]] = {
        "start": lambda given: run.start(given.get("id"), given.get("model"), given.get("created")),
        "open": opened,
        "delta": lambda given: run.delta(*part_arguments(given)),
        "close": lambda given: run.close(given.get("key")),
        "part": lambda given: run.part(*part_arguments(given)),
        "stop": lambda given: run.finished(given.get("reason"), given.get("text")),
        "usage": run.count_usage,
        "error": run.fail,
    }
    for given in example.given:
        for name, value in given.items() if type(given) is dict else ():
            method = methods.get(name)
            if method is None:
                raise Difference(
                    f"has an unknown operation `{name}` ({suggest(name, OPERATIONS) or 'one of ' + ', '.join(methods)})"
                )
            method(value)
        run.settle()
    run.finish()
    return [data for _, data in run.out]
