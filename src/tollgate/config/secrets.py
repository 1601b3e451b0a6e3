"""Secrets by reference: `$secret.NAME` is an environment variable, or a file of that name in `secrets_dir`.

Owns finding the references in a file, reading their values, and redacting values in texts. A value is never part of a
message, a `repr` or an exception. Only headers, query, auth and vars of a provider may refer to a secret.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tollgate.config.files import shown
from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar, text_in, walk

REFERENCE = re.compile(r"\$secret\.([A-Za-z_][A-Za-z0-9_]*)(\?)?")
_LOOSE = re.compile(r"\$secret\b")
_MAX_FILE = 64 * 1024
"""A larger file is not a secret but a mistake (the key file of a service account has 3 KB)."""
_KEY_FILE = re.compile(r"\s*(\{|-----BEGIN )")
"""Secrets that may have several lines: the JSON of a service account, and PEM. All others are sent in headers, which
cannot."""
_MIN_REDACTED = 4
"""Shorter values occur in ordinary text; redacting them would make messages unreadable."""


_MOST_BOUGHT = 200
_bought: OrderedDict[str, None] = OrderedDict()
"""Tokens that providers issued for secrets, as they are and as escaped in an address. They do not belong to a
configuration: they stay valid after a reload."""


def note_bought(token: str) -> None:
    """Redact this token from now on wherever secrets are redacted; a provider may quote the address that contains
    it."""
    if len(token) >= _MIN_REDACTED:
        _bought.update(dict.fromkeys((token, quote(token, safe=""))))
        while len(_bought) > _MOST_BOUGHT:
            _bought.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Reference:
    """One `$secret.NAME` in a file; with a trailing `?` it may be unset."""

    name: str
    optional: bool


class Secrets:
    """The values of the secrets a configuration names. `repr` shows names only."""

    __slots__ = ("_pattern", "_values")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        written = (form for value in self._values.values() if len(value) >= _MIN_REDACTED for form in _written(value))
        long_enough = sorted(set(written), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, long_enough))) if long_enough else None

    def get(self, name: str) -> str | None:
        """The value, or None when it is not set."""
        return self._values.get(name)

    def names(self) -> frozenset[str]:
        """The names that are set."""
        return frozenset(self._values)

    def redact(self, text: str) -> str:
        """`text` with every secret value, and every token issued for one, replaced by `[secret]`."""
        text = self._pattern.sub("[secret]", text) if self._pattern else text
        for form in _bought:
            text = text.replace(form, "[secret]")
        return text

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self._values))})"


def _written(value: str) -> tuple[str, ...]:
    """How a value may be written in a text: as it is, in an address, in a JSON string (where some escape the slash
    too)."""
    escaped = json.dumps(value, ensure_ascii=False)[1:-1]
    return value, quote(value, safe=""), escaped, escaped.replace("/", "\\/")


def read_secrets(names: Iterable[str], environ: Mapping[str, str], folder: Path) -> tuple[Secrets, list[Problem]]:
    """Look up each name: in the environment, then as a file. An empty variable counts as not set, and so does one of
    blanks, and a missing file.

    A problem is reported for a secret that exists and cannot be used: a file that cannot be read or is empty, or a
    value of several lines. Such a secret counts as set, with an empty value, so that mistakes in what refers to it are
    found too.
    """
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            value = _one_line(environ.get(name, ""), f"environment variable {name}") or _from_file(folder / name)
        except _Unusable as fault:
            problems.append(fault.problem)
            values[name] = ""
            continue
        if value:
            values[name] = value
    return Secrets(values), problems


def unread_names(referred: Container[str], environ: Mapping[str, str], folder: Path) -> list[str]:
    """The names of variables and files that could be a secret, and to which no file refers: one may be misspelt."""
    files: list[str] = []
    with contextlib.suppress(OSError):
        files = [path.name for path in folder.iterdir() if path.is_file()]
    variables = [name for name, value in environ.items() if value]
    return [name for name in (*variables, *files) if name not in referred]


def references(node: Node) -> Iterator[Reference]:
    """Every secret reference below `node`, in file order."""
    for inner in walk(node):
        if "$secret" in (text := text_in(inner) or ""):
            for match in REFERENCE.finditer(text):
                yield Reference(match[1], bool(match[2]))


def misplaced(document: Document, root: Map, allowed: frozenset[str]) -> list[Problem]:
    """Problems for every `$secret` outside maps under one of the `allowed` keys (headers, query, auth, vars), and
    for those inside them that have no valid name."""
    # Generated models files are most of a full configuration, and have no secrets.
    without = {other.file for other in document.included if "$secret" not in other.text and "\\" not in other.text}

    problems = []
    for node, text, path, inside in _mentioned(root, "", False, allowed, without):
        if not inside and _LOOSE.search(text):
            hint = "only headers, query, auth and vars may name one"
            problems.append(document.problem(node, "found a secret, wanted none here", path=path, hint=hint))
        elif inside and _LOOSE.search(REFERENCE.sub("", text)):
            message = "found `$secret` without a proper name, wanted `$secret.NAME`"
            hint = "a name has letters, digits and underscores"
            problems.append(document.problem(node, message, path=path, hint=hint))
    return problems


def _mentioned(
    node: Node, path: str, inside: bool, allowed: frozenset[str], without: set[str]
) -> Iterator[tuple[Node, str, str, bool]]:
    """Every text below `node` that contains `$secret`: its node, the text, its path, and whether it is inside a map
    under one of the `allowed` keys. Nodes from the files `without` are skipped, and descriptions for people."""
    if node.mark.file in without:
        return
    if isinstance(node, Map):
        for key, child in node.entries.items():
            if inside or key not in ("examples", "about", "description"):
                below = f"{path}.{key}" if path else key
                yield from _mentioned(child, below, inside or key in allowed, allowed, without)
    elif isinstance(node, List):
        for index, child in enumerate(node.items):
            yield from _mentioned(child, f"{path}[{index}]", inside, allowed, without)
    elif "$secret" in (text := text_in(node) or ""):
        yield node, text, path, inside


def plain_references(node: Node) -> Node:
    """The same tree without the `?` of optional references: a field whose value is absent is left out anyway."""
    if isinstance(node, Scalar):
        if "$secret" not in (written := text_in(node) or ""):
            return node
        # Inside {{ }} a blank replaces it, so that columns stay the same.
        whole = REFERENCE.fullmatch(written.strip())
        text = REFERENCE.sub(lambda m: f"$secret.{m[1]}" + (" " if m[2] and not whole else ""), written)
        return replace(node, value=text, text=text)
    if isinstance(node, Map):
        return replace(node, entries={key: plain_references(child) for key, child in node.entries.items()})
    return replace(node, items=tuple(plain_references(child) for child in node.items))


class _Unusable(Exception):
    """A secret that exists and cannot be used; it never contains any part of the value."""

    def __init__(self, where: str, message: str, hint: str = "", line: int = 1) -> None:
        self.problem = Problem(Mark(where, line, 1), message, hint=hint)
        super().__init__(message)


def _from_file(path: Path) -> str | None:
    where = shown(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise _Unusable(where, "found a folder, wanted a file with the secret alone")
        if size > _MAX_FILE:
            raise _Unusable(where, f"found {size} bytes, wanted a secret of at most {_MAX_FILE}")
        value = _one_line(path.read_text("utf-8-sig"), where)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # A folder without permission is reported once, not for each secret in it.
        closed = isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK)
        raise _Unusable(
            shown(path.parent) if closed else where,
            f"cannot be read: {error.strerror or type(error).__name__}, wanted "
            f"{'a folder' if closed else 'a secret'} this process may read",
        ) from None
    except UnicodeDecodeError:
        raise _Unusable(where, "found bytes that are no UTF-8 text, wanted the secret as text") from None
    if not value:
        raise _Unusable(
            where, "found an empty file, wanted a secret", hint="a provider is off where the file is not there"
        )
    return value


def _one_line(value: str, where: str) -> str:
    """The value without the line break at its end; "" for one of blanks only. Raises `_Unusable` for several lines,
    except in a key file, and for a character that came with copying: no request could be sent with it."""
    value = value.rstrip("\r\n")
    if not value.strip():
        return ""
    if _KEY_FILE.match(value):
        return value
    if "\n" in value or "\r" in value:
        raise _Unusable(where, "found a line break inside the secret, wanted one line", line=2)
    if odd := next((each for each in value if not each.isprintable() and each != "\t"), ""):
        message = f"found the invisible character U+{ord(odd):04X} inside the secret, wanted it without"
        raise _Unusable(where, message, hint="it may have come with copying")
    return value
