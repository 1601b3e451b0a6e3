"""Pieces of the mapping language for calls over HTTP beside a request: the steps of image jobs, the polling of answers,
the calls before a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from tollgate.config.forgotten_dollar import forgotten_path
from tollgate.config.load import List, Node, Scalar
from tollgate.config.prices import read_decimal
from tollgate.config.reading import Reading
from tollgate.config.shape import found
from tollgate.mapping.context import Context
from tollgate.mapping.hosts import Host, read_host
from tollgate.mapping.pieces import Template, compile_expression, compile_template, compile_url
from tollgate.mapping.scalars import is_literal
from tollgate.money import decimal_of

if TYPE_CHECKING:
    from tollgate.mapping.provider.pieces import Pieces

HTTP = frozenset({"status", "headers"})
"""The fields of `$http`, which describe an answer."""
Values = Mapping[str, Any]
"""What a piece may read: `$` (an answer), `$model`, `$http` and others."""
CallRead = Callable[[Values], Any]
"""A compiled piece."""
EVERY = (1.0, 1.0, 2.0, 3.0, 5.0)
"""Seconds before each poll of an answer, unless the file says others; the last value is for all further polls."""
_CALL = re.compile(r"\s*([A-Za-z]+)[ \t]+(\S.*?)\s*\Z", re.DOTALL)
_HOLE = re.compile(r"\{\{(.*?)\}\}")
_HOST = re.compile(r"(?:(?:https?|app)://[^/?#]+|\0)(?=[/?#]|\Z)")
_NAME = re.compile(r"\$\w*")
METHODS = ("GET", "POST", "PUT")


class CallPieces:
    """Compiles such pieces of a provider file; `names` are the names that they may read. Mistakes are noted in
    `pieces`."""

    def __init__(
        self, pieces: Pieces, names: Mapping[str, frozenset[str] | None], methods: tuple[str, ...] = METHODS
    ) -> None:
        self._pieces = pieces
        self._names = names
        self._methods = methods
        self.mistake = pieces.mistake

    def reading(self, names: Mapping[str, frozenset[str] | None]) -> CallPieces:
        """The same for pieces that read these names instead."""
        return CallPieces(self._pieces, names, self._methods)

    def template(self, node: Node | None, *, secret: bool = False, answer: bool = False) -> CallRead | None:
        """A template as a function of its values. `secret`: it may read `$secret` too. `answer`: it reads the
        provider's answer."""
        if node is None:
            return None
        self._pieces.warn_of_literal(node, self._names, answer=answer)
        names = {**self._names, "secret": None} if secret else self._names
        return self._reader(partial(compile_template, answer=answer), node, names)

    def figure(self, node: Node | None, path: str) -> CallRead | None:
        """A template of a number; text that is not a number was meant as a path, without its `$`."""
        if isinstance(node, Scalar) and isinstance(node.value, str) and is_literal(node):
            try:
                decimal_of(node.value.strip())
            except ValueError:
                hint = forgotten_path(node.value, self._names, answer=True) or f"$.{node.value}"
                self.mistake(node, f'found the text "{node.value}", wanted a number', path, f"write {hint}")
                return None
        return self.template(node)

    def condition(self, node: Node | None) -> CallRead | None:
        """An expression written without braces."""
        return self._reader(compile_expression, node, self._names, test=True) if node is not None else None

    def call(
        self,
        node: Node | None,
        hosts: Node | None,
        path: str,
        *,
        incomplete: bool = False,
        source: str = "an answer",
    ) -> tuple[str, CallRead, tuple[Host, ...] | None] | None:
        """`POST https://host/path/{{ $model.upstream }}` as method, address and allowed hosts; `path` is its place
        in the file, for messages. `incomplete`: a key beside it was removed and reported, perhaps its `hosts`.
        `source`: what its holes read; only addresses out of an answer may have `hosts`."""
        match = _CALL.match(node.value) if isinstance(node, Scalar) and isinstance(node.value, str) else None
        if match is None or match[1].upper() not in self._methods:
            self.mistake(
                node if node is not None else self._pieces.document.root,
                f"found {found(node) if node is not None else 'nothing'}, wanted a method and an address",
                path,
                "POST https://api.example/v1/jobs",
            )
            return None
        assert isinstance(node, Scalar)
        if match[2].endswith(('"', "'")) and match[2].count(match[2][-1]) % 2:  # an OData filter ends in one, too
            self.mistake(node, "this address ends in a quotation mark that nothing opens", path)
            return None
        mark = type(node.mark)(node.mark.file, node.mark.line, node.mark.column + match.start(2) + bool(node.quoted))
        address = Scalar(match[2], match[2], True, mark)
        url = self._reader(compile_url, address, self._names)
        declared = self._hosts(hosts, f"{path.rpartition('.')[0]}.hosts")
        if declared is None and not incomplete and not _is_fixed(match[2]):
            self.mistake(
                address,
                f"this address comes out of {source}, so it may lead anywhere with our key",
                path,
                "add `hosts: [example.com]`" if source == "an answer" else "write the host into the file",
            )
        if url is None:
            return None
        return match[1].upper(), url, declared

    def decimal(self, node: Node | None, path: str) -> Decimal | None:
        """An exact decimal of zero or more, written as prices of tokens are."""
        if node is None:
            return None
        reading = Reading(self._pieces.document)
        value = read_decimal(reading, node, path)
        for problem in reading.problems:
            self._pieces.note(problem)
        return value

    def _hosts(self, node: Node | None, path: str) -> tuple[Host, ...] | None:
        if not isinstance(node, List):
            return None
        found = []
        for number, item in enumerate(node.items):
            if not isinstance(item, Scalar) or item.value is None:
                continue  # not a text, which is reported already
            try:
                found.append(read_host(str(item.value)))
            except ValueError as error:
                self.mistake(item, str(error), f"{path}[{number}]")
        return tuple(found)

    def _reader(
        self,
        compile_piece: Callable[..., Template],
        node: Node,
        names: Mapping[str, frozenset[str] | None],
        *,
        test: bool = False,
    ) -> CallRead | None:
        document, functions = self._pieces.document, self._pieces.functions
        made = self._pieces.tried(lambda: compile_piece(document, node, names=names, defines=functions))
        if made is None:
            return None
        call: Callable[..., Any] = made.test if test else made
        reads, fixed = made.names, {"secret": self._pieces.secrets} if "secret" in names else {}

        def read(values: Values) -> Any:
            named = {name: values.get("$" + name) for name in reads}
            return call(values.get("$"), Context(model=values.get("$model")), **{**named, **fixed})

        return read


def _is_fixed(address: str) -> bool:
    """Whether the file alone decides the host: nothing but `$vars` is in it, or the whole base comes from `$vars`."""
    # Holes first, because they may contain slashes.
    host = _HOST.match(_HOLE.sub("\0", address))
    return host is not None and all(
        name == "$vars" for hole in _HOLE.findall(address)[: host[0].count("\0")] for name in _NAME.findall(hole)
    )
