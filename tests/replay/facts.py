"""The content of a native body in terms shared by all formats. The readers fill these; `compare.py` compares two of
them.

Independent of the product: no mapping, no hub. A field that a format lacks is None, not empty.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A tool call; `args` is the parsed value, or the text if it is not JSON."""

    id: str
    name: str
    args: Any


@dataclass
class Answer:
    """The content of an answer. `stops` are all possible readings of its stop reason."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    transcript: str = ""
    calls: list[Call] = field(default_factory=list)
    stops: frozenset[str] = frozenset()
    usage: dict[str, int] | None = None
    links: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    audio: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def words(self) -> str:
        """All text that a user sees, in whatever member it is."""
        return self.text + self.refusal + self.transcript


@dataclass
class RequestFacts:
    """The content of a request, in its order."""

    system: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    assistant: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    media: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """Images of earlier answers, if a format has a separate place for them."""
    names: list[str] = field(default_factory=list)
    """File names and titles; a format may have them beside the content or inside it."""
    opaque: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    tools: dict[str, tuple[str, str]] = field(default_factory=dict)
    hosted: list[str] = field(default_factory=list)
    choice: Any = None
    parallel: bool | None = None
    format: Any = None
    effort: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    caches: int = 0


def parsed(text: Any) -> Any:
    """Arguments as a value: JSON text is parsed, an object also if it was serialized twice; null and "" are no
    arguments."""
    if text is None or text == "":
        return {}
    if not isinstance(text, str):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return parsed(value) if isinstance(value, str) and value.startswith("{") else value


def fingerprint(data: str) -> str:
    """A short name for base64 media, or for a URL."""
    if data.startswith("data:") and ";base64," in data:
        data = data.split(";base64,", 1)[1]
    if data.startswith(("http:", "https:", "gs:")):
        return data
    return hashlib.sha256(data.encode()).hexdigest()[:12]


def plain_file(data: str | None) -> str | None:
    """The text of a data URL that contains plain text, None for any other."""
    if not data or not data.startswith("data:text/") or ";base64," not in data:
        return None
    return base64.b64decode(data.split(";base64,", 1)[1]).decode()


def schema_text(schema: Any) -> str:
    """A JSON schema in canonical form."""
    if not schema:
        return ""
    return json.dumps(schema, sort_keys=True)


def format_text(schema: Any, description: str | None) -> str:
    """The schema of an answer, with its format's description if it has none: some formats have one place."""
    if description and isinstance(schema, dict) and schema and not {"description", "$ref"} & set(schema):
        schema = {**schema, "description": description}
    return schema_text(schema)


def effort_of(budget: int | None) -> str | None:
    """The effort that corresponds to a thinking budget (the table of docs/conversion.md)."""
    if budget is None or budget < 0:
        return None
    return "none" if budget == 0 else "low" if budget <= 4096 else "medium" if budget <= 16384 else "high"
