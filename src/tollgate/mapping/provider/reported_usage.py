"""`usage:` of a provider or an endpoint: how its token counts are read, if not as in its format."""

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
"""Reads of `$` in a template, with the field that is read."""


@dataclass(frozen=True, slots=True, eq=False)
class ReportedUsage:
    """The compiled block."""

    excludes: frozenset[str] = frozenset()
    when: Callable[..., Any] | None = None
    """For which requests the template is used; for all, if there is no condition."""
    template: Template | None = None
    """Reads the hub usage from an answer or event, in place of the mapping's rules."""
    read: Callable[..., Any] | None = None
    """The template as a function that gives none if it cannot be computed: the answer is still good, and its tokens
    are estimated."""
    reads_headers: bool = False
    """Whether the template reads the headers of an answer."""
    apart: bool = False
    """Whether it reads more of a stream than the last `usage`."""
    words: Template | None = None
    """Words of the request as sent, which its price may depend on."""

    def excluding(self, count: str) -> ReportedUsage:
        """The same for a model whose `count` is not inside its parent."""
        return replace(self, excludes=self.excludes | {count})

    def for_answer(self, headers: Mapping[str, Any], request: Any) -> ReportedUsage:
        """The same for the events of an answer with these headers to this request of a client."""
        if self.read is None:
            return self
        usage = self.for_request(request)
        if usage.read is None or not usage.reads_headers:
            return usage
        return replace(usage, read=partial(usage.read, answer_headers=headers))

    def for_request(self, request: Any) -> ReportedUsage:
        """The same for this request of a client: without the template if its condition does not hold."""
        return self if self.when is None or self.when(request) else replace(self, read=None, apart=False)

    def words_of(self, request: Any) -> tuple[str, ...]:
        """The words of a request as sent that its price may depend on."""
        if self.words is None:
            return ()
        words = self.words(request)
        return tuple(each for each in (words if isinstance(words, list) else [words]) if isinstance(each, str))


def compile_reported_usage(pieces: Pieces, *written: Node | None) -> ReportedUsage:
    """Compile the blocks of an endpoint and its provider, where the first block with a key decides on it, as with
    headers; mistakes are noted in `pieces`."""
    blocks = [Fields(node) for node in written]

    def first(key: str) -> Node | None:
        return next((node for block in blocks if (node := block.get(key)) is not None), None)

    excludes, when, read, words = (first(key) for key in ("excludes", "when", "read", "words"))
    template = pieces.template(read, pieces.names("$", "answer_headers", "before"))
    reads_headers = read is not None and mentions(read, "answer_headers")
    fields = [name for text in texts_in(read) for name in _DOCUMENT.findall(text)] if read is not None else []
    return ReportedUsage(
        excludes=frozenset(texts_in(excludes)) if excludes is not None else frozenset(),
        when=pieces.condition(when),
        template=template,
        read=total(template) if template is not None else None,
        reads_headers=reads_headers,
        apart=reads_headers or any(name != "usage" for name in fields) or read is not None and mentions(read, "before"),
        words=pieces.template(words, pieces.names("$")),
    )
