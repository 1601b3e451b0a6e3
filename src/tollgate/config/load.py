"""YAML with positions: text -> a tree of nodes that know their file, line and column.

Owns the reading rules of every configuration file: YAML 1.1 traps are off (`no`, `on`, dates, octals and sexagesimals
are text), numbers keep their digits (`Decimal`, never float), a key is always text, a duplicate key is a problem. What
the files mean is left to `schema.py` and the mapping compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import yaml

from tollgate.config.yaml_parser import hint_for
from tollgate.wording import nearest_word

_TYPED_SECRET = re.compile(
    r"(?i)(?:(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password in an address
    r"|(?<=bearer )[\w.+/=~-]{8,}"
    r"|\b(?:sk|pk|rk|key|tok)[-_][\w-]{12,}"
    r"|(?:(?<=key: )|(?<=key\": )|(?<=token: )|(?<=secret: )|(?<=password: )|(?<=authorization: ))"
    r"[\"']?(?=[\w.+/=~-]*\d)[\w.+/=~-]{16,}[\"']?)"
)
"""What looks like a secret typed into a file: it is shown as stars, of the same length so that the caret stays in
place."""
_TOP_LEVEL = re.compile(r"^[^\s#-]|^---", re.MULTILINE)


class Mark(NamedTuple):
    """A place in a file; line and column count from 1. A tuple, as every value and key of every file has one."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: where, under which path, what was found and wanted, and a hint how to fix it."""

    mark: Mark
    message: str
    path: str = ""
    hint: str = ""
    line_text: str = ""
    level: str = "error"
    """`error` stops a load; `warning` is only printed (a price that looks wrong, for example)."""

    def render(self, *, source: bool = True) -> str:
        """`file:line:column: path: message (hint)` and, with `source`, the line with a caret below it."""
        line = f"{self.mark}: "
        if self.level != "error":
            line += f"{self.level}: "
        if self.path:
            line += f"{self.path}: "
        line += self.message
        if self.hint:
            line += f" ({self.hint})"
        if source and self.line_text:
            caret = " " * (self.mark.column - 1) + "^"
            line += f"\n    {self.line_text}\n    {caret}"
        return line


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One value: `value` is text, int, Decimal, bool or None; `text` is how it is written in the file; quoted text
    is text."""

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
    incomplete: bool = False
    """Something in it was removed as wrong, and reported: a missing key is not reported again."""

    def get(self, key: str) -> Node | None:
        """The node under `key`, or None."""
        return self.entries.get(key)


Node = Scalar | List | Map


@dataclass(slots=True, eq=False)
class Document:
    """A file that was read: its tree and its syntax errors."""

    file: str
    text: str
    _root: Node | None
    problems: list[Problem] = field(default_factory=list)
    size: int = 0
    """Nodes of the tree, with aliases expanded."""
    shared: tuple[Document, ...] = ()
    """The shared files (`shared:`) that were merged into this tree."""
    models: tuple[Document, ...] = ()
    """The models files (`models_from:`) that were merged into this tree."""
    without: str = ""
    """The last key that `read_file` left unread."""
    _lines: list[str] | None = field(default=None, repr=False)

    @property
    def root(self) -> Node:
        """Its tree; read again from the text when it was let go."""
        tree = self._root
        if tree is None:
            tree = read_text(_before(self.text, self.without), self.file).root
            if self.included and isinstance(tree, Map):
                from tollgate.config.included import over_shared, with_models  # built on this module

                tree = over_shared(tree, [other.root for other in self.shared])
                tree = with_models(tree, [other.root for other in self.models])
            self._root = tree
        return tree

    @root.setter
    def root(self, tree: Node) -> None:
        """Its tree; parsed again from the text after `let_go`."""
        self._root = tree

    @property
    def included(self) -> tuple[Document, ...]:
        """All files that were merged into this tree; a problem in a node of theirs shows their line."""
        return (*self.shared, *self.models)

    def let_go(self) -> None:
        """Drop the tree and keep the text: a tree takes ten times its memory, and once everything is built it is
        only needed for messages."""
        self._root = self._lines = None
        for other in self.included:
            other.let_go()

    @property
    def lines(self) -> list[str]:
        """Its lines, for carets; split when first used, because most files have no mistake."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines

    def holding(self, mark: Mark) -> Document:
        """The document of the file that a node of this tree was written in."""
        if mark.file == self.file:
            return self
        return next((other for other in self.included if other.file == mark.file), self)

    def problem(
        self, at: Node | Mark, message: str, *, path: str = "", hint: str = "", level: str = "error"
    ) -> Problem:
        """A `Problem` at a node or mark, carrying its source line."""
        mark = at if isinstance(at, Mark) else at.mark
        holder = self.holding(mark)
        lines = holder.lines if holder.file == mark.file else []
        line = lines[mark.line - 1] if 0 < mark.line <= len(lines) else ""
        return Problem(mark, _masked(message), path, hint, _masked(line), level)

    def warning(self, at: Node | Mark, message: str, path: str = "", hint: str = "") -> Problem:
        """As `problem`, for what loads and was probably not meant."""
        return self.problem(at, message, path=path, hint=hint, level="warning")


