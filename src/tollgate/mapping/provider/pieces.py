"""Templates of one provider file: compiled with every mistake collected, and evaluated at start where that is possible.

Owns which names each kind of place may read. A value that is known at start (vars, headers, addresses) is computed
here; only what reads the caller's own headers stays a template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from tollgate.config.forgotten_dollar import forgotten_path
from tollgate.config.load import Mark, Node, Problem, Scalar
from tollgate.config.model import Provider
from tollgate.config.secrets import Secrets
from tollgate.config.settings import DEFAULT_RETRY_STATUSES
from tollgate.errors import ConfigErrors
from tollgate.mapping.failures import MappingFailure
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.http_calls import HTTP
from tollgate.mapping.model_facts import MODEL_FIELDS
from tollgate.mapping.pieces import Functions, Template, compile_expression, compile_template, compile_url
from tollgate.mapping.scalars import is_literal

Names = Mapping[str, frozenset[str] | None]
"""The names that a piece may read, with the fields of each."""
Read = Callable[..., Any]
"""Called with the document, and with the values of the names it was compiled with."""
_Made = TypeVar("_Made")


class Pieces:
    """The compiled pieces of a provider file so far, and the mistakes in it."""

    def __init__(
        self,
        provider: Provider,
        secrets: Secrets,
        plugins: Mapping[str, Filter] | None = None,
        retry_statuses: frozenset[int] = DEFAULT_RETRY_STATUSES,
    ) -> None:
        self.provider = provider
        self.retry_statuses = retry_statuses
        """The gateway's `retry.statuses`, for what the file's `errors:` do not say."""
        self.document = provider.document
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.secrets = {name: secrets.get(name) for name in secrets.names()}
        self.redact = secrets.redact
        """Removes our secrets from a text."""
        self._made: dict[tuple[Any, ...], tuple[Node, Template | None]] = {}
        """Pieces that are compiled already, with their node (whose identity is the key): an endpoint's errors are
        also the provider's."""
        self.functions = self.tried(lambda: Functions(provider.document, provider.defines, plugins=plugins))
        self.variables: dict[str, Any] = {}
        for name, node in provider.variables.items():
            template = self.template(node, {"secret": None})
            self.variables[name] = template(secret=self.secrets) if template is not None else None
        known = None if provider.lacks_variables else frozenset(self.variables)
        self._fields = {"model": MODEL_FIELDS, "vars": known, "http": HTTP}

    def tried(self, make: Callable[[], _Made]) -> _Made | None:
        """The result of `make`, or None with its problems noted."""
        try:
            return make()
        except ConfigErrors as errors:
            self.problems.extend(errors.problems)
            return None

    def _once(
        self, compile_piece: Callable[..., Template], node: Node | None, names: Names, **more: Any
    ) -> Template | None:
        if node is None:
            return None
        key = (compile_piece, id(node), *names.items())
        if key not in self._made:
            piece = partial(compile_piece, self.document, node, names=names, defines=self.functions, **more)
            self._made[key] = node, self.tried(piece)
        return self._made[key][1]

    def mistake(self, at: Node | Mark, message: str, path: str = "", hint: str = "") -> None:
        """Note a mistake."""
        self.note(self.document.problem(at, message, path=path, hint=hint))

    def note(self, problem: Problem) -> None:
        """Note a problem, once: a step that a model changes in one key is compiled again with all other keys."""
        if not any(known.mark == problem.mark and known.message == problem.message for known in self.problems):
            self.problems.append(problem)

    def warn(self, at: Node | Mark, message: str, path: str, hint: str) -> None:
        """Note something that loads and was probably not meant."""
        self.warnings.append(self.document.warning(at, message, path, hint))

    def warn_of_literal(self, node: Node, names: Collection[str], *, answer: bool) -> None:
        """Warn of a text that is a whole template and was probably meant to read data; within another template the
        compiler does."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not is_literal(node):
            return
        if node.value == "nothing" and not node.quoted:
            self.warn(node, "`nothing` without the `$` is a text", "", "write $nothing, or quotes around it")
        elif "}}" in node.value and "{" not in node.value:
            self.warn(node, "`}}` closes nothing", "", "write `{{` before the expression")
        elif path := forgotten_path(node.value, names, answer=answer):
            self.warn(node, f"`{node.value}` stays as it stands", "", f"write {path}")

    def names(self, *wanted: str) -> dict[str, frozenset[str] | None]:
        """The names that a template may read, with the fields of each."""
        return {name: self._fields.get(name) for name in wanted}

    # Without a node there is nothing to compile: all of these return None.

    def template(self, node: Node | None, names: Names, *, answer: bool | None = None) -> Template | None:
        """A template over the given names; one that reads `$` reads the provider's answer, unless `answer` is False."""
        return self._once(compile_template, node, names, answer="$" in names if answer is None else answer)

    def expression(self, node: Node | None, *more: str) -> Template | None:
        """An expression over `$` and more names."""
        return self._once(compile_expression, node, self.names("$", *more))

    def url(self, node: Node | None, names: Names | None = None) -> Template | None:
        """An address over these names (`$model` and `$vars`); other nodes than text are templates."""
        names = names or self.names("model", "vars")
        return self._once(compile_url if isinstance(node, Scalar) else compile_template, node, names)

    def reader(self, node: Node | None, *more: str) -> Read | None:
        """A template over `$` and more names, as a total function: absent if it cannot be computed."""
        template = self.template(node, self.names("$", *more))
        return total(template) if template is not None else None

    def condition(self, node: Node | None, *more: str) -> Read | None:
        """A condition over `$` and more names, as a total function: false if it cannot be computed."""
        template = self.expression(node, *more)
        return total(template.test) if template is not None else None


def total(call: Callable[..., Any]) -> Read:
    """`call` made total: None if the data does not fit it."""

    def read(body: Any, **values: Any) -> Any:
        try:
            return call(body, **values)
        except MappingFailure:
            return None

    return read
