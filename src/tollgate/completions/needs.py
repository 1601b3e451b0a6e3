"""What a request asks of a route: abilities and room. A few substring searches, no walk over the body."""

from __future__ import annotations

from typing import Any

from tollgate import tokens
from tollgate.routing import Needs


def needs_of(dialect: str, body: dict[str, Any], raw: bytes) -> Needs:
    """The abilities (tools, images, files, audio, schema) and the estimated prompt size of a request body."""
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
    size = len(raw)
    if images or files or audio:
        size = min(size, 400_000)  # inline media are not text; a cap keeps the estimate near what vendors charge
    return Needs(tools=tools, images=images, files=files, audio=audio, schema=schema, prompt_tokens=tokens.estimate(size))
