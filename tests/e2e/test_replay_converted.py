"""A sample of recorded traffic of every upstream format, through the whole gateway to every client format.

Answers are parsed by the official SDKs and compared with an independent reading of the recording (`tests/replay`);
requests a client really sent are compared with what reached the upstream. `tests/replay` runs all of it through the
mappings alone; here the pipeline, the surface and the SDKs' own HTTP are in between.
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


def sample(protocol: str, fits: Callable[[Exchange], bool], wanted: int = SAMPLE) -> Iterator[Exchange]:
    """An even spread over the recordings that fit, half of them streams where there are as many."""
    for streamed in (False, True):
        found = [x for x in map(exchange, ids(protocol)) if x.stream is streamed and fits(x)]
        share = min(len(found), wanted // 2)
        yield from (found[n * len(found) // share] for n in range(share))


@asynccontextmanager
async def gateway(folder):
    players = {protocol: Player() for protocol in UPSTREAMS}
    async with inprocess(folder, providers={name: provider_of(name) for name in UPSTREAMS}, apps=players) as here:
        yield here, players


def tell(capsys, what: str, total: int, missed: dict[str, list[str]]) -> None:
    with capsys.disabled():
        print(f"\n{what}: {total - len(missed)} of {total}")
    assert total >= 40
    assert not missed, "\n".join(f"{name}: {miss}" for name, misses in missed.items() for miss in misses)


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
async def test_answers_reach_the_sdk_as_recorded(client: str, upstream: str, tmp_path, capsys) -> None:
    missed: dict[str, list[str]] = {}
    told: dict[str, Exchange] = {}
    async with gateway(tmp_path) as (here, players):
        sdk = sdks.client_of(here, client)
        for x in sample(upstream, lambda x: cells.spoken(x) if x.stream else cells.answered(x)):
            players[upstream].playing = x
            try:
                misses = await answer_misses(sdk, client, upstream, x)
            except Exception as error:
                misses = [f"{type(error).__name__}: {str(error)[:300]}"]
            if misses:
                missed[x.id] = misses
            told[x.id] = x
        rows = list((await rows_by_id(here, tmp_path)).values())
    assert len(rows) == len(told) and {row["upstream_protocol"] for row in rows} == {upstream}
    tell(capsys, f"answers {upstream} -> {client}", len(told), missed)


async def answer_misses(sdk: Any, client: str, upstream: str, x: Exchange) -> list[str]:
    body = {**HELLO[client], "model": f"rec/{upstream}"}
    if not x.stream:
        wanted = READERS[upstream].answer(x.body)
        if not any((wanted.usage or {}).values()):
            wanted.usage = None  # usage without a count in it: an estimate is told
        got = clients.whole(client, await sdks.whole(sdk, client, body))
        return [str(miss) for miss in compare.answers(wanted, got, client)]
    wanted = READERS[upstream].stream(x.events)
    try:
        events = await sdks.events(sdk, client, body)
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return [] if wanted.error and error.status_code >= 400 else [f"{error.status_code}: {error}"]
    return [str(miss) for miss in cells.stream_misses(wanted, clients.streamed(client, events), client)]


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
async def test_requests_reach_the_upstream_as_sent(client: str, upstream: str, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tollgate.completions.inline.fetch_inline", nowhere)
    missed: dict[str, list[str]] = {}
    total = 0
    async with gateway(tmp_path) as (here, players):
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
            asked = {**request_of(x, f"rec/{upstream}"), "stream": False}
            reply = await here.post(CALLED[client], asked)
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
                wanted = READERS[client].asked({k: v for k, v in asked.items() if k != "stream"})
                misses = [str(miss) for miss in compare.requests(wanted, READERS[upstream].asked(body), upstream, lost)]
                try:
                    vendors.check(upstream, body)
                except Exception as error:
                    misses.append(f"the vendor's types: {str(error)[:300]}")
            if misses:
                missed[x.id] = misses
    tell(capsys, f"requests {client} -> {upstream}", total, missed)


async def nowhere(url: str, settings: Any) -> tuple[str, bytes]:
    """The guarded download, for tests without a network."""
    raise BadRequest(f"{url} cannot be fetched")


def unreachable(text: str) -> bool:
    """The upstream wants bytes where the client gave an address."""
    return "cannot be fetched" in text


def stateful(x: Exchange) -> bool:
    """A request that refers to a provider's state, which lives at one provider only."""
    return any(
        word in str(x.request)
        for word in ("previous_response_id", "item_reference", "file_id", "'conversation'", "'container'")
    )
