"""Names and what they stand for: variables, functions, and the file that is being compiled.

`Unit` is one file (or one template of a provider file) while it is compiled: its generated module, its functions, the
mistakes found so far. `Site` is the place that code is generated for: the function body, and the names visible there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tollgate.config.load import Document, Map, Mark, Node, Problem, Scalar
from tollgate.errors import ConfigErrors
from tollgate.mapping.emit import Code, Module, TooDeep
from tollgate.mapping.filter_table import FILTERS, Filter
from tollgate.mapping.reads import Places, Reads, take
from tollgate.mapping.values import KINDS, RUNTIME, in_json
from tollgate.wording import nearest_word


@dataclass(slots=True)
class Lowered:
    """One expression lowered to Python. `present`: it is never None, except for a written null (kind `null`). `atom`:
    it is a name or a constant, cheap to repeat."""

    py: str
    present: bool = False
    kind: str = "any"
    """Its type if present: text, number, bool, list, object, null or any."""
    atom: bool = False
    places: Places = ()
    """Where in the document the value comes from, for the loss list; empty for computed values."""
    items: tuple[str, ...] = ()
    """The types of the items of a list that is written in the expression."""

    def take(self) -> Lowered:
        """Count everything in the value as read, because it becomes part of the result; so nothing of it is in the
        loss list."""
        take(self.places)
        return self


Key = TypeVar("Key", bound=str)

NOTHING = Lowered("None", atom=True)


def written(value: str | float | None) -> Lowered:
    """A literal."""
    if type(value) is int:
        value = in_json(value)
    return Lowered(repr(value), True, KINDS[type(value)], atom=True)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an engine record: how generated code reads it, its description in the reference, its own known
    fields."""

    py: str
    present: bool = False
    kind: str = "any"
    about: str = ""
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Var:
    """What `$name` stands for, and what is known about it."""

    name: str
    py: str
    """The Python for its value; empty for a record of the engine that can only be read by its fields."""
    places: Places = ()
    present: bool = False
    known: frozenset[str] | None = None
    """All fields it can have, if these are known."""
    fields: Mapping[str, Field] | None = None
    """For a record of the engine: its fields, each with Python of its own."""
    kind: str = "any"
    """Its type if present, as in `Lowered`."""
    own: bool = False
    """Defined by the file itself, with `$each`, `$let` or as a parameter."""


@dataclass(slots=True)
class Function:
    """A function of `define:` (or of the engine): its Python name, its parameters, and what it reads of each."""

    name: str
    py: str
    parameters: tuple[str, ...]
    reads: tuple[Reads, ...]
    mark: Mark | None = None
    node: Node | None = None
    calls: set[str] = field(default_factory=set)
    computed_calls: list[tuple[str, Mark]] = field(default_factory=list)
    """Calls with a computed argument (one that is not part of the data): not allowed between functions that call
    each other."""
    used: bool = False
    request: Reads = field(default_factory=Reads)
    """What it reads of `$request`."""


