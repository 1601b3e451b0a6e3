"""The provider files of one load, each merged with its shared files and the models files it names. If none of these
files has changed, the provider is reused from an earlier load.

Reading the merged tree is the work of `provider.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tollgate.config.file_reader import EXAMPLES, FileReader
from tollgate.config.included import absent, include, share
from tollgate.config.load import Document, List, Map, Node
from tollgate.config.model import Provider
from tollgate.config.provider import SECRET_PLACES, read_provider
from tollgate.config.provider_warnings import provider_warnings
from tollgate.config.reusable import Reusable, Source
from tollgate.config.secrets import Reference, Secrets, references
from tollgate.wording import nearest_word

_MISSPELT = 0.8
"""How much alike the name of a secret and a misspelling of it are: `ACME_API_KEY` and `ACME_KEY`."""


@dataclass(slots=True)
class ProviderFile:
    """A provider's file before its secrets and its models files are read."""

    document: Document
    tree: Map | None
    """The checked tree, merged with its shared files; None if the file seems unchanged."""
    earlier: Source | None
    """What an earlier load built, if the file and its shared files are unchanged."""
    referred: tuple[Reference, ...]


class ProviderFiles:
    """Reads them with the `files` of a load, and adds to their problems. With `everything`, the models files of
    providers that are off are read too."""

    def __init__(self, files: FileReader, previous: Reusable | None, *, everything: bool) -> None:
        self._files = files
        self._everything = everything
        self._earlier = previous.sources if previous is not None else {}
        self._earlier_warnings = previous.warnings if previous is not None else ()
        self.sources: dict[str, Source] = {}
        self.fresh: set[str] = set()
        """The names of providers that were read in this load."""

    def read(self, paths: Iterable[Path]) -> list[ProviderFile]:
        """The files, without those that have mistakes of shape, or in their shared files."""
        documents = [self._files.read_part(path) for path in paths]
        return [file for file in map(self._file, documents) if file is not None]

    def _file(self, document: Document) -> ProviderFile | None:
        source = self._earlier.get(document.file)
        if source is not None and source.provider.document is document:
            shared = zip(source.shared, document.shared, strict=True)
            if all(_same(self._files.read_shared(path), other) for path, other in shared):
                return ProviderFile(document, None, source, source.references)
            document = self._read_anew(document)
        tree = self._with_shared(document)
        return None if tree is None else ProviderFile(document, tree, None, tuple(_references_in(tree)))

    def _read_anew(self, document: Document) -> Document:
        """The same file, parsed again, without what was merged into it."""
        return self._files.read(self._files.paths[document.file], without=EXAMPLES, anew=True)

    def _with_shared(self, document: Document) -> Map | None:
        """The checked tree of a provider's file, merged with its shared files."""
        folder = self._files.paths[document.file].parent
        problems, whole = share(document, folder, self._files.read_shared)
        self._files.problems += problems
        if problems and isinstance(document.root, Map):
            self._files.named += absent(document.root, "shared", folder)
        if problems or not whole:
            self._files.sound = False
        return self._files.shaped(document, "provider") if whole else None

    def providers(
        self, files: Iterable[ProviderFile], secrets: Secrets, unread: Collection[str] = ()
    ) -> list[Provider]:
        """The providers of these files; one whose secrets are not set is off. `unread`: names among which misspelt ones
        are looked for (`secrets.unread_names`)."""
        providers = []
        for file in files:
            needed = (reference.name for reference in file.referred if not reference.optional)
            unset = list(dict.fromkeys(name for name in needed if secrets.get(name) is None))
            provider = self._provider(file, wanted=self._everything or not unset)
            if unset:
                provider = replace(provider, off=_why_off(unset, unread))
            if provider.name in self.fresh:
                self._files.problems += provider_warnings(provider)
                if not self._everything and not self._files.has_errors:
                    # now, not at the end: the trees of all files together are most of the memory of a start
                    provider.document.let_go()
            providers.append(provider)
        return providers

    def _provider(self, file: ProviderFile, *, wanted: bool) -> Provider:
        """The provider of a file, read as if its secrets were set. `wanted`: its models files are read too."""
        document, tree = file.document, file.tree
        if file.earlier is not None:
            if self._models_unchanged(document, file.earlier, wanted=wanted):
                return self._taken_over(document, file.earlier)
            document = self._read_anew(document)
            tree = self._with_shared(document)
        assert tree is not None, "what a file came to before is kept only where nothing was wrong"
        so_far = len(self._files.problems)
        lacks_models = "models_from" in tree.entries and not wanted
        if lacks_models:
            self._files.sound = False
        elif "models_from" in tree.entries:
            tree = self._with_models(document, tree)
        provider, problems = read_provider(document, tree)
        self._files.problems += problems
        if any(problem.level == "error" for problem in problems):
            self._files.sound = False
        if not any(problem.level == "error" for problem in self._files.problems[so_far:]):
            shared, models = self._paths(document.shared), self._paths(document.models)
            self.sources[document.file] = Source(provider, file.referred, lacks_models, shared, models)
        self.fresh.add(provider.name)
        return provider

    def _paths(self, documents: Iterable[Document]) -> tuple[Path, ...]:
        return tuple(self._files.paths[document.file] for document in documents)

    def _models_unchanged(self, document: Document, earlier: Source, *, wanted: bool) -> bool:
        if earlier.lacks_models or not wanted:
            return not wanted and not earlier.models
        models = zip(earlier.models, document.models, strict=True)
        return all(_same(self._files.read(path), other) for path, other in models)

    def _taken_over(self, document: Document, earlier: Source) -> Provider:
        """The provider as an earlier load built it, with the warnings of that load."""
        files = {document.file, *(other.file for other in document.included)}
        self._files.problems += [problem for problem in self._earlier_warnings if problem.mark.file in files]
        if earlier.lacks_models:
            self._files.sound = False
        self.sources[document.file] = earlier
        return earlier.provider

    def _with_models(self, document: Document, tree: Map) -> Map:
        folder = self._files.paths[document.file].parent
        tree, problems = include(document, tree, folder, self._files.read, self._files.shaped)
        self._files.problems += problems
        if problems:
            self._files.named += absent(tree, "models_from", folder)
        return tree


def _same(one: Document, other: Document) -> bool:
    """Whether a file that others name has the same text. A document from the start cache is a new object, so texts
    are compared."""
    return one is other or one.text == other.text and not one.problems


def _references_in(node: Node) -> Iterator[Reference]:
    """References below every key that may hold one, wherever it stands (endpoints and image steps have headers too)."""
    if isinstance(node, Map):
        for key, child in node.entries.items():
            yield from references(child) if key in SECRET_PLACES else _references_in(child)
    elif isinstance(node, List):
        for item in node.items:
            yield from _references_in(item)


def _why_off(unset: list[str], unread: Collection[str]) -> str:
    why = f"secrets {', '.join(unset)} are not set" if len(unset) > 1 else f"secret {unset[0]} is not set"
    misspelt = (nearest_word(name, unread, alike=_MISSPELT) for name in unset)
    found = dict.fromkeys(filter(None, misspelt))
    return f"{why}; found {', '.join(found)}, which no file names" if found else why
