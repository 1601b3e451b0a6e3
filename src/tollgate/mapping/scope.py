"""Names and where they lead: variables, functions, and the file being compiled.

`Unit` is one file (or one template of a provider file) in the making: its generated module, its functions, what is
wrong with it so far. `Site` is the place code is generated for: the function body being written and the names visible
there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tollgate.config.load import Document, Map, Mark, Node, Problem, Scalar
from tollgate.errors import ConfigErrors
from tollgate.mapping.emit import Code, Module, TooDeep
from tollgate.mapping.filter_table import FILTERS, Filter
from tollgate.mapping.reads import Places, Reads, take
from tollgate.wording import nearest_word


@dataclass(slots=True)
class Lowered:
    """One expression lowered to Python. `present`: it is never None; `atom`: it is a name or a constant, cheap to
    repeat."""

    py: str
    present: bool = False
    kind: str = "any"
    """What it is when present: text, number, bool, list, object or any."""
    atom: bool = False
    places: Places = ()
    """Where the value comes from in the document, for the loss list; empty for computed values."""

    def take(self) -> Lowered:
        """Count everything in the value as read, because it is used as it is; the loss list then says nothing of it."""
        take(self.places)
        return self


NOTHING = Lowered("None", atom=True)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an engine record: how generated code reads it, what the reference says of it, its own known fields."""

    py: str
    present: bool = False
    kind: str = "any"
    about: str = ""
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Var:
    """What `$name` is: a Python name (or attribute), and what is known of it."""

    name: str
    py: str
    places: Places = ()
    present: bool = False
    is_dict: bool = False
    known: frozenset[str] | None = None
    """The only fields it can have, when that is certain."""
    fields: Mapping[str, Field] | None = None
    """An engine record: its fields are read as attributes."""
    kind: str = "any"
    """What it is when present, as in `Lowered`."""
    whole: str | None = ""
    """How the record reads when it is used whole; empty = as `py`; None = it cannot be."""
    own: bool = False
    """The file's author named it, by `$each`, `$let` or a function."""


@dataclass(slots=True)
class Function:
    """A function of `define:` (or one the engine offers): its generated name, parameters and what it reads of them."""

    name: str
    py: str
    parameters: tuple[str, ...]
    reads: tuple[Reads, ...]
    mark: Mark | None = None
    node: Node | None = None
    calls: set[str] = field(default_factory=set)
    made: list[tuple[str, Mark]] = field(default_factory=list)
    """Calls whose argument is computed (not a part of the data):
    not allowed where functions call each other in a circle."""
    used: bool = False
    asked: Reads = field(default_factory=Reads)
    """What it reads of `$request`."""


