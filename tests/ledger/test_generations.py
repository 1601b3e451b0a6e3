"""Image jobs: found again after a restart, changed by one caller at a time, charged once."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from support.stores import available_to, spent_by
from tollgate.errors import Unavailable, Unwritten
from tollgate.ledger import Generation, records

from .conftest import Alice, new_ledger, row


def job(account_id: str = "alice", **more: object) -> Generation:
    return Generation(**({"id": str(uuid.uuid4()), "account_id": account_id, "model": "acme/draw"} | more))  # type: ignore[arg-type]


DONE = {
    "status": "succeeded",
    "images": ({"url": "https://cdn.example/1.png", "width": 8},),
    "cost": Decimal("0.04"),
    "answer": {"raw": "provider's words"},
}


async def test_a_pending_job_survives_a_restart_with_all_it_knows(tmp_path: Path) -> None:
    made = job(
        input={"prompt": "a \u2603", "n": 2},
        webhook="https://example.com/hook",
        upstream_id="up-1",
        upstream_state={"poll": ["x"]},
        answer={"id": "up-1"},
        row={"held": "0.04"},
        key_id="key_1",
        deadline_at=datetime(2027, 1, 1, tzinfo=UTC),
    )
    async with new_ledger(tmp_path) as ledger:
        await ledger.generations.create(made)
    async with new_ledger(tmp_path) as ledger:
        assert await ledger.generations.pending() == [made]
        assert await ledger.generations.get("alice", made.id) == made


async def test_a_finished_job_is_read_back_before_and_after_it_is_stored(anywhere: Alice) -> None:
    made = job()
    await anywhere.ledger.generations.create(made)
    assert await anywhere.ledger.generations.update(made.id, DONE, row(cost="0.04"))
    fresh = await anywhere.ledger.generations.get("alice", made.id)
    await anywhere.ledger.settle()
    stored = await anywhere.ledger.generations.get("alice", made.id)
    assert fresh == stored
    assert stored is not None
    assert (stored.status, stored.cost, stored.answer) == ("succeeded", Decimal("0.04"), {"raw": "provider's words"})
    assert await anywhere.ledger.generations.pending() == []


async def test_an_end_that_is_not_durable_yet_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job()
    async with new_ledger(tmp_path) as ledger:
        await ledger.generations.create(made)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(Unavailable("disk full"))
        monkeypatch.setattr(ledger._backend, "append", lambda kind, event: failed)
        with pytest.raises(Unavailable):
            await ledger.generations.update(made.id, DONE)
        with pytest.raises(Unwritten, match="disk full"):
            await ledger.generations.get("alice", made.id)
        assert await ledger.generations.get("bob", made.id) is None
        assert await ledger.generations.succeeded("alice", 100) == []


async def test_a_poller_that_leaves_takes_the_end_from_nobody(alice: Alice) -> None:
    made = job()
    await alice.ledger.generations.create(made)
    ending = asyncio.create_task(alice.ledger.generations.update(made.id, DONE, row(cost="0.04")))
    await asyncio.sleep(0)
    pollers = [asyncio.create_task(alice.ledger.generations.get("alice", made.id)) for _ in range(3)]
    await asyncio.sleep(0)
    for gone in (ending, pollers[0]):
        gone.cancel()
    told = [await each for each in pollers[1:]]
    assert [each.status for each in told if each] == ["succeeded"] * 2
    assert [each.id for each in await alice.ledger.generations.succeeded("alice", 100)] == [made.id]


async def test_a_change_that_cannot_be_written_down_is_refused_before_it_is_charged(anywhere: Alice) -> None:
    made = job()
    hold = await anywhere.ledger.hold(anywhere.key, Decimal(1))
    await anywhere.ledger.generations.create(made)
    with pytest.raises(TypeError):
        await anywhere.ledger.generations.update(made.id, DONE | {"answer": object()}, row(cost="0.04"), hold)
    assert [each.status for each in await anywhere.ledger.generations.pending()] == ["starting"]
    assert anywhere.ledger.balance("alice") == 10
    assert await anywhere.ledger.generations.update(made.id, DONE, row(cost="0.04"), hold)


async def test_an_id_is_one_job_s(anywhere: Alice) -> None:
    made = job()
    await anywhere.ledger.generations.create(made)
    for change in ({"status": "processing"}, {"status": "succeeded"}):
        with pytest.raises(ValueError, match="exists already"):
            await anywhere.ledger.generations.create(job("bob", id=made.id))
        assert await anywhere.ledger.generations.update(made.id, change)
    with pytest.raises(ValueError, match="exists already"):
        await anywhere.ledger.generations.create(job("bob", id=made.id))


async def test_of_many_pollers_exactly_one_wins_and_the_charge_happens_once(anywhere: Alice) -> None:
    made = job()
    hold = await anywhere.ledger.hold(anywhere.key, Decimal(1))
    await anywhere.ledger.generations.create(made)
    won = await asyncio.gather(
        *(anywhere.ledger.generations.update(made.id, DONE, row("req_job", cost="0.04"), hold) for _ in range(50))
    )
    assert sum(won) == 1
    assert anywhere.ledger.balance("alice") == await available_to(anywhere.ledger, "alice") == Decimal("9.96")


async def test_a_job_that_is_stored_takes_no_memory(alice: Alice) -> None:
    made = job()
    await alice.ledger.generations.create(made)
    await alice.ledger.generations.update(made.id, DONE)
    await alice.ledger.settle()
    async with asyncio.timeout(20):
        while alice.ledger.generations._unstored:
            await asyncio.sleep(0.01)


async def test_a_job_whose_request_was_charged_before_ends_free_and_holds_nothing(anywhere: Alice) -> None:
    made = job()
    await anywhere.ledger.record(row("req_job", cost="0.04"))
    hold = await anywhere.ledger.hold(anywhere.key, Decimal(1))
    await anywhere.ledger.generations.create(made)
    assert await anywhere.ledger.generations.update(made.id, DONE, row("req_job", cost="0.04"), hold)
    await anywhere.ledger.settle()
    sums = await anywhere.ledger.sums("alice")
    assert (sums.spent, sums.held) == (Decimal("0.04"), 0)


async def test_a_change_of_a_job_that_is_not_there_costs_nothing(anywhere: Alice) -> None:
    made = job()
    await anywhere.ledger.generations.create(made)
    assert await anywhere.ledger.generations.update(made.id, {"status": "processing"})
    assert not await anywhere.ledger.generations.update("no-such-job", DONE, row(cost="1"))
    assert [each.status for each in await anywhere.ledger.generations.pending()] == ["processing"]
    assert anywhere.ledger.balance("alice") == 10


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_a_job_that_ended_stays_as_it_is(anywhere: Alice, status: str) -> None:
    made = job()
    hold = await anywhere.ledger.hold(anywhere.key, Decimal(1))
    await anywhere.ledger.generations.create(made)
    assert await anywhere.ledger.generations.update(made.id, {"status": status, "error": "no"}, None, hold)
    assert not await anywhere.ledger.generations.update(made.id, DONE, row(cost="1"))
    await anywhere.ledger.settle()  # a hold on a shared store is given back with the next round
    assert await available_to(anywhere.ledger, "alice") == 10


async def test_nobody_sees_another_accounts_jobs(anywhere: Alice) -> None:
    pending, done = job(), job(status="succeeded")
    await anywhere.ledger.generations.create(pending)
    await anywhere.ledger.generations.create(done)
    for _ in range(2):
        assert await anywhere.ledger.generations.get("bob", pending.id) is None
        assert await anywhere.ledger.generations.get("bob", done.id) is None
        assert await anywhere.ledger.generations.succeeded("bob", 100) == []
        await anywhere.ledger.settle()


async def test_the_list_has_the_newest_hundred_successes_newest_first_stored_or_not(anywhere: Alice) -> None:
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    made = [job(status="succeeded", created_at=begin + timedelta(seconds=n)) for n in range(130)]
    for each in made[:70]:
        await anywhere.ledger.generations.create(each)
    await anywhere.ledger.settle()
    for each in made[70:]:
        await anywhere.ledger.generations.create(each)
    await anywhere.ledger.generations.create(job(status="failed", created_at=begin + timedelta(days=1)))
    await anywhere.ledger.generations.create(job(created_at=begin + timedelta(days=1)))
    listed = await anywhere.ledger.generations.succeeded("alice", 100)
    assert [each.id for each in listed] == [each.id for each in reversed(made)][:100]


async def test_of_jobs_made_in_one_moment_a_list_begins_with_the_same_ones_stored_or_not(anywhere: Alice) -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    made = sorted((job(status="succeeded", created_at=begin) for _ in range(5)), key=lambda each: each.id, reverse=True)
    for each in made:
        await anywhere.ledger.generations.create(each)
    for _ in range(2):
        assert await anywhere.ledger.generations.succeeded("alice", 2) == made[:2]
        await anywhere.ledger.settle()


async def test_a_list_holds_no_more_inline_pictures_than_an_answer_can_be(
    anywhere: Alice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LISTED_BYTES", 3000)
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    picture = ({"data": "A" * 1000, "context_type": "image/png"},)
    made = [job(status="succeeded", images=picture, created_at=begin + timedelta(seconds=n)) for n in range(5)]
    for each in made[:4]:
        await anywhere.ledger.generations.create(each)
    await anywhere.ledger.settle()
    await anywhere.ledger.generations.create(made[4])
    listed = await anywhere.ledger.generations.succeeded("alice", 100)
    assert [each.id for each in listed] == [made[4].id, made[3].id, made[2].id]
    alone = job(status="succeeded", images=({"data": "A" * 3001},), created_at=begin + timedelta(days=1))
    await anywhere.ledger.generations.create(alone)
    assert [each.id for each in await anywhere.ledger.generations.succeeded("alice", 100)] == [alone.id]


async def test_a_charge_and_its_job_are_one_event_after_a_restart(tmp_path: Path) -> None:
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
