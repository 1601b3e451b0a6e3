"""A sample of recorded traffic of every upstream format, through the whole gateway to every client format.

Answers are parsed by the official SDKs and compared with an independent reading of the recording (`tests/replay`);
recorded client requests are compared with what reached the upstream. `tests/replay` runs all recordings through the
mappings alone; here they also pass the pipeline, the surface and the SDKs' HTTP clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)
pytest.importorskip(
    "google.genai", reason="the independent reader of gemini requests checks them with google-genai's types"
)

from replay import cells, clients, compare, vendors
from replay.cells import CLIENTS, READERS, UPSTREAMS
from replay.traffic import Exchange, exchange, ids
from support import sdks
from support.inprocess import inprocess
from support.recorded import CALLED, HELLO, Player, provider_of, request_of
from support.usage_files import rows_by_id
from tollgate.errors import BadRequest

SAMPLE = 48
CROSS = [(client, upstream) for client in CLIENTS for upstream in UPSTREAMS if client != upstream]
IDS = [f"{client}-client-{upstream}-upstream" for client, upstream in CROSS]


def sample(protocol: str, fits: Callable[[Exchange], bool], count: int = SAMPLE) -> Iterator[Exchange]:
    """An even selection of the recordings that fit, half of them streams if there are enough."""
    for streamed in (False, True):
        found = [x for x in map(exchange, ids(protocol)) if x.stream is streamed and fits(x)]
        share = min(len(found), count // 2)
        yield from (found[n * len(found) // share] for n in range(share))


@asynccontextmanager
async def gateway(folder):
    players = {protocol: Player() for protocol in UPSTREAMS}
    async with inprocess(folder, providers={name: provider_of(name) for name in UPSTREAMS}, apps=players) as app:
        yield app, players


def report(capsys, what: str, total: int, missed: dict[str, list[str]]) -> None:
    with capsys.disabled():
        print(f"\n{what}: {total - len(missed)} of {total}")
    assert total >= 40
    assert not missed, "\n".join(f"{name}: {miss}" for name, misses in missed.items() for miss in misses)


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
async def test_recorded_answers_are_read_by_the_sdk(client: str, upstream: str, tmp_path, capsys) -> None:
    missed: dict[str, list[str]] = {}
    played: dict[str, Exchange] = {}
    async with gateway(tmp_path) as (app, players):
        sdk = sdks.client_of(app, client)
        for x in sample(upstream, lambda x: cells.spoken(x) if x.stream else cells.answered(x)):
            players[upstream].playing = x
            try:
                misses = await answer_misses(sdk, client, upstream, x)
            except Exception as error:
                misses = [f"{type(error).__name__}: {str(error)[:300]}"]
            if misses:
                missed[x.id] = misses
            played[x.id] = x
        rows = list((await rows_by_id(app, tmp_path)).values())
    assert len(rows) == len(played) and {row["upstream_protocol"] for row in rows} == {upstream}
    report(capsys, f"answers {upstream} -> {client}", len(played), missed)


async def answer_misses(sdk: Any, client: str, upstream: str, x: Exchange) -> list[str]:
    body = {**HELLO[client], "model": f"rec/{upstream}"}
    if not x.stream:
        wanted = READERS[upstream].answer(x.body)
        if not any((wanted.usage or {}).values()):
            wanted.usage = None  # without any count, usage is estimated
        got = clients.whole(client, await sdks.whole(sdk, client, body))
        return [str(miss) for miss in compare.answers(wanted, got, client)]
    wanted = READERS[upstream].stream(x.events)
    try:
        events = await sdks.events(sdk, client, body)
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return [] if wanted.error and error.status_code >= 400 else [f"{error.status_code}: {error}"]
    return [str(miss) for miss in cells.stream_misses(wanted, clients.streamed(client, events), client)]


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
async def test_recorded_requests_reach_the_upstream_unchanged(
    client: str, upstream: str, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("tollgate.completions.inline.fetch_inline", nowhere)
    missed: dict[str, list[str]] = {}
    total = 0
    async with gateway(tmp_path) as (app, players):
        player = players[upstream]
        player.playing = next(x for x in map(exchange, ids(upstream)) if cells.answered(x))
        for x in sample(
            client,
            lambda x: (
                x.status < 400
                and isinstance(x.request, dict)
                and bool(x.request.get("messages") or x.request.get("input"))
            ),
        ):
            total += 1
            player.seen.clear()
            request = {**request_of(x, f"rec/{upstream}"), "stream": False}
            reply = await app.post(CALLED[client], request)
            if reply.status_code != 200:
                misses = (
                    []
                    if 400 <= reply.status_code < 500
                    and (cells.right_to_refuse(reply.text, x, upstream) or stateful(x) or unreachable(reply.text))
                    else [f"{reply.status_code} {reply.text[:300]}"]
                )
            else:
                body = player.seen[-1][2]
                lost = [word.strip() for word in reply.headers.get("x-tollgate-dropped", "").split(",")]
                wanted = READERS[client].request_facts({k: v for k, v in request.items() if k != "stream"})
                misses = [
                    str(miss)
                    for miss in compare.requests(wanted, READERS[upstream].request_facts(body), upstream, lost)
                ]
                try:
                    vendors.check(upstream, body)
                except Exception as error:
                    misses.append(f"the vendor's types: {str(error)[:300]}")
            if misses:
                missed[x.id] = misses
    report(capsys, f"requests {client} -> {upstream}", total, missed)


async def nowhere(url: str, settings: Any) -> tuple[str, bytes]:
    """Replaces the guarded download, for tests without a network."""
    raise BadRequest(f"{url} cannot be fetched")


def unreachable(text: str) -> bool:
    """Whether the upstream requires data for which the client sent a URL."""
    return "cannot be fetched" in text


def stateful(x: Exchange) -> bool:
    """Whether a request refers to state that only one provider has."""
    return any(
        word in str(x.request)
        for word in ("previous_response_id", "item_reference", "file_id", "'conversation'", "'container'")
    )
