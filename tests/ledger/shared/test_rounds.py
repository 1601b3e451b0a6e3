"""What goes into a round with the database, and the order of rounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from support.waiting import until
from tollgate.errors import QuotaExhausted, RateLimited, Unavailable
from tollgate.ledger.limits import UNLIMITED
from tollgate.ledger.records import encode_row
from tollgate.ledger.shared import rounds
from tollgate.ledger.shared.connections import DatabaseLost
from tollgate.ledger.shared.records import written_job

from ..conftest import DONE, Alice, job, row


@pytest.mark.parametrize("broken", [False, True], ids=["more rows than fit in a round", "a rejected row"])
async def test_rows_are_written_in_the_order_of_their_numbers(
    alice: Alice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Publication continues after the highest published number, so a row written after a higher one would never be
    published. Image jobs add rows of their own."""
    made = job()
    await alice.ledger.generations.create(made)
    shared = alice.ledger._backend
    send, go_on = shared.rounds._send, asyncio.Event()

    async def send_and_publish(taken: rounds.Gathered) -> None:
        await go_on.wait()
        await send(taken)
        await shared._publishing.publish()

    monkeypatch.setattr(shared.rounds, "_send", send_and_publish)
    if not broken:
        monkeypatch.setattr(rounds, "_MOST_ROWS", 2)
    waiting = [alice.ledger.record(row("req_first"))]
    await until(lambda: not shared.rounds._gathered.of("rows"))
    waiting += [alice.ledger.record(row(f"req_{number}")) for number in range(5)]
    if broken:
        waiting.append(shared.rounds.row("alice", b'{"request_id": "req_broken", "cost": "none"}'))
    waiting.append(asyncio.create_task(alice.ledger.generations.update(made.id, DONE, row("req_job"))))
    await until(lambda: shared.rounds._gathered.of("jobs"))
    waiting.append(alice.ledger.record(row("req_last")))
    go_on.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    await alice.ledger.settle()
    found = duckdb.sql(
        f"FROM read_duckdb('{tmp_path}/usage/**/*.duckdb', table_name = 'usage') SELECT list(request_id ORDER BY seq)"
    ).fetchall()
    assert found == [(["req_first", *(f"req_{number}" for number in range(5)), "req_job", "req_last"],)]


async def test_ending_a_job_twice_with_the_same_end_succeeds_and_charges_once(alice: Alice) -> None:
    """The answer of the round that wrote the end may have been lost."""
    made = job()
    await alice.ledger.generations.create(made)
    done = written_job(replace(made, **DONE), new=False)
    rounds_of_alice = alice.ledger._backend.rounds
    for _ in range(2):
        assert await rounds_of_alice.job("alice", done, encode_row(row("req_job", cost="0.04")))
    other = written_job(replace(made, status="failed"), new=False)
    assert not await rounds_of_alice.job("alice", other, encode_row(row("req_other", cost="0.04")))
    assert (await alice.ledger.sums("alice")).spent == Decimal("0.04")


@pytest.mark.parametrize(("cap", "most"), [(None, Decimal("9.9")), (Decimal("2.5"), Decimal("2.4"))])
async def test_a_round_grants_as_many_holds_as_the_balance_or_the_cap_covers(
    alice: Alice, cap: Decimal | None, most: Decimal
) -> None:
    key = await alice.ledger.update_key(alice.key.id, spend_cap=cap)
    results = await asyncio.gather(*(alice.ledger.hold(key, Decimal("0.3")) for _ in range(40)), return_exceptions=True)
    amounts = [each.amount for each in results if not isinstance(each, BaseException)]
    assert {type(each) for each in results if isinstance(each, BaseException)} == {QuotaExhausted}
    assert sum(amounts) == (await alice.ledger.sums("alice")).held == most
    assert amounts == sorted(amounts, reverse=True) and amounts[0] == Decimal("0.3") and all(amounts)


