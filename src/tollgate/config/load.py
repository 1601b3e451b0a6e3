"""YAML with positions: text -> a tree of nodes that know their file, line and column.

Owns the reading rules of every configuration file: YAML 1.1 traps are off (`no`, `on`, dates, octals and
sexagesimals are text), numbers keep their digits (`Decimal`, never float), a key is always text, a key written twice
is a problem. It knows nothing of what the files mean; `schema.py` and the mapping compiler do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml import events
from yaml.composer import ComposerError

from tollgate.config.yaml_parser import Parser, hint_for

_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_WORDS: dict[str, object] = {"null": None, "~": None, "": None, "true": True, "false": False}
_TYPED_SECRET = re.compile(
    r"(?i)(?:(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password in an address
    r"|(?<=bearer )[\w.+/=~-]{8,}"
    r"|\b(?:sk|pk|rk|key|tok)[-_][\w-]{12,}"
    r"|(?:(?<=key: )|(?<=key\": )|(?<=token: )|(?<=secret: )|(?<=password: )|(?<=authorization: ))[\"']?(?=[\w.+/=~-]*\d)[\w.+/=~-]{16,}[\"']?)"
)
"""What looks like a secret somebody typed into a file: it is shown as stars, at the same length for the caret's sake."""
_TOP_LEVEL = re.compile(r"^[^\s#-]|^---", re.MULTILINE)
_MAX_DEPTH = 100
"""Nesting a person can still read; it also bounds every recursive walk over a file."""
MAX_NODES = 1_000_000
"""Ten times the largest file there is reason for: aliases of aliases must not fill the memory."""


class Mark(NamedTuple):
    """A place in a file; line and column count from 1. A tuple, as every value and key of every file has one."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file: where, under which path, what was found and wanted, and a hint how to cure it."""

    mark: Mark
    message: str
    path: str = ""
    hint: str = ""
    line_text: str = ""
    level: str = "error"
    """`error` stops a load; `warning` is only said (price sanity and the like)."""

    def render(self, *, source: bool = True) -> str:
        """`file:line:column: path: message (hint)` and, with `source`, the line with a caret below it."""
        said = f"{self.mark}: "
        if self.level != "error":
            said += f"{self.level}: "
        if self.path:
            said += f"{self.path}: "
        said += self.message
        if self.hint:
            said += f" ({self.hint})"
        if source and self.line_text:
            caret = " " * (self.mark.column - 1) + "^"
            said += f"\n    {self.line_text}\n    {caret}"
        return said


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One value: `value` is text, int, Decimal, bool or None; `text` is what stands in the file; quoted text is text."""

    value: str | int | Decimal | bool | None
    text: str
    quoted: bool
    mark: Mark


@dataclass(frozen=True, slots=True, eq=False)
class List:
    """A YAML sequence."""

    items: tuple[Node, ...]
    mark: Mark
    flow: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A YAML mapping in file order; `keys` has the place of each key."""

    entries: dict[str, Node]
    keys: dict[str, Mark]
    mark: Mark
    flow: bool = False

    def get(self, key: str) -> Node | None:
        """The node under `key`, or None."""
        return self.entries.get(key)

    def at(self, key: str, inner: str) -> Node | None:
        """The node under `inner` of the map under `key`, or None."""
        node = self.entries.get(key)
        return node.entries.get(inner) if isinstance(node, Map) else None


Node = Scalar | List | Map


