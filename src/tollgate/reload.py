"""Hot reload: a new runtime is built beside the old one and replaces it in one assignment, or the old one stays.

Running requests keep the runtime with which they began. Only documents whose text changed are compiled again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from tollgate.config.files import GATEWAY_FILE, defaults_root, shown
from tollgate.config.load import Document, List, Mark, Problem, lookup, read_text
from tollgate.config.model import Gateway
from tollgate.errors import ConfigErrors
from tollgate.mapping import run_examples
from tollgate.mapping.provider.examples import run_provider_examples
from tollgate.process.concurrency import in_daemon_thread
from tollgate.runtime import Discovered, Runtime, RuntimeHolder, build_runtime, load_or_report_all
from tollgate.watched_files import Stamp, WatchedFiles, is_less, older

log = logging.getLogger("tollgate.reload")

_LOOK_SECONDS = 1.0
"""How often to look for changed files; to stat some fifty files takes well under a millisecond."""
_SETTLED_SECONDS = 0.25
"""How long changed files must stay the same before they are read: somebody may still be writing."""
_SETTLED_SHORTER_SECONDS = 1.0
"""The same when a file is shorter or gone. The first half of a file that is being overwritten may be valid, and its
missing half would remove models for a moment."""


@dataclass(slots=True)
class ReloadState:
    """The result of the last reload, for the log, `/readyz` and the dashboard."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ok: bool = True
    problems: tuple[Problem, ...] = ()
    count: int = 0


class Reloader:
    """Rebuilds the runtime of `holder` from `path`. `adjust` makes the command line's changes to the settings."""

    def __init__(
        self,
        holder: RuntimeHolder,
        path: Path | None,
        *,
        environ: Mapping[str, str] | None = None,
        adjust: Callable[[Gateway], Gateway] = lambda gateway: gateway,
    ) -> None:
        self._holder = holder
        self._path = path
        self._environ = environ if environ is not None else os.environ
        self._adjust = adjust
        self.state = ReloadState()
        self._seen: Stamp | None = None
        """The files as they were last read; None until the first reload, by a signal, or the first look of `watch`."""
        self._refused_files: tuple[Path, ...] = ()
        """The files of the newest configuration while it is refused, also those it names that are not there: whoever
        mends it may change one that the running configuration does not have."""

    async def reload(self) -> ReloadState:
        """Build a runtime off the event loop, and use it. Never raises because of what is in the files."""
        async with self._holder.swapping:
            with contextlib.suppress(OSError):
                self._seen = await asyncio.to_thread(self._stamp)
            watched, began = await asyncio.to_thread(self._watched), time.time()
            try:
                building = in_daemon_thread(self._build, "tollgate-reload")  # an import in it may hang
                runtime, lists = await asyncio.wrap_future(building)
            except Exception as error:  # a mistake of ours must not end the watching
                state = self._refused(error)
                await self._watch_others(watched, began)
                return state
            before = self._holder.current
            self._holder.discovered = lists
            self._holder.swap(runtime)
            self._refused_files = ()
            await self._watch_others(watched, began)
            self._holder.stale = False
            self.state = ReloadState(count=self.state.count + 1)
            log.info("configuration reloaded; providers: %d", len(runtime.gateway.providers))
            _log_switched(before.gateway, runtime.gateway)
            _log_restart_needed(before.gateway, runtime.gateway)
            return self.state

    def _refused(self, error: Exception) -> ReloadState:
        """Keep the running configuration, and log why."""
        self._holder.stale = True
        if isinstance(error, ConfigErrors) and error.files:
            self._refused_files = error.files
        problems = error.problems if isinstance(error, ConfigErrors) else ()
        self.state = ReloadState(ok=False, problems=problems, count=self.state.count)
        if isinstance(error, ConfigErrors):  # warnings are logged already
            wrong = "\n".join(problem.render() for problem in problems if problem.level == "error")
            log.error("the configuration was not reloaded; the running one stays:\n%s", wrong)
        elif isinstance(error, OSError):
            log.error("the configuration could not be read; the running one stays: %s", error)
        else:
            log.error("the configuration could not be built; the running one stays", exc_info=error)
        return self.state

    async def watch(self) -> None:
        """Reload whenever a file changed, until cancelled."""
        while True:
            # a folder that cannot be listed now, for example without free descriptors, can be listed later
            with contextlib.suppress(OSError):
                if self._seen is None:
                    seen = await asyncio.to_thread(self._as_read)
                    self._seen = self._seen or seen  # a reload by signal has read the files meanwhile
                else:
                    await self._look(self._seen)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, seen: Stamp) -> None:
        """Reload if the files differ from `seen` and stay the same for a moment."""
        now = await asyncio.to_thread(self._stamp)
        if now == seen:
            return
        await asyncio.sleep(_SETTLED_SHORTER_SECONDS if is_less(seen, now) else _SETTLED_SECONDS)
        if await asyncio.to_thread(self._stamp) == now:
            self._seen = now
            await self.reload()

    def _as_read(self) -> Stamp:
        """The files as the running configuration has read them. Without those written since then (while the gateway
        started or waited for its database), so that the next look finds them changed."""
        return older(self._stamp(), self._holder.current.loaded.read_at)

    async def _watch_others(self, before: WatchedFiles, began: float) -> None:
        """After a reload that `began` at this time, change `_seen`, which has the files that were watched `before` it,
        to the files watched now. New files get the stamp with which they were read, or the same reload would be done
        twice."""
        now = await asyncio.to_thread(self._watched)
        if self._seen is None or now == before:
            return
        with contextlib.suppress(OSError):
            found = older(await asyncio.to_thread(self._stamp), began)
            kept = {file for file in self._seen if now.has(file[0])}
            self._seen = frozenset(kept | {file for file in found if not before.has(file[0])})

    def _watched(self) -> WatchedFiles:
        return WatchedFiles.of(self._holder.current.gateway, self._refused_files)

    def _stamp(self) -> Stamp:
        return self._watched().stamp()

    def _build(self) -> tuple[Runtime, Discovered]:
        """The new runtime, and the lists of models in it."""
        before = self._holder.current
        loaded = load_or_report_all(self._path, environ=self._environ, previous=before.loaded.reusable)
        self._refused_files = loaded.gateway.files  # until it runs
        loaded = replace(loaded, gateway=self._adjust(loaded.gateway))
        _check_own_files(before.gateway, loaded.gateway)
        earlier = set(before.loaded.warned(datetime.fromtimestamp(before.loaded.read_at, UTC).date()))
        _log_warnings(warning for warning in loaded.warned() if warning not in earlier)
        lists = self._holder.discovered
        try:
            runtime = build_runtime(loaded, previous=before, discovered=lists)
        except ConfigErrors as errors:
            build_runtime(loaded, previous=before)  # raises the mistakes in the files
            wrong = {problem.mark.file for problem in errors.problems}
            now = loaded.gateway.providers
            dropped = [name for name in lists if name not in now or wrong & _files_of(now[name].document)]
            lists = {name: models for name, models in lists.items() if name not in dropped}
            runtime = build_runtime(loaded, previous=before, discovered=lists)
            log.warning("models of their lists do not fit the new files, and are gone: %s", ", ".join(dropped))
        loaded.reusable.let_go()
        self._try_out(before, runtime)
        return runtime, lists

    def _try_out(self, before: Runtime, now: Runtime) -> None:
        """Run the examples of changed files, and log their warnings. Raises `ConfigErrors` when an example fails: a
        mapping that does not do what its own examples say is refused."""
        problems: list[Problem] = []
        for name, mapping in now.mappings.items():
            if before.mappings.get(name) is not mapping:
                _log_warnings(mapping.warnings)
                problems += run_examples(mapping, now.mappings, _examples(mapping.document))
        for name, provider in now.providers.items():
            if before.providers.get(name) is not provider:
                _log_warnings(provider.warnings)
                examples = _examples(provider.config.document) or provider.config.examples
                problems += run_provider_examples(replace(provider, config=replace(provider.config, examples=examples)))
        if any(problem.level == "error" for problem in problems):
            raise ConfigErrors(problems)