async def test_a_cap_counts_only_the_spend_of_its_window(alice: Alice) -> None:
    key = await alice.ledger.update_key(alice.key.id, spend_cap=Decimal(2), cap_window="month")
    old = datetime.now(UTC) - timedelta(days=40)
    await alice.ledger.record(row(key_id=key.id, cost="3", time=old))
    await alice.ledger.record(row(key_id=key.id, cost="0.5"))
    hold = await alice.ledger.hold(key, Decimal(5))
    assert hold.amount == Decimal("1.5")
    hold.release()
    key = await alice.ledger.update_key(key.id, cap_window="total")
    with pytest.raises(QuotaExhausted, match="spend cap"):
        await alice.ledger.hold(key, Decimal(5))


async def test_a_changed_rate_limit_keeps_the_remaining_share(alice: Alice) -> None:
    async def left(rpm: int) -> int:
        key = await alice.ledger.update_key(alice.key.id, rpm=rpm)
        return (await alice.ledger.admit(key)).requests.remaining

    async def last_filled(when: str) -> None:
        await alice.ledger._backend.connections.value(f"UPDATE tollgate.buckets SET stamp = now() {when}")

    assert await left(10) == 9
    await last_filled("+ interval '55 seconds'")  # so that no time passes, even on a busy machine
    assert [await left(10) for _ in range(4)] == [8, 7, 6, 5]
    assert await left(20) == 9
    with pytest.raises(RateLimited) as rejected:
        await left(0)
    assert rejected.value.retry_after == 60
    assert await left(10) == 9, "a limit raised from zero starts full"
    await last_filled("- interval '1 hour'")
    assert await left(10) == 9, "an hour refills no more than a minute"


async def test_rate_limits_go_on_when_the_clock_of_the_database_was_set_back(alice: Alice) -> None:
    key = await alice.ledger.update_key(alice.key.id, rpm=600)
    await alice.ledger.admit(key)
    database = alice.ledger._backend.connections
    await database.value("UPDATE tollgate.buckets SET stamp = now() + interval '1 hour', level = 5")
    assert (await alice.ledger.admit(key)).requests.remaining == 4
    assert await database.value("SELECT stamp <= clock_timestamp() FROM tollgate.buckets")


async def test_tokens_are_returned_up_to_the_limit_of_a_minute(alice: Alice) -> None:
    key = await alice.ledger.update_key(alice.key.id, tpm=10)
    assert (await alice.ledger.admit(key, 500)).tokens.remaining == 0, "a larger request passes if the bucket is full"
    with pytest.raises(RateLimited):
        await alice.ledger.admit(key, 0)
    alice.ledger.used_tokens(key, 0, 5000)
    assert 8 <= (await alice.ledger.admit(key, 1)).tokens.remaining <= 9
    key = await alice.ledger.update_key(key.id, tpm=None)
    assert await alice.ledger.admit(key) is UNLIMITED


async def test_a_late_row_does_not_move_last_used_back(alice: Alice) -> None:
    """The row of an image job arrives when the job ends, with the time of its request."""
    now = datetime.now(UTC)
    for time in (now, now - timedelta(minutes=5)):
        await alice.ledger.record(row(key_id=alice.key.id, time=time))
    assert [key.last_used for key in await alice.ledger.list_keys("alice")] == [now]


async def test_a_request_rejected_during_an_outage_is_not_queued(alice: Alice) -> None:
    """Otherwise it would count when the database returns."""
    rounds_of_alice = alice.ledger._backend.rounds
    rounds_of_alice.outage.reason = "the database is away"
    for refused in (rounds_of_alice.admit("alice", {}), rounds_of_alice.hold("alice", "key", {})):
        with pytest.raises(Unavailable, match="the database is away"):
            await refused
    assert rounds_of_alice._gathered.of("admits", "holds") == []
    rounds_of_alice.outage.reason = ""


