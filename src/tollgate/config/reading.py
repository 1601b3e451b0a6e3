"""One file while it is read: its document, the problems found so far, and the values that several blocks have."""

from __future__ import annotations

from dataclasses import dataclass, field

from tollgate.config.fields import Fields
from tollgate.config.load import Document, Mark, Node, Problem
from tollgate.config.model import Edits, EditSet


@dataclass(slots=True)
class Reading:
    """A document and its problems."""

    document: Document
    problems: list[Problem] = field(default_factory=list)

    def report(self, at: Node | Mark, message: str, path: str, hint: str = "", level: str = "error") -> None:
        """Add a problem at a node or mark."""
        self.problems.append(self.document.problem(at, message, path=path, hint=hint, level=level))

    def edits(self, at: Fields) -> EditSet:
        """The three edit lists of a scope; an empty list is the same as none."""
        return EditSet(
            **{
                key: Edits(self.document, node) if (node := at.kept(key)) and node.items else None
                for key in ("request", "response", "stream")
            }
        )
