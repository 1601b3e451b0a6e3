"""Generated Python: lines that remember the YAML line they came from, built into functions.

Owns indentation, fresh names, constants and the build step. After `Module.build` every code object's line numbers are
those of the YAML file, so that tracebacks, coverage and profilers point into the mapping. Knows nothing of the language.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

_INDENT = "    "


class Code:
    """The body of one generated function, with what is already known at each point of it."""

    __slots__ = ("_depth", "_known", "header", "header_line", "lines", "module")

    def __init__(self, module: Module, header: str, line: int) -> None:
        self.module = module
        self.header = header
        self.header_line = line
        self.lines: list[tuple[int, str, int]] = []
        self._depth = 1
        self._known: list[dict[object, str]] = [{}]

    def add(self, text: str, line: int) -> None:
        """One statement (one line of Python) for YAML line `line`."""
        self.lines.append((self._depth, text, line))

    @contextmanager
    def block(self, header: str, line: int) -> Iterator[None]:
        """`header:` and what is added inside it; an empty block becomes `pass`. What it learns is forgotten after it."""
        self.add(header + ":", line)
        before = len(self.lines)
        self._depth += 1
        self._known.append({})
        try:
            yield
        finally:
            if len(self.lines) == before:
                self.add("pass", line)
            self._known.pop()
            self._depth -= 1

    def remember(self, key: object, name: str) -> str:
        """Note that local `name` holds `key` from here to the end of the current block."""
        self._known[-1][key] = name
        return name

    def recall(self, key: object) -> str | None:
        """The local that already holds `key` at this point, or None."""
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def temp(self, prefix: str = "t") -> str:
        """A local name nobody else uses."""
        return self.module.fresh(prefix)

    @property
    def empty(self) -> bool:
        """True while nothing was added."""
        return not self.lines


class Module:
    """All generated functions of one file, and the constants they use."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, object] = {}
        self._functions: list[Code] = []
        self._count = 0
        self._constants: dict[object, str] = {}

    def fresh(self, prefix: str) -> str:
        """A name unique in this module."""
        self._count += 1
        return f"{prefix}{self._count}"

    def function(self, header: str, line: int) -> Code:
        """Start a function; `header` is `name(arguments)`."""
        code = Code(self, f"def {header}:", line)
        self._functions.append(code)
        return code

    def constant(self, value: object, prefix: str = "K") -> str:
        """The global name of `value`; hashable values are shared."""
        key: object
        try:
            key = (type(value), value)
            found = self._constants.get(key)
        except TypeError:
            key, found = None, None
        if found is None:
            found = self.fresh(prefix)
            self.names[found] = value
            if key is not None:
                self._constants[key] = found
        return found

    def source(self) -> tuple[str, list[int]]:
        """The Python text and, per line of it, the YAML line."""
        text: list[str] = []
        lines: list[int] = []
        for code in self._functions:
            text.append(code.header)
            lines.append(code.header_line)
            if not code.lines:
                text.append(_INDENT + "pass")
                lines.append(code.header_line)
            for depth, statement, line in code.lines:
                text.append(_INDENT * depth + statement)
                lines.append(line)
        return "\n".join(text) + "\n", lines

    def build(self, runtime: dict[str, object]) -> dict[str, object]:
        """Compile; returns the namespace holding the functions. `runtime` is what generated code may call."""
        text, lines = self.source()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            line = getattr(node, "lineno", None)
            if line is not None:
                node.lineno = node.end_lineno = lines[line - 1]  # type: ignore[attr-defined]
                node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        namespace = {"__name__": f"tollgate.generated:{self.file}", **runtime, **self.names}
        exec(compile(tree, self.file, "exec"), namespace)  # noqa: S102 - our own generated code, never data
        return namespace
