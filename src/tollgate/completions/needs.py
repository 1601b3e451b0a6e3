"""What a request asks of a route: abilities and room. A few substring searches, no walk over the body."""

from __future__ import annotations

from typing import Any

from tollgate import tokens
from tollgate.routing import Needs

_ONLY_NATIVE = {"messages": (b'"cache_control"', b'"signature"', b'"redacted_thinking"'), "responses": (b'"encrypted_content"',)}
_OWN_TOOLS = {"chat": (None, "function", "custom"), "responses": ("function", "custom"), "messages": (None, "custom")}
"""The tool types a client answers itself; any other is run by the provider."""


def needs_of(dialect: str, body: dict[str, Any], raw: bytes) -> Needs:
    """The abilities (tools, images, files, audio, schema) and the estimated prompt size of a request body.

    `prefer_native` is set where a conversion would lose what only the client's own format can say (SPEC service 4):
    cache marks, signed or encrypted reasoning, tools the provider runs itself.
    """
    tools = bool(body.get("tools") or body.get("functions"))
    if dialect == "chat":
        images = b'"image_url"' in raw
        files = b'"file"' in raw and b'"file_data"' in raw
        audio = b'"input_audio"' in raw
        schema = b'"json_schema"' in raw
    elif dialect == "responses":
        images, files, audio = b'"input_image"' in raw, b'"input_file"' in raw, b'"input_audio"' in raw
        schema = b'"json_schema"' in raw
    else:
        images, files, audio = b'"image"' in raw, b'"document"' in raw, False
        schema = b'"json_schema"' in raw
    prefer_native = any(word in raw for word in _ONLY_NATIVE.get(dialect, ())) or (tools and _hosted(dialect, body.get("tools")))
    size = len(raw)
    if images or files or audio:
        size = min(size, 400_000)  # inline media are not text; a cap keeps the estimate near what vendors charge
    return Needs(tools=tools, images=images, files=files, audio=audio, schema=schema, prompt_tokens=tokens.estimate(size),
                 prefer_native=prefer_native)


def _hosted(dialect: str, declared: Any) -> bool:
    own = _OWN_TOOLS[dialect]
    return isinstance(declared, list) and any(isinstance(tool, dict) and tool.get("type") not in own for tool in declared)
