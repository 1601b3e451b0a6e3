"""A stage of `tollgate check`: content that a mapping ignores.

A conversion must not leave out what a user shows the model: it is carried over, or refused with a 400 (PITFALLS 13). A
mapping that only collects texts does neither, so each is tested with one part of every kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgate.config.load import find
from tollgate.mapping import Context, MappingFailure, Refused, request_from_hub

if TYPE_CHECKING:
    from tollgate.cli.check import Report
    from tollgate.mapping import Mapping

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


def run(report: Report) -> None:
    """Warn of every mapping that leaves out pictures, files, audio or video because no line of it reads them."""
    assert report.compiled is not None, "stages run on what compiles"
    for mapping in report.compiled.mappings.values():
        if mapping.hub or "request.from_hub" not in mapping.sections:
            continue
        left_out = {way: [kind for kind in _SHOWN if _leaves_out(mapping, kind, way)] for way in _WAYS}
        both = [kind for kind in left_out["data"] if kind in left_out["url"]]
        if both:
            words = f"no line says what becomes of {', '.join(both)} parts of a user: they are left out"
            _warn(report, mapping, words, _CURE)
        for way, kinds in left_out.items():
            if some := [kind for kind in kinds if kind not in both]:
                words = f"{', '.join(some)} parts of a user are left out where they come by `{way}`: no line reads it"
                _warn(report, mapping, words, _CURES[way])


def _warn(report: Report, mapping: Mapping, words: str, hint: str) -> None:
    at = find(mapping.document.root, ["request", "from_hub"])
    report.problems.append(mapping.document.warning(at, words, hint=hint))


def _leaves_out(mapping: Mapping, kind: str, way: str) -> bool:
    part = {**_SHOWN[kind], way: _WAYS[way]}
    turn = {"role": "user", "parts": [{"kind": "text", "text": "What is it?"}, part]}
    context = Context({"upstream": "model"})
    try:
        request_from_hub(mapping, {"turns": [turn]}, context)
    except (Refused, MappingFailure):
        return False
    return f"turns[].parts[].{way}" in context.lost
