"""A stage of `tollgate check`: content and settings of a request that a mapping ignores.

A conversion must not leave out what a user shows the model: it is carried over, or refused with a 400 (PITFALLS 13). A
mapping that only collects texts does neither, so each is tested with one part of every kind. Instructions and settings
may be left out, but not unnoticed: a `$match` that lacks a case leaves nothing in the loss list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tollgate.config.load import Node, Problem, find, lookup, text_in, walk
from tollgate.mapping import CompiledMapping, Context, MappingFailure, Refused, request_from_hub

_SHOWN: dict[str, dict[str, object]] = {
    "image": {"kind": "image", "mime": "image/png"},
    "file": {"kind": "file", "mime": "application/pdf"},
    "audio": {"kind": "audio", "mime": "audio/wav", "format": "wav"},
    "video": {"kind": "video", "mime": "video/mp4"},
}
_WAYS = {"data": "AAAA", "url": "https://pictures.example/a"}
"""The fields in which a part can hold its content."""
_CURE = "such as `$match: $p.kind` with `image|file|audio|video: {$refuse: [{when: true, say: ..., param: messages}]}`"
_CURES = {
    "data": "carry `$p.data` too, or refuse it: {$refuse: [{when: $p.data, say: ..., param: messages}]}",
    "url": "carry `$p.url` too, let the gateway fetch it, {{ $p.url | inline }}, or refuse it",
}
_SETTINGS: dict[str, dict[str, dict[str, object]]] = {
    "tool_choice.mode": {
        "none": {"tool_choice": {"mode": "none"}},
        "any": {"tool_choice": {"mode": "any"}},
        "one": {"tool_choice": {"mode": "one", "name": "get_weather"}},
    },
    "format.kind": {
        "json": {"format": {"kind": "json"}},
        "schema": {"format": {"kind": "schema", "name": "answer", "schema": {"type": "object"}}},
    },
}
"""Hub fields of settings, and for each value other than the default the part of a request that has it."""
_ASKED = "vendor/asked-for"
_TURNS: list[dict[str, object]] = [
    {},
    {"system": [{"kind": "text", "text": "Be brief."}]},
    {
        "turns": [
            {"role": "user", "parts": [{"kind": "text", "text": "Hi"}]},
            {"role": "assistant", "parts": [{"kind": "tool_call", "id": "c1", "name": "get_weather", "args": "{}"}]},
            {
                "role": "user",
                "parts": [{"kind": "tool_result", "id": "c1", "parts": [{"kind": "text", "text": "Sunny"}]}],
            },
        ]
    },
]
"""Requests that together have every kind of turn, and the most common parts."""
_PART = "turns[].parts[]."
_CARRIED = {"tools", *(f"{_PART}{way}" for way in _WAYS)}
"""Losses that say that tools, or a part's content, are not carried at all."""
_TOOL = {"name": "get_weather", "schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def problems(mappings: Iterable[CompiledMapping]) -> Iterator[Problem]:
    """Warnings about every mapping that drops images, files, audio, video or instructions because no line of it reads
    them, that drops a setting without naming it as lost, or that loses something of every request, or beside content
    that it carries."""
    for mapping in mappings:
        if "request.from_hub" not in mapping.sections:
            continue
        if mapping.hub:
            yield from _of_every_request(mapping, converted(mapping, {}))
            continue
        left_out = {way: [kind for kind in _SHOWN if _leaves_out(mapping, kind, way)] for way in _WAYS}
        both = [kind for kind in left_out["data"] if kind in left_out["url"]]
        if both:
            words = f"no line says what becomes of {', '.join(both)} parts of a user: they are left out"
            yield warning(mapping, words, _CURE)
        for way, kinds in left_out.items():
            if some := [kind for kind in kinds if kind not in both]:
                words = f"{', '.join(some)} parts of a user are left out where they come by `{way}`: no line reads it"
                yield warning(mapping, words, _CURES[way])
        yield from _settings(mapping)
        yield from _beside_content(mapping)
        yield from _as_they_came(mapping)


def _as_they_came(mapping: CompiledMapping) -> Iterator[Problem]:
    """Warnings about a mapping that sends the name of the model that a client asked for, or turns, parts or tools of
    the hub as they are: no provider knows either."""
    made = converted(mapping, {"model": _ASKED})
    if made is not None and any(value == _ASKED for value, _ in _values_in(made[0])):
        words = "sends the name by which a client asks for the model; its provider knows it by another"
        yield warning(mapping, words, "model: $model.upstream")
    for given in _TURNS:
        hub = {"turns": [_turn()], "tools": [_TOOL], **given}
        objects = {id(value): field for value, field in _values_in(hub, own="schema") if isinstance(value, dict)}
        made = converted(mapping, hub)
        raw = [objects[id(value)] for value, _ in _values_in(made[0]) if id(value) in objects] if made else []
        if raw:
            words = f"sends `{raw[0]}` as it is in the hub, in whose words no provider reads it"
            yield mapping.document.warning(_reader_of(mapping, raw[0]), words, hint="write each of its fields")
            return


def _values_in(value: object, field: str = "", own: str | None = None) -> Iterator[tuple[object, str]]:
    """A value and all values within it, each with the name of the field that it is in, or that its list is in; nothing
    that is in a field `own`."""
    yield value, field
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != own:
                yield from _values_in(inner, name, own)
    elif isinstance(value, list):
        for inner in value:
            yield from _values_in(inner, field, own)


def _reader_of(mapping: CompiledMapping, field: str) -> Node:
    """The line that seems to send the objects of a hub field: a path that ends in it, else the section."""
    root = mapping.document.root
    section = find(root, ["request", "from_hub"])
    ends = re.compile(rf"\$(\w*\.)?(.*\.)?{field}(\[\*\])?")
    nodes = [inner for tree in (section, lookup(root, "define")) for inner in walk(tree)]
    return next((inner for inner in nodes if ends.fullmatch(text_in(inner) or "")), section)


def _settings(mapping: CompiledMapping) -> Iterator[Problem]:
    bare, plain = converted(mapping, {"tools": []}), converted(mapping, {})
    if bare is None or plain is None:
        return
    yield from _of_every_request(mapping, bare)
    if not mapping.walkers["request.from_hub"].reads_field("system"):
        words = "no line reads `system`: a client's instructions are left out"
        yield warning(mapping, words, "such as \"{{ $.system[*].text | join('\\n') }}\"")
    for field, values in _SETTINGS.items():
        if silent := [value for value, given in values.items() if converted(mapping, given) == plain]:
            words = f"`{field}` has no effect where it is {' or '.join(silent)}, and is not named as lost"
            name = field.partition(".")[0]
            yield warning(mapping, words, f"add a case for it, or `$absent: $nothing, $else: {{$lost: {name}}}`")


def _of_every_request(mapping: CompiledMapping, bare: tuple[Any, list[str]] | None) -> Iterator[Problem]:
    if bare is not None and bare[1]:
        words = f"a request without any settings loses {', '.join(bare[1])}: every answer reports that"
        yield warning(mapping, words, "list it under `harmless`, or give its `$match` a case `$absent: $nothing`")


def _beside_content(mapping: CompiledMapping) -> Iterator[Problem]:
    """Warnings about fields that a mapping loses of calls and media that it carries, such as the id of a call or the
    type of a picture: every such answer names them as dropped, and keys with `--strict` get none."""
    bare = converted(mapping, {})
    known = set(bare[1]) if bare is not None else set()
    requests = {"a conversation with a tool call": _TURNS[-1]}
    for way in _WAYS:
        requests |= {f"{kind} sent as {way}": {"turns": [_media(kind, way)], "tools": []} for kind in _SHOWN}
    for words, given in requests.items():
        made = converted(mapping, given)
        if made is None or not _CARRIED.isdisjoint(made[1]):
            continue
        if lost := [loss for loss in made[1] if loss.startswith(_PART) and loss not in known]:
            known.update(lost)
            paths = ", ".join(f'"{loss}"' for loss in lost)
            words = f"{words} loses {', '.join(lost)}: every such answer reports that"
            yield warning(mapping, words, f"carry it, or list it: harmless: {{from_hub: [{paths}]}} under `request:`")


def warning(mapping: CompiledMapping, words: str, hint: str) -> Problem:
    return mapping.document.warning(find(mapping.document.root, ["request", "from_hub"]), words, hint=hint)


def _leaves_out(mapping: CompiledMapping, kind: str, way: str) -> bool:
    made = converted(mapping, {"turns": [_media(kind, way)], "tools": []})
    return made is not None and f"{_PART}{way}" in made[1]


def _media(kind: str, way: str) -> dict[str, object]:
    return _turn({**_SHOWN[kind], way: _WAYS[way]})


def _turn(*parts: dict[str, object]) -> dict[str, object]:
    return {"role": "user", "parts": [{"kind": "text", "text": "What is it?"}, *parts]}


def converted(mapping: CompiledMapping, given: dict[str, Any]) -> tuple[Any, list[str]] | None:
    """A request with these hub fields as the mapping writes it, and its losses; None if the mapping refuses it."""
    asked: dict[str, Any] = {"inputs": ["Hi"]} if mapping.hub else {"turns": [_turn()], "tools": [_TOOL]}
    context = Context({"upstream": "model"})
    try:
        made = request_from_hub(mapping, {**asked, **given}, context)
    except (Refused, MappingFailure):
        return None
    return made, list(context.lost)
