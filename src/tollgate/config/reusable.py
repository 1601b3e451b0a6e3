"""What an earlier load built from each file, so that the next load can reuse it for files with the same text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from tollgate.config.load import Document, Problem
from tollgate.config.model import Provider
from tollgate.config.secrets import Reference


@dataclass(frozen=True, slots=True)
class Source:
    """What one provider file without mistakes was built into; valid while its texts stay the same."""

    provider: Provider
    """Built as if it were on."""
    references: tuple[Reference, ...]
    lacks_models: bool
    """It names models files, and they were not read, as those of a provider that is off."""
    shared: tuple[Path, ...]
    models: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Reusable:
    """What an earlier load built, by the names of files in messages."""

    sources: Mapping[str, Source]
    mappings: Mapping[str, Document]
    warnings: tuple[Problem, ...]
    """Those of single files; valid while the text of a file stays the same."""
    price_warnings: tuple[Problem, ...] = ()
    """Those that compare the prices of all files; valid while no file and no rate changed."""
    rates: Mapping[str, Decimal] = field(default_factory=dict)
    """The exchange rates of that load."""

    def let_go(self) -> None:
        """Keep the texts of the files and drop their trees, once everything is compiled."""
        for document in (*self.mappings.values(), *(source.provider.document for source in self.sources.values())):
            document.let_go()

    def documents(self) -> dict[str, Document]:
        """The files by name; one with the same text need not be read again."""
        own = [source.provider.document for source in self.sources.values()]
        included = [other for document in own for other in document.included]
        return {document.file: document for document in (*own, *included, *self.mappings.values()) if document.text}

    def same(self, other: Reusable) -> bool:
        """Whether both are the same: everything in `other` was reused, and nothing added."""
        one, two = self.documents(), other.documents()
        return (
            one.keys() == two.keys()
            and all(one[name] is two[name] for name in one)
            and self.warnings == other.warnings
            and self.price_warnings == other.price_warnings
            and self.rates == other.rates
        )
