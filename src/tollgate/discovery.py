"""Models found in providers' own lists, kept fresh in the background (`discover:` of a provider file).

Each list is requested once at start and then at intervals. What must stay true: the last good list
stays in force whatever happens to the next one; a request never waits for this; a list that did not change costs no
rebuild. How entries become models is `mapping/provider/discover.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson

from tollgate.addresses import with_query
from tollgate.completions.judging import reported_error
from tollgate.config.load import Problem
from tollgate.config.model import Model, rank_of
from tollgate.config.price_warnings import first_names, lacking
from tollgate.config.settings import Timeouts
from tollgate.errors import AlarmKind, ConfigErrors, TollgateError, UpstreamError, UpstreamFailed
from tollgate.health import record_alarm
from tollgate.mapping.provider.discover import MAX_PAGES
from tollgate.runtime import RuntimeHolder, build_runtime, written_aliases
from tollgate.upstream import Call

if TYPE_CHECKING:
    from tollgate.health import Health
    from tollgate.mapping.provider import Discovery
    from tollgate.upstream import Client

log = logging.getLogger("tollgate.discovery")

MAX_BYTES = 32 * 1024 * 1024
"""The largest public list of models is some 2 MB."""
_BUDGETS = Timeouts(connect=10, first_byte=30, idle=30, total=60)
_FIRST_RETRY = 30.0
"""Seconds before a failed list is requested again; doubled each time, at most the list's own interval."""
_LOOK = 1.0
"""How long the loop sleeps at most: a reload may have brought a provider with a list, whose operator waits for it."""

_MOST_LOGGED = 5
"""Problems of one list written to the log at a time."""


@dataclass(slots=True)
class ListState:
    """How one provider's list is doing."""

    at: datetime | None = None
    """When the list in force was read; None before the first."""
    problem: str = ""
    """Why the last attempt failed; empty when it did not."""
    skipped: tuple[Problem, ...] = ()
    """Entries that could not be used."""
    unpriced: tuple[str, ...] = ()
    """Models served free because the list says no price of theirs."""
    were_aliases: tuple[str, ...] = ()
    """Ids in the list that are also aliases in the files."""
    alarms: set[AlarmKind] = field(default_factory=set)
    """Those that failed attempts raised since the last good one."""
    due: float = 0.0
    failures: int = 0
    source: object = field(default=None, repr=False)
    """The provider's document that it was requested with."""
    configuration: object = field(default=None, repr=False)
    """What was loaded then."""


