"""The expression grammar: text -> jinja2's syntax tree, after the `$paths` are replaced.

Only jinja2's parser is used. Every `$path` is replaced by an identifier of the same length, so positions stay the same;
tokens carry their offset in place of a line number, so every node of the tree knows its character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.lexer import TokenStream
from jinja2.parser import Parser

from tollgate.mapping.paths import QUOTED, ParseError, extent

__all__ = ["Expression", "decided", "is_field", "nodes", "parse_expression", "words_in"]

_FIRST = 0x4E00
"""Identifiers for paths begin with a CJK ideograph, another one for each path of an expression; to jinja2 it is a
letter."""
_MOST = 2000
_FILL = "\u01be"
_SIGN = re.compile(rf"{QUOTED}|\$|{{{{|{{%|%}}|[^\x00-\x7f]", re.DOTALL)
"""What is found before jinja2 parses an expression: texts, paths, and characters that belong to neither."""
_IGNORED = ("whitespace", "comment", "comment_begin", "comment_end")


class _Environment(Environment):
    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        placed: list[tuple[int, str, str]] = []
        offset = 0
        for _, kind, text in self.lexer.tokeniter(source, name, filename, state):
            if kind == "string" and placed and placed[-1][1] == kind:  # jinja2 would join them
                raise ParseError("a comma is missing between two texts", offset, "or `~`, to join them")
            if kind not in _IGNORED:
                placed.append((offset + 1, kind, text))
            offset += len(text)
        return TokenStream(self.lexer.wrap(placed, name, filename), name, filename)


_ENVIRONMENT = _Environment()


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: the tree (a node's `lineno` is its offset + 1), and the text of each path by its
    identifier."""

    tree: Any
    paths: dict[str, str]


@lru_cache(maxsize=8192)
def parse_expression(text: str) -> Expression:
    """Parse an expression; `ParseError` if it cannot be parsed."""
    source, paths = _without_paths(text)
    try:
        parser = Parser(_ENVIRONMENT, source, state="variable")
        if parser.stream.eos:
            raise ParseError("an expression is wanted here", 0)
        tree = parser.parse_expression()
        if not parser.stream.eos:
            offset = parser.stream.current.lineno - 1
            raise ParseError(f"the expression ends before `{_shown(text, offset)}`", offset, _hint(text))
    except TemplateSyntaxError as error:
        offset = max(0, min((error.lineno or 1) - 1, len(text) - 1))
        message = re.sub("'?end of print statement'?", "the end", error.message or "not an expression")
        if at := re.search(r" at (\d+)$", message):  # the lexer's messages contain the offset
            message, offset = message[: at.start()], int(at[1])
        if "end of template" in message:
            message, offset = "something is missing at its end", len(text.rstrip()) - 1
        for stand_in, path in paths.items():
            message = message.replace(stand_in, path)
        raise ParseError(f"the expression does not parse: {message}", offset, _hint(text)) from None
    except RecursionError:
        raise ParseError("the expression is nested too deeply", 0) from None
    return Expression(tree, paths)


def _without_paths(text: str) -> tuple[str, dict[str, str]]:
    out: list[str] = []
    paths: dict[str, str] = {}
    position = 0
    while found := _SIGN.search(text, position):
        sign, start = found[0], found.start()
        out.append(text[position:start])
        position = found.end()
        if sign == "$":
            if len(paths) >= _MOST:
                raise ParseError("too many paths in one expression", start)
            position = extent(text, start)
            if text.startswith(".", start - 1) and start:
                raise ParseError(f"`{text[start:position]}` is a path of its own", start, "a name after a dot has no $")
            stand_in = chr(_FIRST + len(paths)) + _FILL * (position - start - 1)
            paths[stand_in] = text[start:position]
            out.append(stand_in)
        elif sign[0] in "'\"":
            out.append(sign)
        elif sign == "{{":
            raise ParseError("no braces here: this place already takes an expression", start, "write it without {{ }}")
        else:
            hint = "" if sign.isascii() else "text stands in quotes"
            raise ParseError(f"`{sign}` has no meaning in an expression", start, hint)
    out.append(text[position:])
    return "".join(out), paths


def _shown(text: str, offset: int) -> str:
    rest = text[offset : offset + 20].strip()
    return rest if len(text) <= offset + 20 else rest + "..."


_ALL_AFTER_A_KEY = re.compile(r"[\])][\w.]*\[(?:\*\]|\?\()")
"""`[*]` or a filter behind a computed value: `$.turns[$i + 1].parts[*]`, `f($x)[*]`."""


def _hint(text: str) -> str:
    if _ALL_AFTER_A_KEY.search(text):
        return "a path with [*] begins at a name: give the value before it one with $let, and read `$name[*]`"
    if "&" in text or "||" in text:
        return "write `and` and `or`"
    if "?" in text and ":" in text:
        return "write `a if condition else b`"
    if "=" in text.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", ""):
        return "a comparison is written =="
    return ""


def words_in(node: nodes.Node) -> list[str]:
    """The texts that a node consists of, as one literal or a list of them: `['a', $.b]` -> `["a"]`."""
    items = node.items if isinstance(node, nodes.List | nodes.Tuple) else [node]
    return [item.value for item in items if isinstance(item, nodes.Const) and isinstance(item.value, str)]


def is_field(node: nodes.Node, paths: Mapping[str, str]) -> bool:
    """Whether a node is the path of a field, `$x.a`: then its value is part of the document and not computed."""
    return isinstance(node, nodes.Name) and "." in paths.get(node.name, "")


def decided(node: nodes.And | nodes.Or, paths: Mapping[str, str]) -> nodes.Name | None:
    """The path in a comparison that, with one before it, makes a condition never hold (`$.a == 'x' and $.a == 'y'`) or
    always (`$.a != 'x' or $.a != 'y'`); None without one."""
    found = [each for each in _compared(node, type(node)) if each[0].name in paths]
    for (one, values), (other, others) in combinations(found, 2):
        if paths[one.name] == paths[other.name] and not any(value in others for value in values):
            return other
    return None


def _compared(node: nodes.Node, joined: type[nodes.BinExpr]) -> Iterator[tuple[nodes.Name, list[object]]]:
    """What the sides of `and` compare with literals by == and in, or those of `or` by != and not in."""
    if isinstance(node, joined):
        yield from _compared(node.left, joined)
        yield from _compared(node.right, joined)
    elif isinstance(node, nodes.Compare) and len(node.ops) == 1 and isinstance(node.expr, nodes.Name):
        wanted = node.ops[0].expr
        several = isinstance(wanted, nodes.List)
        items = wanted.items if isinstance(wanted, nodes.List) else [wanted]
        values = [item.value for item in items if isinstance(item, nodes.Const)]
        operator = ("in" if several else "eq") if joined is nodes.And else "notin" if several else "ne"
        if node.ops[0].op == operator and len(values) == len(items):
            yield node.expr, values
