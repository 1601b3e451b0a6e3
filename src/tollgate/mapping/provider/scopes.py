"""What the scopes of a provider file set for one model through one endpoint: its edits, its abilities, its text marks.

The order is provider, endpoint, policies from top to bottom, model; the later one wins, and edits run in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tollgate.config.model import Endpoint, Model, Policy, Provider
from tollgate.mapping.edits import EditList, chain, compile_scope
from tollgate.mapping.in_text import InText, compile_in_text
from tollgate.mapping.provider.pieces import Pieces

Scope = Provider | Endpoint | Policy | Model
KINDS = ("request", "response", "stream")
"""The kinds of edits."""


@dataclass(frozen=True, slots=True, eq=False)
class Scopes:
    """The scopes of one provider file, with their compiled parts by the identity of their source."""

    provider: Provider
    edit_lists: Mapping[int, EditList | None]
    marks: Mapping[int, InText | None]

    def over(self, endpoint: Endpoint | None, model: Model | None) -> Iterator[Scope]:
        """The scopes over a model through an endpoint, the widest first; without a model, those over all of them."""
        yield self.provider
        if endpoint is not None:
            yield endpoint
        if model is not None:
            name = endpoint.name if endpoint is not None else ""
            yield from (policy for policy in self.provider.policies if policy.applies_to(model, name))
            yield model

    def can(self, endpoint: Endpoint | None, model: Model | None) -> dict[str, Any]:
        """The declared abilities; of each, the value of the nearest scope."""
        return {word: value for scope in self.over(endpoint, model) for word, value in scope.can.items()}

    def edits(self, kind: str, endpoint: Endpoint | None, model: Model | None) -> EditList | None:
        """The edits of one kind that apply, in scope order; None if there are none."""
        return chain([self.edit_lists.get(id(getattr(scope.edits, kind))) for scope in self.over(endpoint, model)])

    def in_text(self, endpoint: Endpoint | None, model: Model | None) -> InText | None:
        """The marks of the nearest scope that sets some; an empty list means no marks."""
        marks = [scope.in_text for scope in self.over(endpoint, model) if scope.in_text is not None]
        return self.marks[id(marks[-1])] if marks else None


def compile_scopes(pieces: Pieces) -> Scopes:
    """All edits and marks of the file, each compiled once for all offers; also those that apply to no model."""
    provider, defines = pieces.provider, pieces.functions
    edit_lists: dict[int, EditList | None] = {}
    marks: dict[int, InText | None] = {}
    scopes: tuple[Scope, ...] = (provider, *provider.endpoints.values(), *provider.policies, *provider.models)
    for scope in scopes:
        for kind in KINDS:
            edits = getattr(scope.edits, kind)
            if edits is not None and id(edits) not in edit_lists:
                compiled = partial(compile_scope, edits, of=kind, defines=defines, variables=pieces.variables)
                edit_lists[id(edits)] = pieces.tried(compiled)
        if (node := scope.in_text) is not None and id(node) not in marks:
            marks[id(node)] = pieces.tried(partial(compile_in_text, provider.document, node, defines=defines))
    return Scopes(provider, edit_lists, marks)