def _check_own_files(before: Gateway, now: Gateway) -> None:
    """Raise `ConfigErrors` where the folder's own files are gone, so that what is shipped would be used instead: the
    gateway file, or all provider files. The folder is being rewritten, or was lost; nobody removes the last file to get
    sixty other providers, or settings without own limits and aliases."""
    settings = _own_settings(before)
    if settings is not None and _own_settings(now) is None:
        message = "found no file, where the running configuration has its settings"
        hint = "an empty file has the default of every setting"
        raise ConfigErrors([Problem(Mark(shown(settings), 1, 1), message, hint=hint)])
    own, embedded = before.root / "providers", defaults_root() / "providers"
    had, has = ({file.parent for file in gateway.files} for gateway in (before, now))
    if own in had and embedded in has - had:
        message = "found no *.yaml, where the running configuration has its providers"
        hint = "a start in this folder would serve the shipped ones"
        raise ConfigErrors([Problem(Mark(shown(own), 1, 1), message, hint=hint)])


def _files_of(document: Document) -> set[str]:
    return {document.file, *(other.file for other in document.included)}


def _own_settings(gateway: Gateway) -> Path | None:
    """The gateway file of its folder, if it was read."""
    own = (file for file in gateway.files if file.name == GATEWAY_FILE and file.parent.resolve() == gateway.root)
    return next(own, None)


def _log_warnings(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        log.warning("%s", warning.render(source=False))


def _examples(document: Document) -> List | None:
    """The examples of a file, and of those it shares. They are not parsed when the files are loaded, so they are read
    here."""
    found: list[List] = []
    for file in (document, *document.shared):
        if "\nexamples:" in file.text:
            node = lookup(read_text(file.text, file.file).root, "examples")
            found += [node] if isinstance(node, List) else []
    return replace(found[0], items=tuple(item for each in found for item in each.items)) if found else None


def _log_switched(before: Gateway, now: Gateway) -> None:
    """Log which providers a reload turned off, removed or turned on, and their models with them."""
    were_on = {name for name, provider in before.providers.items() if not provider.off}
    were_off = before.providers.keys() - were_on
    on = {name for name, provider in now.providers.items() if not provider.off}
    off = now.providers.keys() - on
    if went_off := sorted(off - were_off):
        log.warning(
            "providers that went off, because a secret is not set (`tollgate check` names it): %s", ", ".join(went_off)
        )
    if gone := sorted(before.providers.keys() - now.providers.keys()):
        log.warning("providers that are gone with their files: %s", ", ".join(gone))
    if came := sorted(on - were_on):
        log.info("providers that came on: %s", ", ".join(came))


_TAKEN_AT_START = ("server.bind", "server.engine", "store", "dashboard")


def _log_restart_needed(before: Gateway, now: Gateway) -> None:
    """Log which changes of gateway.yaml need a restart, so that nobody waits for their effect."""
    changed = [name for name in _TAKEN_AT_START if attrgetter(name)(before) != attrgetter(name)(now)]
    if before.server.base_url != now.server.base_url and "server.bind" not in changed:
        changed.append("server.base_url of the dashboard")
    if changed:
        log.warning("changed in gateway.yaml, and taken at the next start only: %s", ", ".join(changed))
