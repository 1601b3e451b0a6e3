"""What a request needs of a route: abilities and context length. Found by a few substring searches; the body is walked
only if it holds large media."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Substrings of bodies with pictures, files and sound, by format."""
_OTHER_MEDIA = {
    "chat": ('"video_url"', '"video"', '"audio_url"', '"document_url"', '"file_url"', '"image"'),
    "responses": ('"image_generation_call"', '"computer_screenshot"', '"input_video"'),
    "messages": ('"video"',),
}
"""Substrings of bodies with other media that are not text either: pictures of earlier turns, which the model need not
read, and parts that only some providers know."""
MEDIA_BYTES = 400_000
"""At most so many bytes of inline media count as prompt text, which keeps the estimate near what vendors charge. The
text of the request counts in full."""
_ONLY_NATIVE = {
    "chat": (),
    "messages": ('"cache_control"', '"signature"', '"redacted_thinking"'),
    "responses": ('"encrypted_content"',),
}
_OWN_TOOLS = {"chat": (None, "function", "custom"), "responses": ("function", "custom"), "messages": (None, "custom")}
"""Types of tools that the client runs; tools of any other type are run by the provider."""
_CLIENT_TOOLS = frozenset({"custom", "namespace", "tool_search", "local_shell", "apply_patch"})
"""Types of tools of the responses format, beside functions, that the client runs, or that group those it runs."""
_CLIENT_ITEMS = frozenset(
    {"additional_tools"}
    | {f"{tool}_{item}" for tool in ("custom_tool", "local_shell", "apply_patch") for item in ("call", "call_output")}
    | {"tool_search_call", "tool_search_output"}
)
"""Types of input items that declare such tools, or are their calls and results."""
_CLIENT_MARKS = tuple(f'"{name}"' for name in sorted(_CLIENT_TOOLS | _CLIENT_ITEMS))


def needs_of(dialect: str, body: dict[str, Any], outline: str, size: int) -> Needs:
    """The abilities (tools, images, files, audio, schema) that a body needs, and its estimated prompt tokens. `size` is
    its length in bytes, `outline` that of `body.outline_of`.

    `prefer_native` is set where a conversion could lose provider-specific features (SPEC service 4): cache marks,
    signed or encrypted reasoning, tools that the provider runs.
    """
    tools = bool(body.get("tools") or body.get("functions"))
    image_mark, file_mark, audio_mark = _MEDIA[dialect]
    images = image_mark in outline
    files = file_mark in outline
    audio = audio_mark is not None and audio_mark in outline
    if files and dialect == "chat":
        files = '"file_data"' in outline
    prefer_native = tools and _hosted(dialect, body.get("tools"))
    for mark in _ONLY_NATIVE[dialect]:
        prefer_native = prefer_native or mark in outline
    if size > MEDIA_BYTES and (images or files or audio or any(mark in outline for mark in _OTHER_MEDIA[dialect])):
        text = _text_bytes(dialect, body)
        size = text + min(max(0, size - text), MEDIA_BYTES)
    threads = keeps_thread(dialect, body)
    needs = Needs(
        tools,
        images,
        audio,
        files,
        '"json_schema"' in outline,
        tokens.estimate(size),
        native=threads,
        threads=threads,
        prefer_native=prefer_native,
    )
    if dialect == "responses":
        needs.client_tools = any(mark in outline for mark in _CLIENT_MARKS) and _has_client_tools(body)
    if tools and dialect == "chat" and (effort := _effort(body)):
        needs.effort = effort
    return needs


def _effort(body: dict[str, Any]) -> str:
    """The reasoning effort a chat body asks for, as `reasoning_effort` or in OpenRouter's `reasoning`; "" if none."""
    effort, reasoning = body.get("reasoning_effort"), body.get("reasoning")
    if isinstance(reasoning, dict):
        if isinstance(reasoning.get("effort"), str):
            effort = reasoning["effort"]
        elif reasoning.get("enabled") is False:
            effort = "none"
        elif reasoning.get("enabled") or reasoning.get("max_tokens"):
            effort = "medium"
    return effort if isinstance(effort, str) else ""


def _hosted(dialect: str, declared: Any) -> bool:
    own = _OWN_TOOLS[dialect]
    return isinstance(declared, list) and any(
        isinstance(tool, dict) and tool.get("type") not in own for tool in declared
    )


def _has_client_tools(body: Mapping[str, Any]) -> bool:
    """Whether a responses body has tools, or their calls, for which services know no type but that of functions."""
    return any(
        isinstance(each, dict) and isinstance(kind := each.get("type"), str) and kind in types
        for name, types in (("tools", _CLIENT_TOOLS), ("input", _CLIENT_ITEMS))
        if isinstance(listed := body.get(name), list)
        for each in listed
    )


def _text_bytes(dialect: str, body: dict[str, Any]) -> int:
    """The size of a body's texts in bytes."""
    texts, _ = request_texts(dialect, body)
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