@dataclass(slots=True, eq=False)
class Document:
    """A file read: its tree and what was wrong with its syntax."""

    file: str
    text: str
    _root: Node | None
    problems: list[Problem] = field(default_factory=list)
    size: int = 0
    """Nodes of the tree, aliases written out."""
    included: tuple[Document, ...] = ()
    """Files whose nodes were put into this tree; a problem there shows their line."""
    without: str = ""
    """A last key that is left unread, as `read_file` was told."""
    _lines: list[str] | None = field(default=None, repr=False)

    @property
    def root(self) -> Node:
        """Its tree; read again from the text when it was let go."""
        tree = self._root
        if tree is None:
            tree = read_text(_before(self.text, self.without), self.file).root
            if self.included and isinstance(tree, Map):
                from tollgate.config.included import with_others  # built on this module

                tree = with_others(tree, [other.root for other in self.included])
            self._root = tree
        return tree

    @root.setter
    def root(self, tree: Node) -> None:
        self._root = tree

    def let_go(self) -> None:
        """Keep the text only: a tree takes ten times its memory, and once everything is built only mistakes ask for it."""
        self._root = self._lines = None
        for other in self.included:
            other.let_go()

    @property
    def lines(self) -> list[str]:
        """Its lines, for carets: split when first asked for, as most files have nothing wrong."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines

    def problem(self, at: Node | Mark, message: str, *, path: str = "", hint: str = "", level: str = "error") -> Problem:
        """A `Problem` at a node or mark, carrying its source line."""
        mark = at if isinstance(at, Mark) else at.mark
        holder = self if mark.file == self.file else next((other for other in self.included if other.file == mark.file), None)
        lines = holder.lines if holder else []
        line = lines[mark.line - 1] if 0 < mark.line <= len(lines) else ""
        return Problem(mark, _masked(message), path, hint, _masked(line), level)


def read_file(path: Path, shown_as: str | None = None, *, without: str = "", known: Document | None = None) -> Document:
    """Read a YAML file; never raises for its content (see `Document.problems`). OSError if it cannot be opened.

    `without` is a last key of the file to leave unread (`examples`, which only a check runs, are half of many files).
    `known` is given back when the file holds the same text, with nothing wrong in it.
    """
    name = shown_as or str(path)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        mark = Mark(name, line, error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1)
        root = Map({}, {}, Mark(name, 1, 1))
        return Document(name, "", root, [Problem(mark, f"byte 0x{raw[error.start]:02x} is not UTF-8", hint="save the file as UTF-8")])
    if known is not None and known.text == text and not known.problems:
        return known
    head = _before(text, without)
    if len(head) < len(text):
        document = read_text(head, name)
        if not document.problems:
            document.text, document.without = text, without
            return document
    return read_text(text, name)


def _before(text: str, key: str) -> str:
    """The text before a top-level `key:` when no other key follows it; the whole text when there is no such end to leave out.

    Should the line stand inside quotes or braces, what is before it is not whole, and does not parse.
    """
    at = text.find(f"\n{key}:") if key else -1
    return text[:at + 1] if at >= 0 and not _TOP_LEVEL.search(text, at + 1 + len(key)) else text


def read_text(text: str, name: str) -> Document:
    """Read YAML text; an empty text is an empty map. All problems found are in `Document.problems`."""
    document = Document(name, text, Map({}, {}, Mark(name, 1, 1)))
    try:
        tree = _Tree(document).read()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(name, at.line + 1, at.column + 1) if at else Mark(name, 1, 1)
        what = (error.problem or "not YAML").strip()
        # Alone: what was noted before it is mostly the same slip, seen too early.
        document.problems = [document.problem(mark, f"not readable as YAML: {what}", hint=hint_for(document.lines, mark.line, mark.column, what))]
        return document
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(document.problem(Mark(name, line, 1), f"character U+{_code_point(error.character):04X} is not allowed in YAML"))
        return document
    if tree is not None:
        document.root = tree
    return document


def plain(node: Node, *, floats: bool = False) -> object:
    """The tree as plain objects: dict, list, str, int, bool, None and `Decimal` (or float with `floats=True`)."""
    if isinstance(node, Map):
        return {key: plain(value, floats=floats) for key, value in node.entries.items()}
    if isinstance(node, List):
        return [plain(item, floats=floats) for item in node.items]
    if floats and isinstance(node.value, Decimal):
        return float(node.value)
    return node.value


def find(node: Node, path: Iterable[str | int]) -> Node:
    """The deepest node that exists along `path` (for placing an error about something missing)."""
    for step in path:
        if isinstance(node, Map) and isinstance(step, str) and step in node.entries:
            node = node.entries[step]
        elif isinstance(node, List) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            break
    return node


def walk(node: Node) -> Iterator[Node]:
    """Every node of a tree, top down, in file order."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        yield here
        waiting += reversed(here.entries.values() if isinstance(here, Map) else here.items if isinstance(here, List) else ())


def _code_point(character: str | int | bytes) -> int:
    if isinstance(character, int):
        return character
    return ord(character[:1]) if character else 0


def _masked(text: str) -> str:
    return _TYPED_SECRET.sub(lambda found: "*" * len(found[0]), text)