def read_file(path: Path, shown_as: str | None = None, *, without: str = "", known: Document | None = None) -> Document:
    """Read a YAML file. Never raises for its content (see `Document.problems`); OSError if it cannot be opened.

    `without` is a last key of the file to leave unread (`examples`, which only a check runs, are half of many files).
    `known` is returned if the file holds the same text and had no problems.
    """
    name = shown_as or str(path)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        mark = Mark(name, line, error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1)
        document = read_text("", name)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        document.problems.append(Problem(mark, message, hint="save the file as UTF-8"))
        return document
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
    """The text before a top-level `key:` if no other key follows it, else the whole text.

    If the line is inside quotes or braces, the text before it is incomplete and does not parse.
    """
    at = text.find(f"\n{key}:") if key else -1
    return text[: at + 1] if at >= 0 and not _TOP_LEVEL.search(text, at + 1 + len(key)) else text


def read_text(text: str, name: str) -> Document:
    """Read YAML text; an empty text is an empty map. All problems found are in `Document.problems`."""
    from tollgate.config.yaml_tree import Tree  # built on this module

    document = Document(name, text, Map({}, {}, Mark(name, 1, 1)))
    try:
        tree = Tree(document).read()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        if error.context == "while scanning a quoted scalar" and "end of stream" in (error.problem or ""):
            at = error.context_mark  # the beginning of the text that is not closed
        mark = Mark(name, at.line + 1, at.column + 1) if at else Mark(name, 1, 1)
        what = (error.problem or "not YAML").strip().removeprefix("but ")
        # Earlier problems are dropped: most are the same mistake, seen too early.
        document.problems = [
            document.problem(
                mark, f"not readable as YAML: {what}", hint=hint_for(document.lines, mark.line, mark.column, what)
            )
        ]
        return document
    except yaml.reader.ReaderError as error:
        mark = Mark(name, text.count("\n", 0, error.position) + 1, 1)
        document.problems.append(document.problem(mark, f"character U+{error.character:04X} is not allowed in YAML"))
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


def lookup(node: Node | None, *path: str) -> Node | None:
    """The node under these keys; None where one of them is not there."""
    for key in path:
        node = entries_of(node).get(key)
    return node


def entries_of(node: Node | None) -> dict[str, Node]:
    """The entries of a map; none of anything else."""
    return node.entries if isinstance(node, Map) else {}


def reported_missing(root: Node, key: str) -> bool:
    """Whether a missing key was removed as wrong, or is misspelt. That is reported already; what follows from it is
    not."""
    return isinstance(root, Map) and (root.incomplete or bool(nearest_word(key, root.entries)))


def items_of(node: Node | None) -> tuple[Node, ...]:
    """The items of a list; none of anything else."""
    return node.items if isinstance(node, List) else ()


def one_or_many(node: Node | None) -> tuple[Node, ...]:
    """The items of a list, or the node itself where one item may be written without a list."""
    return () if node is None else node.items if isinstance(node, List) else (node,)


def text_in(node: Node | None) -> str | None:
    """The text of a node; None for a number, a list and so on, and for None."""
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def walk(node: Node | None) -> Iterator[Node]:
    """Every node of a tree, top down, in file order; none for None."""
    waiting = [] if node is None else [node]
    while waiting:
        here = waiting.pop()
        yield here
        waiting += reversed(
            here.entries.values() if isinstance(here, Map) else here.items if isinstance(here, List) else ()
        )


def _masked(text: str) -> str:
    return _TYPED_SECRET.sub(lambda found: "*" * len(found[0]), text)