class Unit:
    """One file while it is compiled."""

    def __init__(
        self,
        document: Document,
        *,
        functions: Mapping[str, Function] | None = None,
        plugins: Mapping[str, Filter] | None = None,
        trace: bool = False,
    ) -> None:
        self.document = document
        self.module = Module(document.file)
        self.functions: dict[str, Function] = dict(functions or {})
        self.filters: dict[str, Filter] = {**FILTERS, **(plugins or {})}
        self.trace = trace
        self.problems: list[Problem] = []
        self.helpers: dict[object, str] = {}
        """Generated helper functions by their purpose (paths that give lists)."""
        self.escape_holes = False
        """True while a URL is compiled: values in braces are path-escaped."""
        self.compared: list[tuple[Places, str, Mark]] = []
        """Words that values are compared with: the places of the value, the word, and its position."""
        self.filtered: list[tuple[Places, Filter, Mark]] = []
        """Fields that a filter is used on: the places of the value, the filter, and its position."""

    def mistake(self, at: Node | Mark, message: str, hint: str = "") -> None:
        """Note a mistake and go on, so that all mistakes of a file are found at once."""
        self._note(self.document.problem(at, message, hint=hint))

    def warn(self, at: Node | Mark, message: str, hint: str = "") -> None:
        """Note something that compiles and was probably not meant."""
        self._note(self.document.warning(at, message, hint=hint))

    def _note(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def check_keys(self, node: Map, known: Collection[str]) -> None:
        """Note the unknown keys of a map."""
        for key, mark in node.keys.items():
            if key not in known:
                self.mistake(mark, f"unknown key `{key}`", known_words(key, known))

    def entries(self, node: Node | None, known: tuple[Key, ...], takes: str, hint: str) -> list[tuple[Key, Node]]:
        """The entries of a map in the order of the known keys; none if there is no node. Other keys, and a node that
        is no map (`takes` is the message), are mistakes."""
        if not isinstance(node, Map):
            if node is not None:
                self.mistake(node, takes, hint)
            return []
        self.check_keys(node, known)
        return [(key, node.entries[key]) for key in known if key in node.entries]

    def build(self, more: Mapping[str, object] | None = None) -> dict[str, object]:
        """Compile the generated code, and run it with the names of `RUNTIME` and `more`; returns what it defines.
        Raises `ConfigErrors` with all mistakes."""
        self.raise_mistakes()
        try:
            return self.module.build({**RUNTIME, **(more or {})})
        except TooDeep as error:
            mark = Mark(self.document.file, error.line, 1)
            hint = "name parts of it with $let, or use a function"
            problem = self.document.problem(mark, "this is nested too deeply to compile", hint=hint)
            raise ConfigErrors([problem]) from None

    def raise_mistakes(self) -> None:
        """Raise the mistakes found so far, if there are any."""
        wrong = [problem for problem in self.problems if problem.level == "error"]
        if wrong:
            raise ConfigErrors(sorted(wrong, key=lambda problem: (problem.mark.line, problem.mark.column)))


@dataclass(frozen=True, slots=True)
class Scope:
    """The names visible at one place, and what holds for all code there."""

    names: Mapping[str, Var]
    function: Function | None = None
    """The function of `define:` that it belongs to."""
    lost: Places = ()
    """What a `$lost` without a hole reports: the value that the nearest `$when`, `$match` or `$each` is about."""
    of_answer: bool = False
    """The document is a provider's answer: there a name in dotted notation is probably a path without its `$`."""

    def losing(self, places: Places) -> Scope:
        """This scope, where a `$lost` reports the value at these places."""
        return replace(self, lost=places)

    def with_names(self, *added: Var) -> Scope:
        """This scope with additional names."""
        return replace(self, names={**self.names, **{var.name: var for var in added}})

    def narrowed(self, name: str, places: Places) -> Scope:
        """This scope, where reads of `$name` count only for `places` (inside a case)."""
        var = self.names[name]
        return self.with_names(replace(var, places=places))


@dataclass(frozen=True, slots=True)
class Site:
    """Where code is generated: the file, the function body, the visible names, and the path in the output (for
    explain)."""

    unit: Unit
    code: Code
    scope: Scope
    out: str = ""

    def inside(self, scope: Scope) -> Site:
        """The same site with another scope."""
        return Site(self.unit, self.code, scope, self.out)

    def under(self, key: str) -> Site:
        """The site one step deeper in the output."""
        return Site(self.unit, self.code, self.scope, f"{self.out}.{key}" if self.out else key)

    def temp(self, prefix: str = "t") -> str:
        """A new local name."""
        return self.code.temp(prefix)

    def traced(self, value: Lowered, line: int) -> Lowered:
        """The same value. When the mapping is explained, it is also recorded as what this line makes here."""
        if not self.unit.trace:
            return value
        return replace(value, py=f"traced(C, {line}, {self.out!r}, {value.py})", atom=False)

    def hold(self, value: Lowered, name: str) -> None:
        """From here to the end of the block local `name` holds the value, so that the field is not read again."""
        self.code.remember(("value", value.py), name)

    def bound(self, value: Lowered) -> tuple[str, str]:
        """(expression, name): the expression gives the value, and assigns it to `name`."""
        if value.atom:
            return value.py, value.py
        name = self.temp()
        return f"({name} := {value.py})", name

    def local(self, value: Lowered, prefix: str, line: int) -> str:
        """A local that holds the value: its own if it is one, else a new one that is assigned on this line."""
        if value.atom:
            return value.py
        name = self.temp(prefix)
        self.code.add(f"{name} = {value.py}", line)
        self.hold(value, name)
        return name


@dataclass(slots=True, eq=False)
class Spot:
    """A text inside a scalar; knows where in the file each of its characters is."""

    unit: Unit
    node: Scalar
    shift: int = 0

    def moved(self, by: int) -> Spot:
        """The spot of a text that begins `by` characters later."""
        return Spot(self.unit, self.node, self.shift + by)

    @property
    def line(self) -> int:
        """The line that generated code is attributed to."""
        return self.node.mark.line

    def mark(self, offset: int = 0) -> Mark:
        """The position of character `offset` in the file; if it cannot be found, that of the scalar."""
        node = self.node
        if not isinstance(node.value, str):
            return node.mark
        wanted = node.value[self.shift + offset :][:12].split("\n")[0]
        lines = self.unit.document.holding(node.mark).lines
        if not 0 < node.mark.line <= len(lines) or not wanted:
            return node.mark
        first = lines[node.mark.line - 1]
        column = node.mark.column - 1 + bool(node.quoted) + self.shift + offset
        if first.startswith(wanted, column):
            return Mark(node.mark.file, node.mark.line, column + 1)
        for number in range(node.mark.line - 1, min(node.mark.line + 40, len(lines))):
            start = node.mark.column - 1 if number == node.mark.line - 1 else 0
            found = lines[number].find(wanted, start)
            if found >= 0:
                return Mark(node.mark.file, number + 1, found + 1)
        return node.mark

    def mistake(self, message: str, offset: int = 0, hint: str = "") -> None:
        """Note a mistake at character `offset`."""
        self.unit.mistake(self.mark(offset), message, hint)

    def warn(self, message: str, offset: int = 0, hint: str = "") -> None:
        """Note at character `offset` something that compiles and was probably not meant."""
        self.unit.warn(self.mark(offset), message, hint)


def known_words(word: str, known: Collection[str]) -> str:
    """A hint for an unknown word: the nearest known word, else all of them."""
    return suggest(word, known) or (f"one of {', '.join(known)}" if known else "it has none")


def suggest(word: str, known: Iterable[str], shape: str = "{}") -> str:
    """`did you mean ...` for the nearest known word, written as `shape`."""
    names = list(known)
    name = nearest_word(word, names)
    if not name:  # short names have no near ones: $msg for $m
        name = next((name for name in names if name and word and (word.startswith(name) or name.startswith(word))), "")
    return f"did you mean `{shape.format(name)}`?" if name else ""
