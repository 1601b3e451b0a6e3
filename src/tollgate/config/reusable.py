"""What an earlier load has of each file, for the next one to take over where the text is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tollgate.config.load import Document, Problem
from tollgate.config.model import Provider
from tollgate.config.secrets import Reference


@dataclass(frozen=True, slots=True)
class Source:
    """What one provider file came to when it had nothing wrong; it does so again while its texts stay the same."""

    provider: Provider
    """As if it were on."""
    references: tuple[Reference, ...]
    whole: bool | None
    """Whether its model files were read (those of a provider that is off are not); None when it names none."""
    included: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Reusable:
    """What files came to in an earlier load, by their names as messages show them."""

    sources: Mapping[str, Source]
    mappings: Mapping[str, Document]
    warnings: tuple[Problem, ...]

    def let_go(self) -> None:
        """Once everything is compiled: keep the files' texts, not their trees."""
        for document in (*self.mappings.values(), *(source.provider.document for source in self.sources.values())):
            document.let_go()

    def documents(self) -> dict[str, Document]:
        """The files that need not be read again while they hold the same, by name."""
        own = [source.provider.document for source in self.sources.values()]
        included = [other for document in own for other in document.included]
        return {document.file: document for document in (*own, *included, *self.mappings.values()) if document.text}

    def same(self, other: Reusable) -> bool:
        """Whether everything was taken over from `other`, and nothing of it is missing."""
        one, two = self.documents(), other.documents()
        return (
            one.keys() == two.keys() and all(one[name] is two[name] for name in one) and self.warnings == other.warnings
        )
