"""A stage of `tollgate check`: content that a mapping has no word about.

No conversion may leave out what a user shows the model: it is carried, or refused with a 400 (PITFALLS 13). A mapping
that only collects texts does neither, so each is asked with one part of every kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgate.config.load import find
from tollgate.mapping import Context, MappingFailure, Refused, request_from_hub

if TYPE_CHECKING:
    from tollgate.cli.check import Options, Report
    from tollgate.mapping import Mapping

_SHOWN: dict[str, dict[str, object]] = {
    "image": {"kind": "image", "mime": "image/png", "data": "AAAA"},
    "file": {"kind": "file", "mime": "application/pdf", "data": "AAAA"},
    "audio": {"kind": "audio", "mime": "audio/wav", "format": "wav", "data": "AAAA"},
    "video": {"kind": "video", "mime": "video/mp4", "data": "AAAA"},
}
_UNREAD = "turns[].parts[].data"


def run(report: Report, options: Options) -> None:
    """Warn of every mapping that leaves out pictures, files or sounds because no line of it reads them."""
    assert report.compiled is not None, "stages run on what compiles"
    for mapping in report.compiled.mappings.values():
        if mapping.hub or "request.from_hub" not in mapping.sections:
            continue
        left_out = [kind for kind in _SHOWN if _leaves_out(mapping, kind)]
        if left_out:
            at = find(mapping.document.root, ["request", "from_hub"])
            words = f"no line says what becomes of {', '.join(left_out)} parts of a user: they are left out"
            refusal = "{$refuse: [{when: true, say: ..., param: messages}]}"
            hint = f"such as `$match: $p.kind` with `image|file|audio|video: {refusal}`"
            report.problems.append(mapping.document.warning(at, words, hint=hint))


def _leaves_out(mapping: Mapping, kind: str) -> bool:
    context = Context({"upstream": "model"})
    try:
        request_from_hub(
            mapping,
            {"turns": [{"role": "user", "parts": [{"kind": "text", "text": "What is it?"}, _SHOWN[kind]]}]},
            context,
        )
    except (Refused, MappingFailure):
        return False
    return _UNREAD in context.lost
