"""Reads the files of one load, one by one: their documents, their problems, and the names they have in messages.

A file whose text an earlier load has parsed is not parsed again. Combining the files is the work of `build.py`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from tollgate.config.fields import Fields
from tollgate.config.files import built_in_mappings, shown
from tollgate.config.load import Document, Map, Problem, read_file, read_text
from tollgate.config.model import Provider
from tollgate.config.shape import Kind, check_shape
from tollgate.config.yaml_tree import MAX_NODES
from tollgate.wire import CLIENT_FORMATS

EXAMPLES = "examples"
"""The key at the end of files that a running gateway does not read."""


class FileReader:
    """Reads files and collects their mistakes in `problems`. `earlier` has the documents of an earlier load by their
    names in messages. With `everything`, examples are read too."""

    def __init__(self, earlier: Mapping[str, Document], *, everything: bool) -> None:
        self._earlier = earlier
        self._everything = everything
        self._shared: dict[Path, Document] = {}
        self.problems: list[Problem] = []
        self.named: list[Path] = []
        """Every file of the configuration in the order of reading, and after a mistake also those it names that are not
        there; a file may be listed twice."""
        self.paths: dict[str, Path] = {}
        """The files that were read, by their names in messages."""
        self.sound = True
        """False once a file has mistakes of shape or cannot be read: checks that need all files are then skipped."""

    @property
    def has_errors(self) -> bool:
        """Whether a problem so far is an error."""
        return any(problem.level == "error" for problem in self.problems)

    def read(self, path: Path, without: str = "", *, anew: bool = False) -> Document:
        """The document of a file, empty when it cannot be read. `without` names a last key that is left unread.
        `anew`: parse it even if an earlier load has parsed the same text."""
        name = shown(path)
        self.named.append(path)
        self.paths[name] = path
        try:
            document = read_file(path, name, without=without, known=None if anew else self._earlier.get(name))
        except OSError as error:
            document = read_text("", name)
            document.problems.append(document.problem(document.root, f"cannot be read: {error.strerror or error}"))
        if document.problems:
            self.sound = False
            self.problems += document.problems
        return document

    def read_part(self, path: Path) -> Document:
        """A provider's file or a shared file; its examples are read only with `everything`."""
        return self.read(path, without="" if self._everything else EXAMPLES)

    def read_shared(self, path: Path) -> Document:
        """A shared file; it is read once in a load, however many providers name it."""
        document = self._shared.get(path)
        if document is None:
            document = self._shared[path] = self.read_part(path)
        return document

    def read_mappings(self, paths: Iterable[Path], needed: Container[str | None] | None) -> dict[str, Document]:
        """The mapping files by name. With `needed`, other built-in mappings are only known by name, and examples are
        not read."""
        mappings: dict[str, Document] = {}
        built_in = built_in_mappings()
        for path in paths:
            if needed is not None and path.stem not in needed and path.parent == built_in:
                self.named.append(path)
                name, document = path.stem, read_text("", shown(path))
            else:
                document = self.read(path, without="" if needed is None else EXAMPLES)
                name = self._mapping_name(document, path)
            if name in mappings:
                self.problems.append(
                    document.problem(document.root, f'mapping "{name}" is also in {mappings[name].file}')
                )
            mappings.setdefault(name, document)
        return mappings

    def _mapping_name(self, document: Document, path: Path) -> str:
        """The name that a mapping file declares; it must be the name of the file."""
        if self._earlier.get(document.file) is document:
            return path.stem  # checked by the load that read it
        name = Fields(document.root).text("mapping", path.stem)
        if name != path.stem:
            self.problems.append(
                document.problem(
                    Fields(document.root).get("mapping") or document.root,
                    f'found "{name}", wanted the file\'s own name "{path.stem}"',
                    path="mapping",
                    hint=f"or name the file {name}.yaml",
                )
            )
        return name

    def shaped(self, document: Document, kind: Kind) -> Map | None:
        """The tree of a document without what its schema forbids; None if there is no tree. `kind` names a schema of
        `shape.py`."""
        if document.problems and (
            document.size >= MAX_NODES or isinstance(document.root, Map) and not document.root.entries
        ):
            return None  # not read to its end, so that missing keys mean nothing
        problems, root = check_shape(document, kind)
        if problems:
            self.sound = False
            self.problems += problems
        return root

    def noted(self, found: tuple[list[Path], list[Problem]]) -> list[Path]:
        """The files that a search found; its problems are added to ours."""
        self.problems += found[1]
        return found[0]


def needed_mappings(providers: Iterable[Provider]) -> frozenset[str]:
    """The mappings of the client formats and of the providers that are on."""
    spoken = (
        endpoint.mapping for provider in providers if not provider.off for endpoint in provider.endpoints.values()
    )
    return frozenset((*CLIENT_FORMATS, *spoken))
