"""`usage:` of a provider or an endpoint: how the token counts that it reports are read, where not as its format has
them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tollgate.config.fields import Fields
from tollgate.config.load import Node
from tollgate.mapping.mentions import mentions, texts_in
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces, total

_DOCUMENT = re.compile(r"\$(?!\w)(?:\.(\w+))?")
"""Where a template reads `$`, and which member of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ReportedUsage:
    """What such a block says."""

    excludes: frozenset[str] = frozenset()
    template: Template | None = None
    """Hub usage read from an answer or event, instead of the mapping's."""
    read: Callable[..., Any] | None = None
    """The same as a function that tells none where it cannot be computed: the answer is good, and its tokens are
    estimated."""
    hears: bool = False
    """Whether the template reads the headers of an answer."""
    apart: bool = False
    """Whether it looks at more of an event than its `usage`."""
    words: Template | None = None
    """Words of a request as it is sent that its prices may ask for."""

    def hearing(self, headers: Mapping[str, Any]) -> ReportedUsage:
        """The same for the events of an answer with these headers."""
        if self.read is None or not self.hears:
            return self
        return replace(self, read=partial(self.read, answer_headers=headers))

    def words_of(self, request: Any) -> tuple[str, ...]:
        """The words of a request, as it is sent, that its prices may ask for."""
        if self.words is None:
            return ()
        said = self.words(request)
        return tuple(each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str))


def compile_reported_usage(pieces: Pieces, *written: Node | None) -> ReportedUsage:
    """Compile the blocks of an endpoint and its provider, of which the first that says a key decides on it, as with
    headers; mistakes are noted in `pieces`."""
    blocks = [Fields(node) for node in written]

    def said(key: str) -> Node | None:
        return next((node for block in blocks if (node := block.get(key)) is not None), None)

    excludes, read, words = (said(key) for key in ("excludes", "read", "words"))
    template = pieces.template(read, pieces.names("$", "answer_headers")) if read is not None else None
    hears = read is not None and mentions(read, "answer_headers")
    asked = [name for text in texts_in(read) for name in _DOCUMENT.findall(text)] if read is not None else []
    return ReportedUsage(
        excludes=frozenset(texts_in(excludes)) if excludes is not None else frozenset(),
        template=template,
        read=total(template) if template is not None else None,
        hears=hears,
        apart=hears or any(name != "usage" for name in asked),
        words=pieces.template(words, pieces.names("$")) if words is not None else None,
    )