class Unit:
    """One file in the making."""

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
        """Generated helper functions by what they do (paths that give lists)."""
        self.escape_holes = False
        """True while a URL is compiled: what stands in braces is path-escaped."""
        self.reads_answer = False
        """True while what a provider said is read: a constant there is a word, not a name in dotted notation."""
        self.compared: list[tuple[Places, str, Mark]] = []
        """Words that values are compared with: where the values come from, the word, and where it is written."""

    def mistake(self, at: Node | Mark, message: str, hint: str = "") -> None:
        """Note something wrong; compiling goes on, so that all of it is found at once."""
        self._note(self.document.problem(at, message, hint=hint))

    def warn(self, at: Node | Mark, message: str, hint: str = "") -> None:
        """Note what compiles and is probably not meant."""
        self._note(self.document.warning(at, message, hint=hint))

    def _note(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def check_keys(self, node: Map, known: Collection[str]) -> None:
        """Note the keys of a map that are none of those known."""
        for key, mark in node.keys.items():
            if key not in known:
                self.mistake(mark, f"unknown key `{key}`", known_words(key, known))

    def build(self, runtime: dict[str, object]) -> dict[str, object]:
        """Compile what was generated; raises `ConfigErrors` with everything that is wrong."""
        self.raise_mistakes()
        try:
            return self.module.build(runtime)
        except TooDeep as error:
            self.mistake(
                Mark(self.document.file, error.line, 1),
                "this is nested too deeply to compile",
                "name parts of it with $let, or use a function",
            )
        self.raise_mistakes()
        raise AssertionError

    def raise_mistakes(self) -> None:
        """Raise what is wrong so far, if anything is."""
        wrong = [problem for problem in self.problems if problem.level == "error"]
        if wrong:
            raise ConfigErrors(sorted(wrong, key=lambda problem: (problem.mark.line, problem.mark.column)))


class Scope:
    """The names visible at one place."""

    __slots__ = ("about", "function", "names")

    def __init__(self, names: Mapping[str, Var], function: Function | None = None, about: Places = ()) -> None:
        self.names = dict(names)
        self.function = function
        self.about = about
        """What the nearest `$when`, `$match` or `$each` is about: the value a `$lost` without a hole speaks for."""

    def speaking_of(self, places: Places) -> Scope:
        """This scope where a `$lost` speaks for the value at these places."""
        return Scope(self.names, self.function, places)

    def with_names(self, *added: Var) -> Scope:
        """This scope and more names."""
        inner = Scope(self.names, self.function, self.about)
        for var in added:
            inner.names[var.name] = var
        return inner

    def narrowed(self, name: str, places: Places) -> Scope:
        """This scope where what is read of `$name` counts only for `places` (inside a case)."""
        var = self.names[name]
        return self.with_names(replace(var, places=places))


@dataclass(frozen=True, slots=True)
class Site:
    """Where code is generated: the file, the function body, the names, and the output path (for explain)."""

    unit: Unit
    code: Code
    scope: Scope
    out: str = ""

    def inside(self, scope: Scope) -> Site:
        """The same place with other names."""
        return Site(self.unit, self.code, scope, self.out)

    def under(self, key: str) -> Site:
        """One step further down the output."""
        return Site(self.unit, self.code, self.scope, f"{self.out}.{key}" if self.out else key)

    def temp(self, prefix: str = "t") -> str:
        """A fresh local name."""
        return self.code.temp(prefix)

    def traced(self, value: Lowered, line: int) -> Lowered:
        """The same value; where steps are to be explained it is told as what this line makes here."""
        if not self.unit.trace:
            return value
        return replace(value, py=f"traced(C, {line}, {self.out!r}, {value.py})", atom=False)

    def hold(self, value: Lowered, name: str) -> None:
        """Local `name` has the value from here to the end of the block:
        who reads the same field again finds it there."""
        self.code.remember(("value", value.py), name)

    def bound(self, value: Lowered) -> tuple[str, str]:
        """(expression, name): the expression gives the value, and after it `name` has it too."""
        if value.atom:
            return value.py, value.py
        name = self.temp()
        return f"({name} := {value.py})", name

    def local(self, value: Lowered, prefix: str, line: int) -> str:
        """A local that has the value: its own where it is one, else a new one, set by this line."""
        if value.atom:
            return value.py
        name = self.temp(prefix)
        self.code.add(f"{name} = {value.py}", line)
        self.hold(value, name)
        return name


@dataclass(slots=True, eq=False)
class Spot:
    """A text inside a scalar, able to say where in the file a character of it stands."""

    unit: Unit
    node: Scalar
    shift: int = 0

    def moved(self, by: int) -> Spot:
        """The spot of a text that begins `by` characters further on."""
        return Spot(self.unit, self.node, self.shift + by)

    @property
    def line(self) -> int:
        """The line generated code carries."""
        return self.node.mark.line

    def mark(self, offset: int = 0) -> Mark:
        """The place in the file of character `offset`; the scalar's own place when that cannot be told."""
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
        """Note something wrong at character `offset`."""
        self.unit.mistake(self.mark(offset), message, hint)


def known_words(word: str, known: Collection[str]) -> str:
    """A hint for a word that is none of those known: the nearest of them, else all."""
    return suggest(word, known) or f"one of {', '.join(known)}"


def suggest(word: str, known: Iterable[str], shape: str = "{}") -> str:
    """`did you mean ...` for the nearest known word, written as `shape`."""
    names = list(known)
    name = nearest_word(word, names)
    if not name:  # short names are far from everything: $msg for $m
        name = next((name for name in names if name and word and (word.startswith(name) or name.startswith(word))), "")
    return f"did you mean `{shape.format(name)}`?" if name else ""
