"""Documents become one immutable `Gateway`: read, check shapes, resolve secrets, build, check across files.

The one way in is `load_gateway`. Every problem of every file is collected before anything is refused, so that an
operator sees them all at once; a configuration that loads is one that runs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tollgate.collecting import collector_resting
from tollgate.config.cross import check_across
from tollgate.config.fields import Fields
from tollgate.config.files import GATEWAY_FILE, MAPPING_GLOBS, PROVIDER_GLOBS, Found, defaults_root, matches, shown, unique
from tollgate.config.included import include_models
from tollgate.config.load import MAX_NODES, Document, List, Map, Mark, Node, Problem, Scalar, read_file
from tollgate.config.model import Gateway, Provider
from tollgate.config.provider import SECRET_PLACES, read_provider
from tollgate.config.reading import Reading
from tollgate.config.sanity import check_prices
from tollgate.config.secrets import Reference, Secrets, misplaced, read_secrets, references
from tollgate.config.server import read_settings, store_reference
from tollgate.config.shape import check_shape
from tollgate.errors import ConfigErrors
from tollgate.wire import CLIENT_FORMATS

EXAMPLES = "examples"
"""What a running gateway leaves unread at the end of its files."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that loads. `warnings` are worth a look; `notes` are facts to say once (providers that are off)."""

    gateway: Gateway
    secrets: Secrets
    warnings: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def load_gateway(path: Path | None = None, *, environ: Mapping[str, str], everything: bool = False) -> Loaded:
    """Read a gateway file (or a folder with one) and all it names.

    `everything` is for a check: it also reads what no running gateway needs, which are the model files of providers that
    are off, built-in mappings that neither a client nor a provider speaks, and examples.

    None: `gateway.yaml` of the working directory when there, else the embedded defaults. What a folder lacks (providers,
    mappings) comes from the embedded defaults too. Raises `ConfigErrors` with every problem, in file and line order.
    """
    loading = _Loading(environ, everything=everything)
    with collector_resting():
        loaded = loading.run(path)
    errors = [problem for problem in loading.problems if problem.level == "error"]
    if errors:
        raise ConfigErrors(in_order(loading.problems))
    return loaded


def load_settings(path: Path | None = None, *, environ: Mapping[str, str]) -> Gateway:
    """The gateway file alone, for commands that never look at providers: a mistake in a provider file is not in their way.

    Raises `ConfigErrors` with every problem of that one file.
    """
    loading = _Loading(environ)
    settings = loading.settings(path)
    if any(problem.level == "error" for problem in loading.problems):
        raise ConfigErrors(in_order(loading.problems))
    return settings


def load_mappings(path: Path | None = None, *, environ: Mapping[str, str]) -> Gateway:
    """The gateway file and the mapping files, without providers, for commands about mappings alone.

    Raises `ConfigErrors` with every problem of those files.
    """
    loading = _Loading(environ)
    gateway = loading.with_mappings(path)
    if any(problem.level == "error" for problem in loading.problems):
        raise ConfigErrors(in_order(loading.problems))
    return gateway


def in_order(problems: list[Problem]) -> list[Problem]:
    """By file (the gateway file first), line and column; the same thing said twice is said once."""
    first = {problem.mark.file: Path(problem.mark.file).name != GATEWAY_FILE for problem in problems}
    return sorted(dict.fromkeys(problems), key=lambda p: (first[p.mark.file], p.mark.file, p.mark.line, p.mark.column))