class _Tree:
    """One reading of a document's text, event by event: a graph of YAML's own nodes would take ten times the memory of the
    tree, and leave holes all over the heap where what is kept of it had stood between."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.parser = Parser(document.text)
        self.next: Callable[[], Any] = self.parser.get_event
        self.anchors: dict[str, tuple[Any, Node | None, int]] = {}
        """Where each anchor stands, its node, and how many nodes that is; no node while it is being read."""
        self.full = False

    def read(self) -> Node | None:
        """The tree, None of an empty text. Raises the parser's errors."""
        try:
            self.next()  # the stream's start
            first = self.next()
            if type(first) is events.StreamEndEvent:
                return None
            tree = self._node(self.next(), 0)
            self.next()  # the document's end
            other = self.next()
            if type(other) is not events.StreamEndEvent:
                raise ComposerError("expected a single document in the stream", first.start_mark, "but found another document", other.start_mark)
            return tree
        finally:
            self.parser.dispose()

    def _node(self, event: Any, depth: int) -> Node:
        """The node that begins with `event`; what follows of it is read too."""
        document, kind, mark = self.document, type(event), self._mark(event)
        if depth > _MAX_DEPTH:
            self._say(mark, f"nested more than {_MAX_DEPTH} levels deep")
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
                self._say(place, f"key `{key}` is written twice (first at line {keys[key].line})")
            else:
                key = sys.intern(key)  # a catalog has the same ones a thousand times
                keys[key] = place
                entries[key] = self._node(self.next(), depth + 1)
                continue
            self._unread(self.next(), place)
        return Map(entries, keys, mark, bool(event.flow_style))

    def _key(self, event: Any, place: Mark) -> str | None:
        """A key, which is text; None where its value is not read."""
        if type(event) is events.AliasEvent:
            meant = self._alias(event, place)
            text = meant.text if isinstance(meant, Scalar) else None
        elif type(event) is events.ScalarEvent:
            text = event.value
            if event.anchor:
                self._anchor(event, self._scalar(event, place), 1)
            if text == "<<" and not event.style:
                self._say(place, "merge keys (`<<`) are not read", "write the keys out, or use an alias for the whole value")
                return None
        else:
            self._unread(event, place)
            text = None
        if text is None:
            braces = type(event) is events.MappingStartEvent
            self._say(place, "a key must be a word", "braces start a YAML object here: put quotes around \"{{ ... }}\"" if braces else "")
        return text

    def _scalar(self, event: Any, mark: Mark) -> Scalar:
        text: str = event.value
        if event.tag not in _TEXT_TAGS:
            self._say(mark, f"tag `{event.tag.replace('tag:yaml.org,2002:', '!!')}` is not read", "write the value without a tag")
        if event.style:
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
            raise ComposerError("found duplicate anchor; first occurrence", self.anchors[event.anchor][0].start_mark, "second occurrence", event.start_mark)
        self.anchors[event.anchor] = event, node, size

    def _alias(self, event: Any, mark: Mark) -> Node:
        """Its anchor's node again."""
        if event.anchor not in self.anchors:
            raise ComposerError(None, None, "found undefined alias", event.start_mark)
        _, node, size = self.anchors[event.anchor]
        if node is None:
            self._say(mark, f"`*{event.anchor}` stands inside of what it stands for")
            return self._unread(event, mark)
        self.document.size += size
        return node if self.document.size < MAX_NODES else self._too_many(event, mark)

    def _unread(self, event: Any, mark: Mark) -> Scalar:
        """Pass over all that belongs to the node which begins with `event`."""
        inside = 0
        while True:
            inside += isinstance(event, events.CollectionStartEvent) - isinstance(event, events.CollectionEndEvent)
            if not inside:
                return Scalar(None, "", False, mark)
            event = self.next()

    def _too_many(self, event: Any, mark: Mark) -> Scalar:
        if not self.full:
            self.full = True
            self._say(mark, f"more than {MAX_NODES} values in one file")
        return self._unread(event, mark)

    def _mark(self, event: Any) -> Mark:
        at = event.start_mark
        return Mark(self.document.file, at.line + 1, at.column + 1)

    def _say(self, mark: Mark, message: str, hint: str = "") -> None:
        self.document.problems.append(self.document.problem(mark, message, hint=hint))
