"""Turns documents into one immutable `Gateway`: read, check shapes, resolve secrets, build, check across files.

The entry point is `load_gateway`. The problems of all files are collected before the configuration is refused, so that
an operator sees all of them at once. A configuration that loads is one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType

from tollgate.config.cross_checks import check_across
from tollgate.config.file_reader import FileReader, needed_mappings
from tollgate.config.files import (
    GATEWAY_FILE,
    folder_patterns,
    gateway_file,
    mapping_files,
    provider_files,
    unmatched,
)
from tollgate.config.gateway import read_settings, secrets_dir, store_reference
from tollgate.config.load import Document, Map, Mark, Problem, read_text
from tollgate.config.model import Gateway
from tollgate.config.price_warnings import price_warnings, unpriced_warnings
from tollgate.config.provider_files import ProviderFiles
from tollgate.config.reading import Reading
from tollgate.config.retirement import retirement_warnings
from tollgate.config.reusable import Reusable, Source
from tollgate.config.secrets import Reference, Secrets, read_secrets, unread_names
from tollgate.errors import ConfigErrors
from tollgate.process.garbage_collector import collector_paused

_MOST_NAMED = 10
"""Providers that are off and listed by name; if there are more, only their number is printed, so that other lines
stay visible."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that loads. `warnings` should be looked at; `notes` are facts to print once (providers that
    are off)."""

    gateway: Gateway
    secrets: Secrets
    warnings: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    price_warnings: tuple[Problem, ...] = ()
    """Those of the warnings that are about prices, for the next load."""
    sources: Mapping[str, Source] = field(default_factory=dict, repr=False)
    """What each provider file was built into, for the next load."""
    read_at: float = 0.0
    """When reading began, in seconds since 1970: a later change of a file may not be included."""

    @property
    def providers_off(self) -> str:
        """How many providers are off, and their names if there are few; empty if there are none."""
        providers = self.gateway.providers
        off = sorted(name for name, provider in providers.items() if provider.off)
        if not off:
            return ""
        named = f": {', '.join(off)}" if len(off) <= _MOST_NAMED else ""
        why = "because a secret is not set (`tollgate check` names it)"
        return f"{len(off)} of {len(providers)} providers are off, {why}{named}"

    def warned(self, day: date | None = None) -> Iterator[Problem]:
        """All warnings as of a day (None: today): those of the files, and those about models without a price or near
        their retirement, which depend on the date and not on the files alone."""
        yield from self.warnings
        yield from unpriced_warnings(self.gateway)
        yield from retirement_warnings(self.gateway.providers.values(), day)

    @property
    def reusable(self) -> Reusable:
        """What the next load can reuse."""
        about_prices = set(self.price_warnings)
        others = tuple(warning for warning in self.warnings if warning not in about_prices)
        rates = self.gateway.credits.rates
        return Reusable(self.sources, self.gateway.mappings, others, self.price_warnings, rates)


def load_gateway(
    path: Path | None = None, *, environ: Mapping[str, str], everything: bool = False, previous: Reusable | None = None
) -> Loaded:
    """Read a gateway file and all files it names. Raises `ConfigErrors` with every problem, ordered by file and line.

    `path` is the file or its folder; None is `gateway.yaml` in the working directory if it exists, else the embedded
    defaults. Providers or mappings that a folder does not have come from the embedded defaults too.

    `everything` is for a check: it also reads what no running gateway needs, which are the model files of providers
    that are off, built-in mappings that neither a client nor a provider speaks, and examples.

    What has not changed since `previous` is not read again. If something is wrong, all files are read again, so that
    all problems are found.
    """
    loaded, problems = examine_gateway(path, environ=environ, everything=everything, previous=previous)
    if loaded is None or any(problem.level == "error" for problem in problems):
        raise ConfigErrors(problems)
    return loaded


def examine_gateway(
    path: Path | None = None, *, environ: Mapping[str, str], everything: bool = False, previous: Reusable | None = None
) -> tuple[Loaded | None, tuple[Problem, ...]]:
    """As `load_gateway`, for callers that continue after errors: returns every problem, and the configuration without
    the parts that have one.

    The configuration is None where the gateway file or its `plugins` cannot be read: without plugins the filters of a
    mapping are not known. Raises `ConfigErrors` where there is no gateway file.
    """
    began = time.time()
    with collector_paused():
        loading = _Loading(path, environ, everything=everything, previous=previous)
        loaded = loading.run()
        if previous is not None and loading.files.has_errors:
            loading = _Loading(path, environ, everything=everything)
            loaded = loading.run()
    problems = tuple(in_order(loading.problems))
    known = not any(
        problem.level == "error"
        and problem.mark.file == loading.document.file
        and problem.path.partition("[")[0] in ("", "plugins")
        for problem in problems
    )
    return (replace(loaded, read_at=began) if known else None), problems


def load_settings(path: Path | None = None, *, environ: Mapping[str, str]) -> Gateway:
    """Read the gateway file alone, for commands that do not use providers: mistakes in provider files do not stop them.

    Raises `ConfigErrors` with every problem of that file.
    """
    loading = _Loading(path, environ)
    settings = loading.settings()[1]
    loading.raise_mistakes()
    return settings


def load_mappings(
    path: Path | None = None, *, environ: Mapping[str, str], needed: Container[str | None] | None
) -> Gateway:
    """Read the gateway file and the mapping files, without providers, for commands about mappings alone.

    Of built-in mappings that are not in `needed` only the name is read; None: all are needed. Raises `ConfigErrors`
    with every problem of those files.
    """
    loading = _Loading(path, environ)
    settings, mappings = loading.settings()[1], loading.mappings(needed)
    loading.raise_mistakes()
    return replace(settings, mappings=mappings, files=tuple(loading.files.named))


def in_order(problems: list[Problem]) -> list[Problem]:
    """Ordered by file (the gateway file first), line and column, without duplicates."""
    first = {problem.mark.file: Path(problem.mark.file).name != GATEWAY_FILE for problem in problems}
    return sorted(dict.fromkeys(problems), key=lambda p: (first[p.mark.file], p.mark.file, p.mark.line, p.mark.column))


class _Loading:
    """One load, collecting the problems of all files. `document` is the gateway file (empty if there is none), `root`
    its checked tree, `folder` the one that relative paths start from."""

    def __init__(
        self,
        path: Path | None,
        environ: Mapping[str, str],
        *,
        everything: bool = False,
        previous: Reusable | None = None,
    ) -> None:
        self.environ = environ
        self.everything = everything
        self.previous = previous = None if everything else previous
        self.files = FileReader(previous.documents() if previous is not None else {}, everything=everything)
        self.provider_files = ProviderFiles(self.files, previous, everything=everything)
        self.problems = self.files.problems
        file, self.folder = gateway_file(path)
        self.document = self.files.read(file) if file else read_text("", GATEWAY_FILE)
        self.root = self.files.shaped(self.document, "gateway") or Map({}, {}, Mark(self.document.file, 1, 1))

    def run(self) -> Loaded:
        files = self.provider_files.read(self.files.noted(provider_files(self.document, self.root, self.folder)))
        referred = [reference for file in files for reference in file.referred]
        secrets, settings = self.settings(referred)
        providers = self.provider_files.providers(files, secrets, self.unread_names(referred))
        mappings = self.mappings(None if self.everything else needed_mappings(providers))
        if self.files.has_errors:
            self.files.named += unmatched(self.root, self.folder)
        gateway = replace(
            settings,
            providers=MappingProxyType({p.name: p for p in providers}),
            mappings=mappings,
            files=tuple(dict.fromkeys(self.files.named)),
            folder_patterns=folder_patterns(self.root, self.folder),
        )
        fresh = self.provider_files.fresh
        self.problems += check_across(gateway, providers, self.document, self.root, sound=self.files.sound, fresh=fresh)
        about_prices = self.price_warnings(gateway)
        self.problems += about_prices
        notes = tuple(f"provider {p.name} is off: {p.off}" for p in providers if p.off)
        warnings = tuple(in_order([problem for problem in self.problems if problem.level != "error"]))
        return Loaded(gateway, secrets, warnings, notes, about_prices, self.provider_files.sources)

    def price_warnings(self, gateway: Gateway) -> tuple[Problem, ...]:
        """The warnings about prices: those of the load before if every file and every rate is the same. A price is
        judged in USD, and by those of other files."""
        before, files = self.previous, self.provider_files
        if before is not None and not files.fresh and _with_same_prices(before, files.sources, gateway):
            return before.price_warnings
        errors = [problem for problem in self.problems if problem.level == "error"]
        return tuple(price_warnings(gateway, gateway.providers, errors))

    def raise_mistakes(self) -> None:
        """Raise all problems, warnings too, if one of them is an error."""
        if self.files.has_errors:
            raise ConfigErrors(in_order(self.problems))

    def settings(self, referred: Iterable[Reference] = ()) -> tuple[Secrets, Gateway]:
        """The values of the secrets that are `referred` to, and the settings of the gateway file."""
        reading, store = Reading(self.document), store_reference(self.root)
        names = {reference.name for reference in referred}
        if store is not None:
            names.add(store[0])
        secrets, problems = read_secrets(sorted(names), self.environ, secrets_dir(self.root, self.folder))
        settings = read_settings(reading, self.root, self.folder, secrets)
        self.problems += problems + reading.problems
        return secrets, settings

    def unread_names(self, referred: Iterable[Reference]) -> list[str]:
        """See `secrets.unread_names`; none unless everything is read, as comparing names takes time."""
        names = {reference.name for reference in referred}
        return unread_names(names, self.environ, secrets_dir(self.root, self.folder)) if self.everything else []

    def mappings(self, needed: Container[str | None] | None) -> Mapping[str, Document]:
        """The mapping files by name; see `FileReader.read_mappings`."""
        paths = self.files.noted(mapping_files(self.document, self.root, self.folder))
        return MappingProxyType(self.files.read_mappings(paths, needed))


def _with_same_prices(before: Reusable, sources: Mapping[str, Source], gateway: Gateway) -> bool:
    """Whether a load in which no file is new has the prices of the load `before`: no file is gone, no rate changed."""
    return sources.keys() == before.sources.keys() and gateway.credits.rates == before.rates
