"""What a request asks of a route: abilities and room. A few substring searches; only large media make it walk over the
body."""

from __future__ import annotations

from typing import Any

from tollgate import tokens
from tollgate.completions.state_ids import keeps_thread
from tollgate.routing import Needs
from tollgate.tokenizer.texts import request_texts

_MEDIA: dict[str, tuple[str, str, str | None]] = {
    "chat": ('"image_url"', '"file"', '"input_audio"'),
    "responses": ('"input_image"', '"input_file"', '"input_audio"'),
    "messages": ('"image"', '"document"', None),
}
"""What a body holds that sends pictures, files and sound."""
MEDIA_BYTES = 400_000
"""Inline media are not text: this cap on them keeps the estimate near what vendors charge. What is text beside them
counts whole."""
_ONLY_NATIVE = {
    "chat": (),
    "messages": ('"cache_control"', '"signature"', '"redacted_thinking"'),
    "responses": ('"encrypted_content"',),
}
_OWN_TOOLS = {"chat": (None, "function", "custom"), "responses": ("function", "custom"), "messages": (None, "custom")}
"""The tool types a client answers itself; any other is run by the provider."""


def needs_of(dialect: str, body: dict[str, Any], outline: str, size: int) -> Needs:
    """The abilities (tools, images, files, audio, schema) and the estimated prompt size of a body of `size` bytes with
    this outline.

    `prefer_native` is set where a conversion would lose what only the client's own format can say (SPEC service 4):
    cache marks, signed or encrypted reasoning, tools the provider runs itself.
    """
    tools = bool(body.get("tools") or body.get("functions"))
    images_word, files_word, audio_word = _MEDIA[dialect]
    images = images_word in outline
    files = files_word in outline
    audio = audio_word is not None and audio_word in outline
    if files and dialect == "chat":
        files = '"file_data"' in outline
    prefer_native = tools and _hosted(dialect, body.get("tools"))
    for word in _ONLY_NATIVE[dialect]:
        prefer_native = prefer_native or word in outline
    if (images or files or audio) and size > MEDIA_BYTES:
        words = _words(dialect, body)
        size = words + min(max(0, size - words), MEDIA_BYTES)
    threads = keeps_thread(dialect, body)
    needs = Needs(
        tools,
        images,
        audio,
        files,
        '"json_schema"' in outline,
        tokens.estimate(size),
        threads,
        threads,
    )
    needs.prefer_native = prefer_native
    if tools and dialect == "chat" and (effort := _effort(body)):
        needs.effort = effort
    return needs


def _effort(body: dict[str, Any]) -> str:
    """The effort a chat body asks for, in OpenAI's words or in OpenRouter's; "" where it asks for none."""
    effort, wish = body.get("reasoning_effort"), body.get("reasoning")
    if isinstance(wish, dict):
        if isinstance(wish.get("effort"), str):
            effort = wish["effort"]
        elif wish.get("enabled") is False:
            effort = "none"
        elif wish.get("enabled") or wish.get("max_tokens"):
            effort = "medium"
    return effort if isinstance(effort, str) else ""


def _hosted(dialect: str, declared: Any) -> bool:
    own = _OWN_TOOLS[dialect]
    return isinstance(declared, list) and any(
        isinstance(tool, dict) and tool.get("type") not in own for tool in declared
    )


def _words(dialect: str, body: dict[str, Any]) -> int:
    """The bytes of a body's texts."""
    texts, _ = request_texts(dialect, body)
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
