"""Generated Python: lines that remember the YAML line they came from, built into functions.

Owns indentation, unique names, constants and the build step. After `Module.build` the line numbers of every code object
are those of the YAML file, so that tracebacks, coverage and profilers point into the mapping. Knows nothing of the
mapping language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Literal

from tollgate.mapping.code_cache import CodeCache

_INDENT = "    "


class TooDeep(Exception):
    """Generated code that is nested too deeply for Python; `line` is the YAML's."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


Known = tuple[Literal["value", "dict", "list"], str]
"""What a local holds: the value of a Python expression; or that value if it is of this type, else an empty one."""


class Code:
    """The body of one generated function, with the values that its locals are known to hold at the current point."""

    __slots__ = ("_depth", "_known", "header", "header_line", "lines", "module")

    def __init__(self, module: Module, header: str, line: int) -> None:
        self.module = module
        self.header = header
        self.header_line = line
        self.lines: list[tuple[int, str, int]] = []
        self._depth = 1
        self._known: list[dict[Known, str]] = [{}]

    def add(self, text: str, line: int) -> None:
        """One statement (one line of Python) for YAML line `line`."""
        self.lines.append((self._depth, text, line))

    @contextmanager
    def block(self, header: str, line: int) -> Iterator[None]:
        """`header:` and what is added inside; an empty block becomes `pass`. What is remembered inside is forgotten
        afterwards."""
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

    def remember(self, key: Known, name: str) -> str:
        """Note that local `name` holds `key` from here to the end of the current block."""
        self._known[-1][key] = name
        return name

    def recall(self, key: Known) -> str | None:
        """The local that already holds `key` at this point, or None."""
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def forget(self, owner: str) -> None:
        """Forget the locals that hold a part of the object in this local, because it has changed."""
        found = re.compile(rf"\b{re.escape(owner)}\.")
        for known in self._known:
            for key in [key for key in known if found.search(key[1])]:
                del known[key]

    def temp(self, prefix: str = "t") -> str:
        """A local name that is not used yet."""
        return self.module.fresh(prefix)


class Module:
    """All generated functions of one file, and the constants they use."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, object] = {}
        self.key = b""
        """The key under which its code is cached, once it is built."""
        self._functions: list[Code] = []
        self._count = 0
        self._constants: dict[object, str] = {}

    def fresh(self, prefix: str) -> str:
        """A name unique in this module."""
        self._count += 1
        return f"{prefix}{self._count}"

    def function(self, header: str, line: int) -> Code:
        """Start a function; `header` is `name(arguments)`."""
        return self.add(Code(self, f"def {header}:", line))

    def add(self, code: Code) -> Code:
        """Add a function that was written separately."""
        self._functions.append(code)
        return code

    def constant(self, value: object, prefix: str = "K") -> str:
        """The global name of `value`; hashable values are shared."""
        key: object = (type(value), value)
        try:
            hash(key)
        except TypeError:
            key = id(value)  # `names` keeps it alive
        if key not in self._constants:
            name = self._constants[key] = self.fresh(prefix)
            self.names[name] = value
        return self._constants[key]

    def source(self) -> tuple[str, list[int]]:
        """The Python text and, for each of its lines, the YAML line."""
        rows: list[tuple[int, str, int]] = []
        for code in self._functions:
            rows.append((0, code.header, code.header_line))
            rows += code.lines or [(1, "pass", code.header_line)]
        text = "".join(f"{_INDENT * depth}{statement}\n" for depth, statement, _ in rows)
        return text, [line for _, _, line in rows]

    def build(self, runtime: dict[str, object]) -> dict[str, object]:
        """Compile; returns the namespace with the functions. `runtime` has the names that generated code may call."""
        if not self._functions:
            return {**runtime, **self.names}
        text, lines = self.source()
        self._functions.clear()  # they refer to this: see `Code.module`
        cache = _code_cache or CodeCache()
        self.key = cache.key(text, lines, self.file)
        code = cache.get(self.key)
        if code is None:
            code = self._compiled(text, lines)
            cache.put(self.key, code)
        return executed(code, self.file, {**runtime, **self.names})

    def _compiled(self, text: str, lines: list[int]) -> CodeType:
        try:
            return _relocated(compile(text, self.file, "exec"), lines)
        except (SyntaxError, RecursionError, MemoryError) as error:
            generated = getattr(error, "lineno", None) or 1
            raise TooDeep(lines[min(generated, len(lines)) - 1]) from error


def executed(code: CodeType, file: str, names: dict[str, object]) -> dict[str, object]:
    """Run a module's code with these names; returns the resulting namespace."""
    namespace = {"__name__": f"tollgate.generated:{file}", **names}
    exec(code, namespace)  # noqa: S102 - our own generated code, never data
    return namespace


_code_cache: CodeCache | None = None


def current_code_cache() -> CodeCache | None:
    """The cache that `using_code_cache` has set."""
    return _code_cache


@contextmanager
def using_code_cache(cache: CodeCache | None) -> Iterator[None]:
    """Inside this block, modules take compiled code from `cache` if it is there, and add what they had to compile."""
    global _code_cache
    before, _code_cache = _code_cache, cache
    try:
        yield
    finally:
        _code_cache = before


def _relocated(code: CodeType, lines: list[int]) -> CodeType:
    """The same code with YAML lines in its line table.

    Rewriting the table takes a tenth of the time of rewriting a syntax tree. Its format is CPython's since 3.11
    (Objects/locations.md): entries of up to 8 code units; kind 13 is a line without columns, 15 no line at all.
    """
    before = first = lines[code.co_firstlineno - 1]
    table = bytearray()
    for start, end, generated in code.co_lines():
        units = (end - start) // 2
        if not units:
            continue
        if generated:
            line = lines[generated - 1]
            kind, step = _LINE, _STEPS.get(line - before) or _signed(line - before)
            before = line
        else:
            kind, step = _NO_LINE, b""
        while units > 8:
            table.append(kind | 7)
            table += step
            step = b"\0" if step else step
            units -= 8
        table.append(kind | units - 1)
        table += step
    constants = tuple(
        [_relocated(constant, lines) if type(constant) is CodeType else constant for constant in code.co_consts]
    )
    return code.replace(co_firstlineno=first, co_linetable=bytes(table), co_consts=constants)


def _signed(value: int) -> bytes:
    """A signed number in groups of six bits, lowest first, the sign in the lowest bit."""
    rest = -value << 1 | 1 if value < 0 else value << 1
    groups = bytearray()
    while rest >= 64:
        groups.append(rest & 63 | 64)
        rest >>= 6
    groups.append(rest)
    return bytes(groups)


_LINE = 0x80 | 13 << 3
_NO_LINE = 0x80 | 15 << 3
_STEPS = {step: _signed(step) for step in range(-99, 100)}
"""The encoding of nearly every step from one line to the next."""
