"""Plain texts that were meant as paths: `message: error.message`, which is that very text for every error. Warnings.

Asked where an answer is read, so that a text with dots in it makes no sense; whoever means it puts it in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.config.load import Document, List, Map, Node, Problem, Scalar

_FIELD = r"[A-Za-z_]\w*"
_ITEM = r"\[(?:-?\d+|\*|'[^']*')\]"
_WORD = re.compile(_FIELD)
_PATH = re.compile(rf"({_FIELD})((?:{_ITEM})*(?:\.{_FIELD}(?:{_ITEM})*)+|(?:{_ITEM})+)")
_WORDS = ("$refuse", "$lost", "$copy")
"""Directives that take names of fields, or words for people."""
_NAMED = ("answer_headers", "http", "vars")
"""What else than the answer (`$`) its readers see."""
_ERROR_FIELDS = ("message", "type", "code", "param", "retry_after")


def paths_meant(node: Node, first: Collection[str] = ()) -> Iterator[tuple[Scalar, str]]:
    """The texts below a node that were meant as paths, each with the path; with `first`, only those that begin with
    such a name: `{message: error.message}` -> `error.message`, `$.error.message`."""
    if isinstance(node, Scalar):
        found = _PATH.fullmatch(node.value) if isinstance(node.value, str) else None
        if found is not None and not (node.quoted and "[" not in found[2]) and (not first or found[1] in first):
            yield node, f"${'' if first or found[1] in _NAMED else '.'}{node.value}"
        return
    inner = node.items if isinstance(node, List) else (node.entries[key] for key in node.entries if key not in _WORDS)
    for value in inner:
        yield from paths_meant(value, first)


def said(node: Scalar, path: str) -> tuple[str, str]:
    """What to tell of such a text, and the cure."""
    return f"found `{node.value}`, which is this text itself whatever is read", f"write {path}, or quotes around a text"


def bare_paths(document: Document) -> Iterator[Problem]:
    """All such texts of a provider's file, in what it reads of errors, usage, lists of models and image jobs."""
    root = document.root
    if not isinstance(root, Map):
        return
    for path, node in _readers(root):
        for text, meant in _one_word(node) if path.endswith("errors.message") else paths_meant(node):
            message, hint = said(text, meant)
            yield document.problem(text, message, path=path, hint=hint, level="warning")


def _one_word(node: Node) -> Iterator[tuple[Scalar, str]]:
    """As `paths_meant`, for the words of all errors: `message: detail` is meant as a path as well."""
    if isinstance(node, Scalar) and not node.quoted and isinstance(node.value, str) and _WORD.fullmatch(node.value):
        yield node, f"$.{node.value}"
    else:
        yield from paths_meant(node)


def _readers(root: Map) -> Iterator[tuple[str, Node]]:
    """The templates of a file that read an answer, each with where it stands."""
    speaks = root.get("speaks")
    holders: list[tuple[str, Node]] = [("", root)]
    holders += [(f"speaks.{name}.", each) for name, each in _entries(speaks)]
    for place, holder in holders:
        if not isinstance(holder, Map):
            continue
        yield from _of_errors(holder.get("errors"), f"{place}errors")
        if (read := holder.at("usage", "read")) is not None:
            yield f"{place}usage.read", read
    for key in ("model", "next"):
        if (read := root.at("discover", key)) is not None:
            yield f"discover.{key}", read
    jobs = [("images", root.get("images")), *((f"models.{name}", each) for name, each in _entries(root.get("models")))]
    for place, job in jobs:
        for step in IMAGE_STEPS:
            if isinstance(job, Map) and (read := job.at(step, "result")) is not None:
                yield f"{place}.{step}.result", read


def _of_errors(node: Node | None, path: str) -> Iterator[tuple[str, Node]]:
    if not isinstance(node, Map):
        return
    for field in _ERROR_FIELDS:
        if (read := node.get(field)) is not None:
            yield f"{path}.{field}", read
    rules = node.get("rules")
    for place, rule in enumerate(rules.items if isinstance(rules, List) else ()):
        yield from _of_errors(rule, f"{path}.rules[{place}]")


def _entries(node: Node | None) -> Iterator[tuple[str, Node]]:
    yield from node.entries.items() if isinstance(node, Map) else ()
