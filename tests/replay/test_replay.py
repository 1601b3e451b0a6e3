"""Every recorded exchange of the four protocols, in every cell: at least 99 % as recorded, every difference
explained."""

from __future__ import annotations

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from replay import cells
from replay.explained import EXPLAINED

CROSS = [(client, upstream) for client in cells.CLIENTS for upstream in cells.UPSTREAMS]
IDS = [f"{client}-client-{upstream}-upstream" for client, upstream in CROSS]


def check(cell: cells.Cell) -> None:
    unexplained = [f"{r.exchange}: {miss}" for r in cell.unexplained for miss in r.misses]
    assert not unexplained, "\n".join(unexplained)
    assert cell.share >= 0.99, f"{cell.passed} of {len(cell.results)}"
    assert cell.results


@pytest.mark.parametrize("upstream", cells.UPSTREAMS)
def test_usage_and_stop_reason_of_native_answers_are_read_as_recorded(upstream: str) -> None:
    check(cells.tap_cell(upstream))


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
def test_whole_answers_reach_the_client_as_recorded(client: str, upstream: str) -> None:
    check(cells.answer_cell(client, upstream))


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
def test_streams_reach_the_client_as_recorded(client: str, upstream: str) -> None:
    check(cells.stream_cell(client, upstream))


@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
def test_requests_reach_the_upstream_as_sent(client: str, upstream: str) -> None:
    check(cells.request_cell(client, upstream))


def test_every_explained_exchange_exists() -> None:
    known = {row["id"] for row in traffic.index()}
    assert {i for _, i in EXPLAINED} <= known
