"""One example in a configuration file: read, run, and compared with what it expects. Examples are the tests of their
file, and documentation that is always up to date.

What each kind of example (`of`) runs is in `examples.py` (mapping files), `provider/examples.py` and
`images/examples.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.config.load import Document, List, Map, Mark, Node, Problem, Scalar, find, items_of, plain, text_in
from tollgate.errors import TollgateError
from tollgate.mapping.context import Context
from tollgate.mapping.failures import Fault, Refused
from tollgate.mapping.scope import known_words
from tollgate.mapping.values import shown
from tollgate.wording import path_text

NOW = 1_700_000_000
"""The time of all examples; they also have a fixed answer id and nonce, so that their results are always the same."""
RUN_ID = "run_1"
NONCE = "0123456789abcdef" * 2


@dataclass(frozen=True, slots=True)
class Form:
    """What the examples of one kind of file may contain: their keys, the values of `of`, and the keys of `with`."""

    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    brings: tuple[str, ...]
    brings_of: Mapping[str, tuple[str, ...]]
    """Other keys of `with`, for some values of `of`."""
    bare: Collection[str] = ()
    """The values of `of` that need no `given`."""
    scalars: Collection[str] = ()
    """The keys of `with` whose values need not be objects."""


class Difference(Exception):
    """An example with another result than expected; `path` is where in the expected value."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Example:
    """One example: `fields` is all of it as plain values, `brought` its `with`, `node` its place in the file."""

    __slots__ = ("brought", "context", "fields", "given", "name", "node", "of")

    def __init__(self, node: Map, of: str) -> None:
        self.node = node
        self.of = of
        self.fields: dict[str, Any] = plain(node, floats=True)  # type: ignore[assignment]
        self.name = str(self.fields.get("name") or of)
        self.given: Any = self.fields.get("given")
        self.brought: dict[str, Any] = self.fields.get("with") or {}
        self.context = Context(run_id=RUN_ID, now=NOW)
        self.context.nonce = NONCE


def run_each(document: Document, examples: Node | None, form: Form, run: Callable[[Example], object]) -> list[Problem]:
    """Read the examples of a file and call `run` with each; returns the problems, in file order.

    `run` raises `Difference`, or LookupError with a message about what the file does not have.
    """
    problems: list[Problem] = []
    for node in items_of(examples):
        example = _read(document, node, form, problems)
        if example is None:
            continue
        at: Node = example.node
        try:
            run(example)
            continue
        except Difference as difference:
            text = f" {difference.message}"
            if difference.path:
                at = find(example.node.get("expect") or at, difference.path)
        except LookupError as error:
            text, at = f": {error.args[0]}", example.node.get("with") or at
        except (Fault, TollgateError) as error:
            text = f" fails: {error}"
        problems.append(document.problem(at, f"example `{example.name}`{text}"))
    return problems


def checked(example: Example, make: Callable[[Example], Any]) -> Any:
    """The result of `make` for an example (or the message of a refusal). Raises `Difference` if the example expects
    something else."""
    refusal = example.fields.get("refused")
    try:
        made = make(example)
    except Refused as refused:
        if refusal is None:
            raise Difference(f"is refused: {refused.message}") from None
        if refusal is not True and str(refusal) not in refused.message:
            raise Difference(f"is refused with `{refused.message}`, wanted `{refusal}`") from None
        return refused.message
    if refusal is not None:
        raise Difference("is not refused")
    if "expect" in example.fields:
        compare(made, example.fields["expect"])
    lost = example.fields.get("lost")
    if lost is not None and sorted(example.context.lost) != sorted(lost):
        raise Difference(f"loses {_shown(example.context.lost)}, wanted {_shown(lost)}")
    return made


def _read(document: Document, node: Node, form: Form, problems: list[Problem]) -> Example | None:
    def wrong(at: Node | Mark, message: str, hint: str = "") -> None:
        problems.append(document.problem(at, message, hint=hint))

    def check_keys(of: Map, known: tuple[str, ...]) -> None:
        for key, mark in of.keys.items():
            if key not in known:
                wrong(mark, f"unknown key `{key}`", known_words(key, known))

    if not isinstance(node, Map):
        wrong(node, "an example has keys", ", ".join(form.keys))
        return None
    before = len(problems)
    check_keys(node, form.keys)
    of, brought = node.get("of"), node.get("with")
    kind = of.text if isinstance(of, Scalar) else ""
    if of is None:
        wrong(node, "an example says what it tries", f"of: {form.kinds[0]}")
    elif kind not in form.kinds:
        wrong(of, f"an example cannot be of `{kind or 'this'}`", known_words(kind, form.kinds))
    if "given" not in node.entries and kind not in form.bare:
        wrong(node, "an example needs `given`")
    if node.entries.keys().isdisjoint(("expect", "refused", "lost")):
        wrong(node, "an example needs `expect`, `refused` or `lost`")
    lost = node.get("lost")
    if lost is not None and not (isinstance(lost, List) and all(map(text_in, lost.items))):
        wrong(lost, "`lost` is a list of texts, as a caller is told them", "[] for no loss")
    if isinstance(brought, Map):
        check_keys(brought, form.brings_of.get(kind, form.brings))
        for key, value in brought.entries.items():
            scalar = isinstance(value, Scalar) and (value.value is None or key in form.scalars)
            if not isinstance(value, Map) and not scalar:
                wrong(value, f"`{key}` gives an object", f"{key}: {{name: value}}")
    elif brought is not None:
        wrong(brought, "`with` gives the engine's values", "{model: {...}, can: {...}}")
    return Example(node, kind) if len(problems) == before else None


def compare(found: Any, wanted: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise `Difference` at the first place where two values differ; true is not 1, 1 is 1.0, the order of keys is
    ignored."""
    if type(found) is dict and type(wanted) is dict:
        for key, value in wanted.items():
            if key not in found:
                raise _difference("nothing", _shown(value), (*path, key))
            compare(found[key], value, (*path, key))
        for key, value in found.items():
            if key not in wanted:
                raise _difference(_shown(value), "nothing", (*path, key), beside=True)
    elif type(found) is list and type(wanted) is list:
        for number, (one, two) in enumerate(zip(found, wanted, strict=False)):
            compare(one, two, (*path, number))
        if len(found) > len(wanted):
            raise _difference(_shown(found[len(wanted)]), "no more", (*path, len(wanted)), beside=True)
        if len(found) < len(wanted):
            raise _difference("no more", _shown(wanted[len(found)]), (*path, len(found)))
    elif found != wanted or isinstance(found, bool) is not isinstance(wanted, bool):
        raise _difference(_shown(found, whole=not path), _shown(wanted, whole=not path), path)


def _difference(found: str, wanted: str, path: tuple[str | int, ...], *, beside: bool = False) -> Difference:
    """The error for a difference at `path`. `beside`: the expected value has no such place, only the one above it."""
    where = f" at {path_text(path)}" if path else ""
    return Difference(f"differs{where}: found {found}, wanted {wanted}", path[:-1] if beside else path)


def _shown(value: object, *, whole: bool = False) -> str:
    """A value in messages: None is `null` inside another value, and `nothing` as the `whole` result."""
    if value is None:
        return "nothing" if whole else "null"
    return shown(value, 160)
