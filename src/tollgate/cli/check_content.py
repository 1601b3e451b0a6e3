"""A stage of `tollgate check`: content and settings of a request that a mapping ignores.

A conversion must not leave out what a user shows the model: it is carried over, or refused with a 400 (PITFALLS 13). A
mapping that only collects texts does neither, so each is tested with one part of every kind. Instructions and settings
may be left out, but not unnoticed: a `$match` that lacks a case leaves nothing in the loss list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tollgate.config.load import Problem, find
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
_TOOL = {"name": "get_weather", "schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def problems(mappings: Iterable[CompiledMapping]) -> Iterator[Problem]:
    """Warnings about every mapping that drops images, files, audio, video or instructions because no line of it reads
    them, that drops a setting without naming it as lost, or that loses something of every request."""
    for mapping in mappings:
        if mapping.hub or "request.from_hub" not in mapping.sections:
            continue
        left_out = {way: [kind for kind in _SHOWN if _leaves_out(mapping, kind, way)] for way in _WAYS}
        both = [kind for kind in left_out["data"] if kind in left_out["url"]]
        if both:
            words = f"no line says what becomes of {', '.join(both)} parts of a user: they are left out"
            yield _warning(mapping, words, _CURE)
        for way, kinds in left_out.items():
            if some := [kind for kind in kinds if kind not in both]:
                words = f"{', '.join(some)} parts of a user are left out where they come by `{way}`: no line reads it"
                yield _warning(mapping, words, _CURES[way])
        yield from _settings(mapping)


def _settings(mapping: CompiledMapping) -> Iterator[Problem]:
    bare, plain = _converted(mapping, {"tools": []}), _converted(mapping, {})
    if bare is None or plain is None:
        return
    if bare[1]:
        words = f"a request without any settings loses {', '.join(bare[1])}: every answer reports that"
        yield _warning(mapping, words, "list it under `harmless`, or give its `$match` a case `$absent: $nothing`")
    if not mapping.walkers["request.from_hub"].reads_field("system"):
        words = "no line reads `system`: a client's instructions are left out"
        yield _warning(mapping, words, "such as \"{{ $.system[*].text | join('\\n') }}\"")
    for field, values in _SETTINGS.items():
        if silent := [value for value, given in values.items() if _converted(mapping, given) == plain]:
            words = f"`{field}` has no effect where it is {' or '.join(silent)}, and is not named as lost"
            name = field.partition(".")[0]
            yield _warning(mapping, words, f"add a case for it, or `$absent: $nothing, $else: {{$lost: {name}}}`")


def _warning(mapping: CompiledMapping, words: str, hint: str) -> Problem:
    return mapping.document.warning(find(mapping.document.root, ["request", "from_hub"]), words, hint=hint)


def _leaves_out(mapping: CompiledMapping, kind: str, way: str) -> bool:
    part = {**_SHOWN[kind], way: _WAYS[way]}
    made = _converted(mapping, {"turns": [_turn(part)], "tools": []})
    return made is not None and f"turns[].parts[].{way}" in made[1]


def _turn(*parts: dict[str, object]) -> dict[str, object]:
    return {"role": "user", "parts": [{"kind": "text", "text": "What is it?"}, *parts]}


def _converted(mapping: CompiledMapping, given: dict[str, Any]) -> tuple[Any, list[str]] | None:
    """A request with these hub fields as the mapping writes it, and its losses; None if the mapping refuses it."""
    context = Context({"upstream": "model"})
    try:
        made = request_from_hub(mapping, {"turns": [_turn()], "tools": [_TOOL], **given}, context)
    except (Refused, MappingFailure):
        return None
    return made, list(context.lost)