class Discoverer:
    """Requests the lists and puts changes into the runtime of `holder`."""

    def __init__(
        self,
        holder: RuntimeHolder,
        client: Client,
        health: Health,
        *,
        spread: Callable[[], float] = lambda: random.uniform(0.9, 1.1),
    ) -> None:
        self._holder = holder
        self._client = client
        self._health = health
        self._spread = spread
        self.states: dict[str, ListState] = {}

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            await self.refresh()
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.05, min([_LOOK, *(state.due - now for state in self.states.values())])))

    async def refresh(self) -> bool:
        """Request every list that is due, all at once; True when the runtime changed."""
        now = asyncio.get_running_loop().time()
        lists = self._lists()
        for name in self.states.keys() - lists.keys():
            self._end_alarms(name, self.states.pop(name))
            self._use(name, ())
        due = [name for name, discovery in lists.items() if self._is_due(name, discovery, now)]
        found = await asyncio.gather(*(self._refresh_one(name, lists[name]) for name in due))
        changed = {name: models for name, models in zip(due, found, strict=True) if models is not None}
        return await self._swap(changed) if changed else False

    def _stands_in(self, provider: str, model: Model) -> bool:
        """Whether another provider is this model's first choice, so that its price is billed."""
        known = self._holder.current.catalog.models.get(model.id)
        if known is None or (first := known.routes[0]).provider == provider:
            return False
        return rank_of(first.priority, first.weight, first.provider) < rank_of(model.priority, model.weight, provider)

    def _lists(self) -> dict[str, Discovery]:
        return {
            name: provider.discovery
            for name, provider in self._holder.current.providers.items()
            if provider.discovery is not None and provider.discovery.url and not provider.config.off
        }

    def _is_due(self, name: str, discovery: Discovery, now: float) -> bool:
        state = self.states.get(name)
        if state is None or now >= state.due:
            return True
        # A changed file may say something else of its list, and any reload may mend what failed: the key, the proxy.
        reloaded = state.configuration is not self._holder.current.loaded
        return state.source is not discovery.provider.document or bool(state.problem) and reloaded

    async def _refresh_one(self, name: str, discovery: Discovery) -> tuple[Model, ...] | None:
        """Request one list; None when it cannot be read, or is the one in force."""
        state = self.states.setdefault(name, ListState())
        now = asyncio.get_running_loop().time()
        state.source, state.configuration = discovery.provider.document, self._holder.current.loaded
        try:
            models, problems = await asyncio.to_thread(discovery.read, *await self._pages(discovery))
            if problems and not models:
                raise _Unusable(problems[0].render(source=False))
        except Exception as error:  # also a mistake of ours, which must not end the refreshing of all lists
            self._note_failure(name, state, error)
            state.due = now + min(discovery.every, _FIRST_RETRY * 2 ** min(state.failures - 1, 16)) * self._spread()
            return None
        self._end_alarms(name, state)
        if state.problem:
            log.info("the list of models of %s is read again", name)
        self._log_what_is_wrong(name, discovery, state, models, problems)
        state.at, state.problem, state.failures = datetime.now(UTC), "", 0
        state.due = now + discovery.every * self._spread()
        return models if self._holder.discovered.get(name) != models else None

    def _note_failure(self, name: str, state: ListState, error: Exception) -> None:
        """Log a list that cannot be read, once for each reason, and raise the alarm of the provider's answer."""
        reason = str(error) or type(error).__name__
        if reason != state.problem:
            log.warning(
                "the list of models of %s was not read, %s: %s",
                name,
                f"the one of {state.at:%H:%M} stays" if state.at else "it has none yet",
                reason,
                exc_info=None if isinstance(error, (TollgateError, _Unusable)) else error,
            )
        if isinstance(error, UpstreamError) and error.alarm is not None:
            state.alarms.add(error.alarm)
            record_alarm(self._health, log, name, error)
        state.problem, state.failures = reason, state.failures + 1

    def _log_what_is_wrong(
        self, name: str, discovery: Discovery, state: ListState, models: Iterable[Model], problems: tuple[Problem, ...]
    ) -> None:
        """Log which entries are left out, have no price, or take the name of an alias; the same ones once."""
        gateway = self._holder.current.gateway
        file = gateway.providers.get(name, discovery.provider)  # A reload may have removed it meanwhile.
        written = {model.id for model in file.models}
        used = [model for model in models if model.id not in written]  # The file's own entries have precedence.
        problems += discovery.unbillable(used, gateway.credits.rates)
        _log_skipped(name, state.skipped, problems)
        unpriced = tuple(model.id for model in used if lacking(model) and not self._stands_in(name, model))
        if unpriced and set(unpriced) != set(state.unpriced):
            log.warning(
                '%d models in the list of %s have no price, so their tokens cost nothing ("0" in its `discover:` says '
                "that they are free): %s",
                len(unpriced),
                name,
                first_names(unpriced),
            )
        aliases = {**written_aliases(gateway), **gateway.aliases}
        were_aliases = tuple(model.id for model in used if aliases.get(model.id, model.id) != model.id)
        if were_aliases and set(were_aliases) != set(state.were_aliases):
            log.warning(
                "the list of models of %s has ids that are aliases in the files; they name its models now, "
                "as an id has precedence: %s",
                name,
                ", ".join(f"{id} (was {aliases[id]})" for id in were_aliases[:_MOST_LOGGED]),
            )
        state.skipped, state.unpriced, state.were_aliases = problems, unpriced, were_aliases

    def _end_alarms(self, name: str, state: ListState) -> None:
        """End the alarms that the list raised, and no others: it may be readable without a key."""
        while state.alarms:
            self._health.end_alarm(name, state.alarms.pop())

    def _use(self, name: str, models: tuple[Model, ...]) -> None:
        """Put this list of a provider in force, for the next build."""
        self._holder.discovered = {**self._holder.discovered, name: models}

    async def _pages(self, discovery: Discovery) -> list[object]:
        """The list's pages, one after the other."""
        pages: list[object] = []
        visited: list[str] = []
        url: str | None = discovery.url
        while url is not None and url not in visited and len(visited) < MAX_PAGES:
            visited.append(url)
            pages.append(await self._body(discovery, url))
            url = discovery.following(url, pages[-1])
        return pages

    async def _body(self, discovery: Discovery, url: str) -> object:
        provider = discovery.provider
        call = Call(
            "GET",
            with_query(url, discovery.query),
            {"accept": "application/json", **discovery.headers()},
            b"",
            _BUDGETS,
            auth=discovery.auth,
            connection=provider.connection,
        )
        async with await self._client.open(call) as answer:
            if not 200 <= answer.status < 300:
                error = await reported_error(answer, discovery.errors)
                message = f"the list's address answered {answer.status}"
                raise UpstreamFailed(message, upstream_status=answer.status, alarm=error.alarm)
            raw = await answer.read(MAX_BYTES)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise _Unusable("the list is not JSON") from None

    async def _swap(self, changed: Mapping[str, tuple[Model, ...]]) -> bool:
        """Put the new lists of these providers into the runtime, without those that cannot be compiled. No other build
        sees a list before that: its mistakes are not those of a reload."""
        async with self._holder.swapping:
            used = await self._compiled(changed)
            if not used and len(changed) > 1:
                used = [name for name, models in changed.items() if await self._compiled({name: models})]
        if used:
            log.info("models found: %s", ", ".join(f"{name} {len(changed[name])}" for name in used))
        return bool(used)

    async def _compiled(self, changed: Mapping[str, tuple[Model, ...]]) -> list[str]:
        """Put these lists in force and build a runtime with them; returns their names. If it cannot be built, the lists
        before stay, and none is returned."""
        old, lists = self._holder.current, {**self._holder.discovered, **changed}
        try:
            runtime = await asyncio.to_thread(build_runtime, old.loaded, old, discovered=lists)
        except Exception as error:
            if len(changed) == 1:
                # an entry that loads but does not compile
                mistake = None if isinstance(error, ConfigErrors) else error
                (name,) = changed
                log.error("the models found at %s cannot be used: %s", name, error, exc_info=mistake)
                self.states[name].problem = str(error) or type(error).__name__
            return []
        self._holder.discovered = lists
        self._holder.swap(runtime)
        return list(changed)


def _log_skipped(name: str, before: tuple[Problem, ...], now: tuple[Problem, ...]) -> None:
    """Log which entries a list lost, where these are not the ones it lost before."""
    messages = list(dict.fromkeys(problem.render(source=False) for problem in now))
    if set(messages) == {problem.render(source=False) for problem in before}:
        return
    if not messages:
        log.info("every entry in the list of models of %s is used again", name)
        return
    more = len(messages) - _MOST_LOGGED
    log.warning(
        "entries in the list of models of %s were left out (%d):\n%s%s",
        name,
        len(now),
        "\n".join(messages[:_MOST_LOGGED]),
        f"\nand {more} more" if more > 0 else "",
    )


class _Unusable(Exception):
    """A list that cannot be used; its text says why."""
