"""The templates, compiled once at start with the texts and charts they use. Everything is escaped; an undefined name
is an error."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tollgate.dashboard import formatting

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def environment() -> Environment:
    """The Jinja environment with every template compiled, once for the process."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    for name in (
        "money",
        "plain_money",
        "number",
        "compact",
        "share",
        "milliseconds",
        "when",
        "exact",
        "exact_time",
        "clock",
        "span",
        "price",
        "limits",
    ):
        made.filters[name] = getattr(formatting, name)
    for name in made.list_templates(extensions=["html"]):
        made.get_template(name)
    return made


class Statics:
    """The few static files, in memory; their addresses change with their content, so browsers may cache them."""

    def __init__(self) -> None:
        self.files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted((_HERE / "static").iterdir())
            if path.suffix in _TYPES
        }
        self.tags = {name: hashlib.sha256(content).hexdigest()[:12] for name, (content, _) in self.files.items()}