async def test_a_hold_granted_to_a_request_that_ends_is_released(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds_of_alice = alice.ledger._backend.rounds
    answer = rounds_of_alice._answer

    def answer_and_end(*round: Any) -> None:
        answer(*round)
        request.cancel()  # it has its answer, but has not read it yet

    monkeypatch.setattr(rounds_of_alice, "_answer", answer_and_end)
    request = asyncio.create_task(alice.ledger.hold(alice.key, Decimal(1)))
    with pytest.raises(asyncio.CancelledError):
        await request
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).held == 0


async def test_rows_beyond_the_limit_wait_together_with_the_jobs_and_marks_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job's row has a number, too, so it must not overtake a row; a hold has none, and its request waits for it."""
    monkeypatch.setattr(rounds, "_MOST_ROWS", 2)
    waiting = rounds.Rounds("", "a", "a", lambda _: None)
    new = asyncio.get_running_loop().create_future
    kinds: tuple[rounds.Kind, ...] = ("rows", "jobs", "rows", "rows", "jobs", "holds", "rows", "used")
    waiting._gathered.parts = [rounds.Part(kind, b"%d" % place, "alice", new()) for place, kind in enumerate(kinds)]
    waiting._gathered.marks = [new()]
    first = waiting._take(rounds.Gathered())
    then = waiting._take(rounds.Gathered())
    assert [[int(part.json) for part in taken.parts] for taken in (first, then)] == [[0, 1, 2, 5, 7], [3, 4, 6]]
    assert (len(first.marks), len(then.marks)) == (0, 1)


async def test_an_internal_error_does_not_end_the_rounds(
    alice: Alice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds_of_alice = alice.ledger._backend.rounds

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as wrong:
        wrong.setattr(rounds_of_alice, "_on_balances", fail)
        with pytest.raises(Unavailable, match="a round with the database went wrong: ZeroDivisionError"):
            await alice.ledger.record(row("req_1", cost="0.5"))
    await until(lambda: alice.ledger.ready)
    await alice.ledger.settle()
    assert (await alice.ledger.sums("alice")).spent == Decimal("0.5"), "once, although the round was repeated"
    assert "Traceback" in caplog.text


async def test_a_closed_ledger_accepts_nothing(alice: Alice) -> None:
    await alice.ledger.close()
    for late in (alice.ledger.hold(alice.key, Decimal(1)), alice.ledger.generations.create(job())):
        with pytest.raises(Unavailable, match="the ledger is shutting down"):
            await late


async def test_a_provider_id_that_cannot_be_stored_does_not_fail_the_answer(
    alice: Alice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> None:
        raise DatabaseLost("the database does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(alice.ledger._backend.connections, "connection", away)
        await alice.ledger.register.remember("alice", "acme", ["resp_1"])
    assert "cannot be written: the database does not answer" in caplog.text
    assert await alice.ledger.register.provider_of("alice", "resp_1") is None


async def test_an_internal_error_does_not_stop_listening_for_changes(
    alice: Alice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = alice.ledger._backend._listener
    changed, mistakes = listener._changed, iter([True])

    async def once_wrong(what: str, id: str) -> None:
        if next(mistakes, False):
            raise ZeroDivisionError
        await changed(what, id)

    monkeypatch.setattr(listener, "_changed", once_wrong)
    await alice.ledger._backend.connections.value("SELECT pg_notify('tollgate', 'account nobody')")
    await until(lambda: alice.ledger.not_ready_reason)
    assert alice.ledger.not_ready_reason == "changes of other gateways do not arrive: ZeroDivisionError"
    await until(lambda: alice.ledger.ready)
    await alice.ledger._backend.connections.value("UPDATE tollgate.keys SET revoked = true")
    await alice.ledger._backend.connections.value("SELECT pg_notify('tollgate', $1)", f"key {alice.key.id}")
    await until(lambda: alice.ledger._memory.keys[alice.key.id].revoked)
    assert "receiving changes of other gateways failed" in caplog.text
