"""Compiles edit lists: a provider's differences, as a few verbs over a complete document (MAPPING b.4).

`compile_edits` returns an `EditList`, which is called with a request after its conversion, or with an answer or stream
event before it. Reading the verbs is `reading.py`, their effect is `code.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import Any

from tollgate.config.load import Document, Node
from tollgate.config.model import Edits
from tollgate.mapping.context import Context
from tollgate.mapping.edits.code import EditWriter
from tollgate.mapping.edits.losses import OwnFields
from tollgate.mapping.edits.place import EDIT_RUNTIME
from tollgate.mapping.edits.reading import read_edits
from tollgate.mapping.failures import Fault, failure
from tollgate.mapping.harmless import HarmlessValues, says_nothing
from tollgate.mapping.mentions import mentions
from tollgate.mapping.names import ENGINE, HEADERS
from tollgate.mapping.pieces import Functions, built_with, unit_with
from tollgate.mapping.scope import Scope, Var


@dataclass(frozen=True, slots=True, eq=False)
class EditList:
    """Edits compiled from one or several lists, run in order. `EditList(document, context) -> document`.

    The input is never changed; if no edit applies, the same object is returned. What `drop`, `keep` and `values` remove
    from a request goes to `context.lost`. Raises `Refused` (a `refuse` edit) and `MappingFailure`.
    """

    steps: tuple[Callable[[Any, Context], Any], ...]
    """One generated function for each list."""
    files: tuple[str, ...]
    of_request: bool
    reads_headers: bool = False
    """Whether it reads the client's headers (`context.headers`)."""
    own: OwnFields = OwnFields()
    harmless: HarmlessValues = field(default_factory=dict)
    """Values that have no effect at these places: removed, they are no loss."""

    def __call__(self, document: Any, context: Context) -> Any:
        if type(document) is not dict:
            return document
        original, before = document, len(context.lost)
        try:
            for step in self.steps:
                document = step(document, context)
        except (Fault, RecursionError) as error:
            raise failure(error, self.files, request=self.of_request) from (error if isinstance(error, Fault) else None)
        if self.of_request and len(context.lost) > before:
            lost = self.own.callers(context.lost[before:], original)
            context.lost[before:] = [
                name for name in lost if not says_nothing(self.harmless, name, original, context.spared)
            ]
            if context.strict and len(context.lost) > before:
                context.refuse_loss(context.lost[before:])
        return document

    def then(self, other: EditList) -> EditList:
        """These edits, then the other ones."""
        return replace(
            self,
            steps=self.steps + other.steps,
            files=tuple(dict.fromkeys(self.files + other.files)),
            reads_headers=self.reads_headers or other.reads_headers,
            own=self.own | other.own,
        )


def compile_edits(
    document: Document,
    nodes: Node,
    *,
    defines: Functions | None = None,
    of: str = "request",
    variables: Mapping[str, Any] | None = None,
) -> EditList:
    """Compile an edit list of a provider file. `of` is request, response or stream; `variables` is what `$vars` reads.

    Raises `ConfigErrors` with every mistake.
    """
    unit = unit_with(document, defines)
    edits = read_edits(unit, nodes, of)
    known = dict(variables or {})
    vars_name = unit.module.constant(known, "vars_")
    names = {**ENGINE, "vars": Var("vars", vars_name, present=True, kind="object", known=frozenset(known))}
    if of == "request":
        names["headers"] = HEADERS
    own = EditWriter(unit, Scope(names), of_request=of == "request").write("edit", edits, nodes.mark.line)
    namespace = built_with(unit, defines, EDIT_RUNTIME)
    return EditList(
        (namespace["edit"],),  # type: ignore[arg-type]
        (document.file,),
        of_request=of == "request",
        reads_headers=of == "request" and mentions(nodes, "headers"),
        own=own,
    )


def chain(lists: Sequence[EditList | None]) -> EditList | None:
    """Several lists as one, in order; None if there is nothing to do."""
    present = [entry for entry in lists if entry is not None]
    return reduce(EditList.then, present) if present else None


def compile_scope(
    edits: Edits | None, *, of: str, defines: Functions | None = None, variables: Mapping[str, Any] | None = None
) -> EditList | None:
    """The edits of one scope of a provider file, or None if it has none."""
    if edits is None or not edits.nodes.items:
        return None
    # a list may come from several files; each part is compiled by itself, so that failures name its own lines
    groups = (tuple(items) for _, items in groupby(edits.nodes.items, key=lambda item: item.mark.file))
    return chain(
        [
            compile_edits(
                edits.document.holding(items[0].mark),
                replace(edits.nodes, items=items, mark=items[0].mark),
                of=of,
                defines=defines,
                variables=variables,
            )
            for items in groups
        ]
    )
