"""Builds the tree of a document from YAML events: the reading rules that `load` describes, and the limits of a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from yaml import events
from yaml.composer import ComposerError

from tollgate.config.load import Document, List, Map, Mark, Node, Scalar
from tollgate.config.yaml_parser import Parser

_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
"""Tags of values that are text, whatever they look like."""
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_WORDS: dict[str, object] = {"null": None, "~": None, "": None, "true": True, "false": False}
_SLIP = re.compile(r":\S|[\"']\Z")
"""In a key without quotation marks: a `:` without a blank behind it, or one mark too few."""
_MAX_DEPTH = 100
"""Deepest nesting that a person can still read; it also limits every recursive walk over a file."""
MAX_NODES = 1_000_000
"""Ten times the largest useful file; aliases of aliases must not fill the memory."""


class Tree:
    """Reads one document, event by event. A graph of YAML's own nodes would take ten times the memory of the tree,
    and leave the heap fragmented."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.parser = Parser(document.text)
        self.next: Callable[[], Any] = self.parser.get_event
        self.anchors: dict[str, tuple[Any, Node | None, int]] = {}
        """Each anchor's event, its node (None while it is being read), and the number of nodes in it."""
        self.full = False

    def read(self) -> Node | None:
        """The tree; None for an empty text. Raises the parser's errors."""
        try:
            self.next()  # the stream's start
            first = self.next()
            if type(first) is events.StreamEndEvent:
                return None
            tree = self._node(self.next(), 0)
            self.next()  # the document's end
            other = self.next()
            if type(other) is not events.StreamEndEvent:
                raise ComposerError(
                    "expected a single document in the stream",
                    first.start_mark,
                    "but found another document",
                    other.start_mark,
                )
            return tree
        finally:
            self.parser.dispose()

    def _node(self, event: Any, depth: int) -> Node:
        """The node that begins with `event`; reads all its events."""
        document, kind, mark = self.document, type(event), self._mark(event)
        if depth > _MAX_DEPTH:
            self._report(mark, f"nested more than {_MAX_DEPTH} levels deep")
            return self._unread(event, mark)
        if kind is events.AliasEvent:
            return self._alias(event, mark)
        before = document.size
        document.size += 1
        if document.size >= MAX_NODES:
            return self._too_many(event, mark)
        if event.anchor:
            self._anchor(event, None, 0)
        node: Node
        if kind is events.ScalarEvent:
            node = self._scalar(event, mark)
        elif kind is events.SequenceStartEvent:
            items = []
            while type(inner := self.next()) is not events.SequenceEndEvent:
                items.append(self._node(inner, depth + 1))
            node = List(tuple(items), mark, bool(event.flow_style))
        else:
            node = self._map(event, mark, depth)
        if event.anchor:
            self.anchors[event.anchor] = event, node, document.size - before
        return node

    def _map(self, event: Any, mark: Mark, depth: int) -> Map:
        entries: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        while type(inner := self.next()) is not events.MappingEndEvent:
            place = self._mark(inner)
            key = self._key(inner, place)
            if key is None:
                pass
            elif key in entries:
                self._report(place, f"key `{key}` is written twice (first at line {keys[key].line})")
            else:
                key = sys.intern(key)  # a catalog repeats the same keys a thousand times
                keys[key] = place
                value = entries[key] = self._node(self.next(), depth + 1)
                if _SLIP.search(key) and not getattr(inner, "style", "'"):
                    self._report_slip(inner, place, value)
                continue
            self._unread(self.next(), place)
        return Map(entries, keys, mark, bool(event.flow_style))

    def _report_slip(self, event: Any, place: Mark, value: Node) -> None:
        """Report an unquoted key that is no key: `{a:1}`, and `a": 1`. In `{a:1: }` it is one, as a colon follows."""
        key, end = event.value, event.end_mark
        if key[-1] in "\"'":
            message = f"key `{key}` ends in a quotation mark that nothing opens"
            self._report(place, message, "inside { } a value with a comma in it stands in quotes")
        elif (value.mark.line, value.mark.column) == (end.line + 1, end.column + 1):
            self._report(place, f"`{key}` has no value", "a blank is missing behind its `:`")

    def _key(self, event: Any, place: Mark) -> str | None:
        """A key, which is text; None if its value must be skipped."""
        if type(event) is events.AliasEvent:
            target = self._alias(event, place)
            text = target.text if isinstance(target, Scalar) else None
        elif type(event) is events.ScalarEvent:
            text = event.value
            if event.anchor:
                self._anchor(event, self._scalar(event, place), 1)
            if text == "<<" and not event.style:
                self._report(
                    place, "merge keys (`<<`) are not read", "write the keys out, or use an alias for the whole value"
                )
                return None
        else:
            self._unread(event, place)
            text = None
        if text is None:
            braces = type(event) is events.MappingStartEvent
            self._report(
                place,
                "a key must be a word",
                'braces start a YAML object here: put quotes around "{{ ... }}"' if braces else "",
            )
        return text

    def _scalar(self, event: Any, mark: Mark) -> Scalar:
        text: str = event.value
        if event.tag and event.tag not in _TEXT_TAGS:
            self._report(
                mark,
                f"tag `{event.tag.replace('tag:yaml.org,2002:', '!!')}` is not read",
                "write the value without a tag",
            )
        if event.style or event.tag in _TEXT_TAGS:
            return Scalar(text, text, True, mark)
        if text in _WORDS:
            return Scalar(_WORDS[text], text, False, mark)  # type: ignore[arg-type]
        if _INTEGER.match(text) and len(text) < 400:
            return Scalar(int(text), text, False, mark)
        if _NUMBER.match(text) and len(text) < 400:
            return Scalar(Decimal(text), text, False, mark)
        return Scalar(text, text, False, mark)

    def _anchor(self, event: Any, node: Node | None, size: int) -> None:
        if event.anchor in self.anchors:
            raise ComposerError(
                "found duplicate anchor; first occurrence",
                self.anchors[event.anchor][0].start_mark,
                "second occurrence",
                event.start_mark,
            )
        self.anchors[event.anchor] = event, node, size

    def _alias(self, event: Any, mark: Mark) -> Node:
        """The node of its anchor."""
        if event.anchor not in self.anchors:
            raise ComposerError(None, None, "found undefined alias", event.start_mark)
        _, node, size = self.anchors[event.anchor]
        if node is None:
            self._report(mark, f"`*{event.anchor}` stands inside of what it stands for")
            return self._unread(event, mark)
        self.document.size += size
        return node if self.document.size < MAX_NODES else self._too_many(event, mark)

    def _unread(self, event: Any, mark: Mark) -> Scalar:
        """Skip all events of the node that begins with `event`."""
        inside = 0
        while True:
            inside += isinstance(event, events.CollectionStartEvent) - isinstance(event, events.CollectionEndEvent)
            if not inside:
                return Scalar(None, "", False, mark)
            event = self.next()

    def _too_many(self, event: Any, mark: Mark) -> Scalar:
        if not self.full:
            self.full = True
            self._report(mark, f"more than {MAX_NODES} values in one file")
        return self._unread(event, mark)

    def _mark(self, event: Any) -> Mark:
        at = event.start_mark
        return Mark(self.document.file, at.line + 1, at.column + 1)

    def _report(self, mark: Mark, message: str, hint: str = "") -> None:
        self.document.problems.append(self.document.problem(mark, message, hint=hint))