class _Loading:
    """One run over the files, collecting problems."""

    def __init__(self, environ: Mapping[str, str], *, everything: bool = False) -> None:
        self.environ = environ
        self.everything = everything
        self.problems: list[Problem] = []
        self.files: list[Path] = []
        self.paths: dict[str, Path] = {}
        self.sound = True
        """False once a file has problems of shape, or is left unread: checks that need everything are then skipped."""

    def run(self, path: Path | None) -> Loaded:
        file, folder = _gateway_file(path)
        document = self._read(file) if file else Document(GATEWAY_FILE, "", Map({}, {}, Mark(GATEWAY_FILE, 1, 1)))
        root = self._shaped(document, "gateway") or Map({}, {}, Mark(document.file, 1, 1))
        reading = Reading(document)

        provider_files = self._provider_files(document, root, folder)
        mapping_files = self._mapping_files(document, root, folder)
        documents = [self._read(p, without="" if self.everything else EXAMPLES) for p in provider_files]
        trees = [(doc, tree) for doc in documents if (tree := self._shaped(doc, "provider")) is not None]
        settings_folder = Path(Fields(root).text("secrets_dir", str(Gateway(root=folder).secrets_dir)))
        secrets = self._secrets(root, [tree for _, tree in trees], folder / settings_folder)

        settings = read_settings(reading, root, folder, self._store_url(document, root, secrets))
        self.problems += reading.problems
        providers = self._providers(trees, secrets)
        mappings = self._mappings(mapping_files, needed=None if self.everything else needed_mappings(providers))
        gateway = replace(
            settings, providers=MappingProxyType({p.name: p for p in providers}), mappings=MappingProxyType(mappings),
            files=tuple(self.files),
        )
        self.problems += check_across(gateway, providers, document, root, sound=self.sound)
        warnings = check_prices(gateway)
        self.problems += warnings
        notes = tuple(f"provider {p.name} is off: {p.off}" for p in providers if p.off)
        return Loaded(gateway, secrets, tuple(in_order([p for p in self.problems if p.level != "error"])), notes)

    def settings(self, path: Path | None) -> Gateway:
        """As `run`, without providers and mappings."""
        file, folder = _gateway_file(path)
        document = self._read(file) if file else Document(GATEWAY_FILE, "", Map({}, {}, Mark(GATEWAY_FILE, 1, 1)))
        root = self._shaped(document, "gateway") or Map({}, {}, Mark(document.file, 1, 1))
        reading = Reading(document)
        secrets = self._secrets(root, [], folder / Fields(root).text("secrets_dir", str(Gateway(root=folder).secrets_dir)))
        settings = read_settings(reading, root, folder, self._store_url(document, root, secrets))
        self.problems += reading.problems
        return settings

    def with_mappings(self, path: Path | None) -> Gateway:
        """As `run`, without providers."""
        settings = self.settings(path)
        file, folder = _gateway_file(path)
        document = read_file(file, shown(file)) if file else Document(GATEWAY_FILE, "", Map({}, {}, Mark(GATEWAY_FILE, 1, 1)))
        root = document.root if isinstance(document.root, Map) else Map({}, {}, document.root.mark)
        mappings = self._mappings(self._mapping_files(document, root, folder))
        return replace(settings, mappings=MappingProxyType(mappings), files=tuple(self.files))

    def _read(self, path: Path, without: str = "") -> Document:
        name = shown(path)
        self.files.append(path)
        self.paths[name] = path
        try:
            document = read_file(path, name, without=without)
        except OSError as error:
            document = Document(name, "", Map({}, {}, Mark(name, 1, 1)))
            document.problems.append(document.problem(document.root, f"cannot be read: {error.strerror or error}"))
        if document.problems:
            self.sound = False
            self.problems += document.problems
        return document

    def _shaped(self, document: Document, kind: str) -> Map | None:
        if document.problems and (document.size >= MAX_NODES or isinstance(document.root, Map) and not document.root.entries):
            return None  # not read to its end: what it lacks is not worth saying
        problems, root = check_shape(document, kind)  # type: ignore[arg-type]
        if problems:
            self.sound = False
            self.problems += problems
        return root

    def _secrets(self, root: Map, trees: list[Map], folder: Path) -> Secrets:
        names = {reference.name for tree in trees for reference in _references_in(tree)}
        store = store_reference(root)
        if store:
            names.add(store[0])
        return read_secrets(sorted(names), self.environ, folder)

    def _store_url(self, document: Document, root: Map, secrets: Secrets) -> str | None:
        """The store's address when it is a reference; every other secret of the gateway file is misplaced."""
        store = store_reference(root)
        for problem in misplaced(document, root, frozenset()):
            if not store or problem.path != store[2]:
                self.problems.append(problem)
        if not store:
            return None
        value = secrets.get(store[0])
        if value is None:
            self.problems.append(document.problem(store[1], f"secret {store[0]} is not set", path=store[2],
                                                  hint="an environment variable or a file in secrets_dir"))
        return value or ""

    def _provider_files(self, document: Document, root: Map, folder: Path) -> list[Path]:
        written = root.get("providers")
        found = matches(folder, Fields(root).texts("providers", PROVIDER_GLOBS))
        if isinstance(written, List):
            self._say_missing(document, written, found, "providers")
            return unique(found)
        return unique(found) or unique(matches(defaults_root(), PROVIDER_GLOBS))

    def _mapping_files(self, document: Document, root: Map, folder: Path) -> list[Path]:
        """The folder's own mappings, and the built-in ones of the names it lacks: a protocol missing is never wanted."""
        written = root.get("mappings")
        found = matches(folder, Fields(root).texts("mappings", MAPPING_GLOBS))
        if isinstance(written, List):
            self._say_missing(document, written, found, "mappings")
        own = unique(found)
        names = {path.stem for path in own}
        return own + [path for path in unique(matches(defaults_root(), MAPPING_GLOBS)) if path.stem not in names]

    def _say_missing(self, document: Document, written: List, found: list[Found], path: str) -> None:
        missing = {group.pattern for group in found if group.missing}
        for index, node in enumerate(written.items):
            if isinstance(node, Scalar) and node.value in missing:
                self.problems.append(document.problem(node, f'found no file "{node.value}"', path=f"{path}[{index}]", hint="relative to this file"))

    def _providers(self, trees: list[tuple[Document, Map]], secrets: Secrets) -> list[Provider]:
        providers = []
        for document, tree in trees:
            unset = dict.fromkeys(ref.name for ref in _references_in(tree) if not ref.optional and secrets.get(ref.name) is None)
            if "models_from" in tree.entries:
                tree = self._with_models(document, tree, wanted=self.everything or not unset)
            provider, problems = read_provider(document, tree)
            self.problems += problems
            if any(problem.level == "error" for problem in problems):
                self.sound = False
            if unset:
                provider = replace(provider, off=f"secret{'s' if len(unset) > 1 else ''} {', '.join(unset)} {'are' if len(unset) > 1 else 'is'} not set")
            providers.append(provider)
        return providers

    def _with_models(self, document: Document, tree: Map, *, wanted: bool) -> Map:
        if not wanted:
            self.sound = False
            return tree
        tree, problems = include_models(document, tree, self.paths[document.file].parent, self._read, self._shaped)
        self.problems += problems
        return tree

    def _mappings(self, paths: list[Path], needed: Container[str] | None = None) -> dict[str, Document]:
        """The mapping files by name. With `needed`, other built-in ones are known by name only, and none has its examples."""
        mappings: dict[str, Document] = {}
        built_in = defaults_root() / "mappings"
        for path in paths:
            if needed is not None and path.stem not in needed and path.parent == built_in:
                name, document = path.stem, self._unread(path)
            else:
                document = self._read(path, without="" if needed is None else EXAMPLES)
                name = Fields(document.root).text("mapping", path.stem)
            if name != path.stem:
                at = Fields(document.root).get("mapping")
                self.problems.append(document.problem(at or document.root, f'found "{name}", wanted the file\'s own name "{path.stem}"', path="mapping"))
            if name in mappings:
                self.problems.append(document.problem(document.root, f'mapping "{name}" is also in {mappings[name].file}'))
            mappings.setdefault(name, document)
        return mappings

    def _unread(self, path: Path) -> Document:
        self.files.append(path)
        name = shown(path)
        return Document(name, "", Map({}, {}, Mark(name, 1, 1)))


def needed_mappings(providers: Iterable[Provider]) -> frozenset[str]:
    """The mappings of the client formats and of the providers that are on."""
    spoken = (endpoint.mapping for provider in providers if not provider.off for endpoint in provider.endpoints.values())
    return frozenset((*CLIENT_FORMATS, *spoken))


def _references_in(node: Node) -> Iterator[Reference]:
    """References below every key that may hold one, wherever it stands (endpoints and image steps have headers too)."""
    if isinstance(node, Map):
        for key, child in node.entries.items():
            yield from references(child) if key in SECRET_PLACES else _references_in(child)
    elif isinstance(node, List):
        for item in node.items:
            yield from _references_in(item)


def _gateway_file(path: Path | None) -> tuple[Path | None, Path]:
    """The file to read and the folder relative paths start from; no file means: all defaults."""
    if path is None:
        own = Path.cwd() / GATEWAY_FILE
        if own.is_file():
            return own, own.parent
        shipped = defaults_root() / GATEWAY_FILE
        return (shipped if shipped.is_file() else None), Path.cwd()
    if path.is_dir():
        own = path / GATEWAY_FILE
        return (own if own.is_file() else None), path.resolve()
    return path, path.resolve().parent
