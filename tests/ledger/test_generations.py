"""Image jobs: found after a restart, changed by one caller at a time, charged once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from support.stores import available_to, spent_by
from support.waiting import until
from tollgate.errors import NotDurable, Unavailable
from tollgate.ledger import Generation, JobRow, records

from .conftest import DONE, Alice, job, new_ledger, row


async def test_a_pending_job_survives_a_restart_with_all_its_fields(tmp_path: Path) -> None:
    made = job(
        input={"prompt": "a \u2603", "n": 2},
        webhook="https://example.com/hook",
        upstream_id="up-1",
        upstream_state={"poll": ["x"]},
        answer={"id": "up-1"},
        row=JobRow(
            asked_model="draw",
            lost="size",
            attempts=2,
            earlier=({"provider": "acme", "upstream_model": "draw-1", "error": "rejected", "status": 400, "ms": 1.5},),
            held=Decimal("0.04"),
            instance="a",
        ),
        key_id="key_1",
        deadline_at=datetime(2027, 1, 1, tzinfo=UTC),
    )
    async with new_ledger(tmp_path) as ledger:
        await ledger.generations.create(made)
    async with new_ledger(tmp_path) as ledger:
        assert await ledger.generations.pending() == [made]
        assert await ledger.generations.get("alice", made.id) == made


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (None, JobRow()),
        ({"endpoint": "mcp", "held": "0.04", "of_a_newer_version": 1}, JobRow("mcp", held=Decimal("0.04"))),
    ],
    ids=["none", "partial"],
)
def test_the_row_of_a_job_from_another_version_is_read(stored: object, read: JobRow) -> None:
    assert records.decode(Generation, {"id": "1", "account_id": "alice", "row": stored}).row == read


async def test_a_finished_job_is_read_alike_before_and_after_it_is_stored(alice_in_either: Alice) -> None:
    made = job()
    await alice_in_either.ledger.generations.create(made)
    assert await alice_in_either.ledger.generations.update(made.id, DONE, row(cost="0.04"))
    fresh = await alice_in_either.ledger.generations.get("alice", made.id)
    await alice_in_either.ledger.settle()
    stored = await alice_in_either.ledger.generations.get("alice", made.id)
    assert fresh == stored
    assert stored is not None
    assert (stored.status, stored.cost, stored.answer) == ("succeeded", Decimal("0.04"), {"raw": "provider's words"})
    assert await alice_in_either.ledger.generations.pending() == []


async def test_an_end_that_is_not_durable_is_not_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job()
    async with new_ledger(tmp_path) as ledger:
        await ledger.generations.create(made)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(Unavailable("disk full"))
        monkeypatch.setattr(ledger._backend, "append", lambda kind, event: failed)
        with pytest.raises(Unavailable):
            await ledger.generations.update(made.id, DONE)
        with pytest.raises(NotDurable, match="disk full"):
            await ledger.generations.get("alice", made.id)
        assert await ledger.generations.get("bob", made.id) is None
        assert await ledger.generations.succeeded("alice", 100) == []


async def test_a_cancelled_poller_does_not_cancel_the_end_for_others(alice: Alice) -> None:
    made = job()
    await alice.ledger.generations.create(made)
    ending = asyncio.create_task(alice.ledger.generations.update(made.id, DONE, row(cost="0.04")))
    await asyncio.sleep(0)
    pollers = [asyncio.create_task(alice.ledger.generations.get("alice", made.id)) for _ in range(3)]
    await asyncio.sleep(0)
    for gone in (ending, pollers[0]):
        gone.cancel()
    found = [await each for each in pollers[1:]]
    assert [each.status for each in found if each] == ["succeeded"] * 2
    assert [each.id for each in await alice.ledger.generations.succeeded("alice", 100)] == [made.id]


async def test_a_change_that_cannot_be_encoded_is_rejected_before_it_is_charged(alice_in_either: Alice) -> None:
    made = job()
    hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))
    await alice_in_either.ledger.generations.create(made)
    with pytest.raises(TypeError):
        await alice_in_either.ledger.generations.update(made.id, DONE | {"answer": object()}, row(cost="0.04"), hold)
    assert [each.status for each in await alice_in_either.ledger.generations.pending()] == ["starting"]
    assert alice_in_either.ledger.balance("alice") == 10
    assert await alice_in_either.ledger.generations.update(made.id, DONE, row(cost="0.04"), hold)


async def test_a_job_id_cannot_be_used_twice(alice_in_either: Alice) -> None:
    made = job()
    await alice_in_either.ledger.generations.create(made)
    for change in ({"status": "processing"}, {"status": "succeeded"}):
        with pytest.raises(ValueError, match="exists already"):
            await alice_in_either.ledger.generations.create(job("bob", id=made.id))
        assert await alice_in_either.ledger.generations.update(made.id, change)
    with pytest.raises(ValueError, match="exists already"):
        await alice_in_either.ledger.generations.create(job("bob", id=made.id))


async def test_one_of_many_pollers_ends_the_job_and_it_is_charged_once(alice_in_either: Alice) -> None:
    made = job()
    hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))
    await alice_in_either.ledger.generations.create(made)
    won = await asyncio.gather(
        *(
            alice_in_either.ledger.generations.update(made.id, DONE, row("req_job", cost="0.04"), hold)
            for _ in range(50)
        )
    )
    assert sum(won) == 1
    assert (
        alice_in_either.ledger.balance("alice")
        == await available_to(alice_in_either.ledger, "alice")
        == Decimal("9.96")
    )


async def test_a_stored_job_is_dropped_from_memory(alice: Alice) -> None:
    made = job()
    await alice.ledger.generations.create(made)
    await alice.ledger.generations.update(made.id, DONE)
    await alice.ledger.settle()
    await until(lambda: not alice.ledger.generations._unstored)


async def test_a_job_whose_request_was_charged_before_ends_without_a_charge_or_hold(alice_in_either: Alice) -> None:
    made = job()
    await alice_in_either.ledger.record(row("req_job", cost="0.04"))
    hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))
    await alice_in_either.ledger.generations.create(made)
    assert await alice_in_either.ledger.generations.update(made.id, DONE, row("req_job", cost="0.04"), hold)
    await alice_in_either.ledger.settle()
    sums = await alice_in_either.ledger.sums("alice")
    assert (sums.spent, sums.held) == (Decimal("0.04"), 0)


async def test_a_change_of_an_unknown_job_costs_nothing(alice_in_either: Alice) -> None:
    made = job()
    await alice_in_either.ledger.generations.create(made)
    assert await alice_in_either.ledger.generations.update(made.id, {"status": "processing"})
    assert not await alice_in_either.ledger.generations.update("no-such-job", DONE, row(cost="1"))
    assert [each.status for each in await alice_in_either.ledger.generations.pending()] == ["processing"]
    assert alice_in_either.ledger.balance("alice") == 10


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_an_ended_job_cannot_be_changed(alice_in_either: Alice, status: str) -> None:
    made = job()
    hold = await alice_in_either.ledger.hold(alice_in_either.key, Decimal(1))
    await alice_in_either.ledger.generations.create(made)
    assert await alice_in_either.ledger.generations.update(made.id, {"status": status, "error": "no"}, None, hold)
    assert not await alice_in_either.ledger.generations.update(made.id, DONE, row(cost="1"))
    await alice_in_either.ledger.settle()  # a shared store releases a hold in its next round
    assert await available_to(alice_in_either.ledger, "alice") == 10


async def test_jobs_of_another_account_are_not_visible(alice_in_either: Alice) -> None:
    pending, done = job(), job(status="succeeded")
    await alice_in_either.ledger.generations.create(pending)
    await alice_in_either.ledger.generations.create(done)
    for _ in range(2):
        assert await alice_in_either.ledger.generations.get("bob", pending.id) is None
        assert await alice_in_either.ledger.generations.get("bob", done.id) is None
        assert await alice_in_either.ledger.generations.succeeded("bob", 100) == []
        await alice_in_either.ledger.settle()


async def test_the_list_has_the_newest_hundred_successes_stored_or_not(alice_in_either: Alice) -> None:
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    made = [job(status="succeeded", created_at=begin + timedelta(seconds=n)) for n in range(130)]
    for each in made[:70]:
        await alice_in_either.ledger.generations.create(each)
    await alice_in_either.ledger.settle()
    for each in made[70:]:
        await alice_in_either.ledger.generations.create(each)
    await alice_in_either.ledger.generations.create(job(status="failed", created_at=begin + timedelta(days=1)))
    await alice_in_either.ledger.generations.create(job(created_at=begin + timedelta(days=1)))
    listed = await alice_in_either.ledger.generations.succeeded("alice", 100)
    assert [each.id for each in listed] == [each.id for each in reversed(made)][:100]


async def test_jobs_of_the_same_time_are_listed_in_a_stable_order_stored_or_not(alice_in_either: Alice) -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    made = sorted((job(status="succeeded", created_at=begin) for _ in range(5)), key=lambda each: each.id, reverse=True)
    for each in made:
        await alice_in_either.ledger.generations.create(each)
    for _ in range(2):
        assert await alice_in_either.ledger.generations.succeeded("alice", 2) == made[:2]
        await alice_in_either.ledger.settle()


async def test_the_list_is_limited_by_the_size_of_inline_images(
    alice_in_either: Alice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LISTED_BYTES", 3000)
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    image = ({"data": "A" * 1000, "context_type": "image/png"},)
    made = [job(status="succeeded", images=image, created_at=begin + timedelta(seconds=n)) for n in range(5)]
    for each in made[:4]:
        await alice_in_either.ledger.generations.create(each)
    await alice_in_either.ledger.settle()
    await alice_in_either.ledger.generations.create(made[4])
    listed = await alice_in_either.ledger.generations.succeeded("alice", 100)
    assert [each.id for each in listed] == [made[4].id, made[3].id, made[2].id]
    alone = job(status="succeeded", images=({"data": "A" * 3001},), created_at=begin + timedelta(days=1))
    await alice_in_either.ledger.generations.create(alone)
    assert [each.id for each in await alice_in_either.ledger.generations.succeeded("alice", 100)] == [alone.id]


async def test_a_charge_and_its_job_are_one_event(tmp_path: Path) -> None:
    made = job()
    async with new_ledger(tmp_path) as ledger:
        await ledger.generations.create(made)
        await ledger.generations.update(made.id, DONE, row("req_job", cost="0.04"))
    async with new_ledger(tmp_path) as ledger:
        assert await spent_by(ledger, "alice") == Decimal("0.04")
        found = await ledger.generations.get("alice", made.id)
        assert found is not None
        assert found.images == DONE["images"]
        assert not await ledger.generations.update(made.id, DONE, row("req_again", cost="0.04"))
        await ledger.record(row("req_job", cost="0.04"))
        assert await spent_by(ledger, "alice") == Decimal("0.04")
