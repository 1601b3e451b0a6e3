"""Collects the texts of a request body to count, and estimates the tokens of the rest. One pass, no recursion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

IMAGE = 800
"""A picture: between the counts of two providers (765 for 1024 x 1024, and at most 1,600)."""
IMAGE_LOW = 85
"""A picture with `detail: low`."""
AUDIO = 500
"""A voice message: about 50 s at 10 tokens a second."""
FILE = 2000
"""A document: one or two pages, as text and picture."""
VIDEO = 5000
"""A short video: about 20 s at 258 tokens a second."""
MESSAGE = 4
"""The tokens around a message: its role and separators."""
PRIMER = 3
"""The tokens that start the answer."""

_ROOTS = {
    "chat": ("messages", "tools", "functions", "response_format"),
    "responses": ("instructions", "input", "tools", "text"),
    "messages": ("system", "messages", "tools"),
    "embeddings": ("input",),
}
_WHOLE = frozenset({"tools", "functions", "response_format", "text"})
"""Fields that are counted as JSON text, which is roughly what the model reads."""

_MEDIA = {
    "image_url": IMAGE,
    "input_image": IMAGE,
    "image": IMAGE,
    "computer_screenshot": IMAGE,
    "image_generation_call": IMAGE,
    "input_audio": AUDIO,
    "audio": AUDIO,
    "audio_url": AUDIO,
    "file": FILE,
    "input_file": FILE,
    "document": FILE,
    "document_url": FILE,
    "file_url": FILE,
    "video": VIDEO,
    "video_url": VIDEO,
    "input_video": VIDEO,
}
_UNCOUNTED = frozenset(
    {
        "role",
        "type",
        "id",
        "tool_call_id",
        "tool_use_id",
        "call_id",
        "item_id",
        "status",
        "cache_control",
        "signature",
        "encrypted_content",
        "data",
        "media_type",
        "format",
        "filename",
        "file_id",
        "file_url",
        "url",
        "detail",
        "phase",
        "annotations",
        "logprobs",
    }
)
"""Fields that the model does not read, or that are not text."""
_ARGUMENTS = ("input", "arguments", "args")
"""Fields for the arguments of a tool call, if these are an object."""


def request_texts(dialect: str, body: Mapping[str, Any]) -> tuple[list[str], int]:
    """The texts of a request to count, and the estimated tokens of its message frames, pictures, audio and files.

    For chat, `{"messages": [{"role": "user", "content": "hi"}]}` -> `(["hi"], 7)`.
    """
    texts: list[str] = []
    extra = 0 if dialect == "embeddings" else PRIMER
    waiting: list[Any] = []
    for root in _ROOTS.get(dialect, _ROOTS["chat"]):
        value = body.get(root)
        if value is None:
            continue
        if root in _WHOLE:
            texts.append(_written(value))
            continue
        if dialect != "embeddings":
            extra += MESSAGE * (len(value) if isinstance(value, list) else 1)
        waiting.append(value)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, Mapping):
            extra += _take(value, waiting, texts)
    return texts, extra


def count_pictures(dialect: str, body: Mapping[str, Any]) -> int:
    """The number of pictures in a completions request, including those in tool results.

    {"messages": [{"role": "user", "content": [{"type": "image_url", ...}]}]} -> 1
    """
    found = 0
    waiting: list[Any] = [body.get(root) for root in _ROOTS[dialect] if root not in _WHOLE]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, Mapping):
            kind = value.get("type")
            if isinstance(kind, str) and _MEDIA.get(kind) == IMAGE:
                found += 1
            else:
                waiting.extend(
                    inner
                    for name, inner in value.items()
                    if name not in _ARGUMENTS and isinstance(inner, list | Mapping)
                )
    return found


def _take(part: Mapping[str, Any], waiting: list[Any], texts: list[str]) -> int:
    """Add the texts of one object to `texts` or `waiting`. Returns the tokens of its media."""
    kind = part.get("type")
    media = _MEDIA.get(kind) if isinstance(kind, str) else None
    if media is not None:
        source = part.get("source")
        if kind == "document" and isinstance(source, Mapping) and source.get("type") in ("text", "content"):
            waiting.append(source.get("data") or source.get("content"))
            return 0
        image = part.get("image_url")
        detail = part.get("detail") or (image.get("detail") if isinstance(image, Mapping) else None)
        return IMAGE_LOW if media == IMAGE and detail == "low" else media
    for name, value in part.items():
        if name in _UNCOUNTED:
            continue
        if name in _ARGUMENTS and isinstance(value, Mapping):
            texts.append(_written(value))  # arguments of a call as an object
        elif isinstance(value, (str, list, Mapping)):
            waiting.append(value)
    return 0


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
