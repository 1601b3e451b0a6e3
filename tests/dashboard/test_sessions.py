"""Session cookies: who is signed in, forgery, expiry."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tollgate.dashboard.sessions import SessionFiles, Sessions
from tollgate.ledger import Account
from tollgate.steady_time import SteadyTime

ALICE = Account("alice", password_hash="scrypt$1")


@pytest.fixture
def clock():
    class Clock:
        now, machine = 1_800_000_000.0, 5.0

        def __call__(self) -> float:
            return self.now

        def wait(self, seconds: float) -> None:
            self.now += seconds
            self.machine += seconds

    return Clock()


@pytest.fixture
def sessions(tmp_path, clock):
    return Sessions(SessionFiles(tmp_path, SteadyTime(clock, lambda: clock.machine)), 12, clock)


def test_a_cookie_is_read_back_as_its_session(sessions):
    made = sessions.signed_in(ALICE)
    assert sessions.read(sessions.cookie(made)) == made
    assert made.account == "alice"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c[:-1] + ("A" if c[-1] != "A" else "B"),
        lambda c: "x" + c,
        lambda c: c.partition(".")[0],
        lambda c: "",
        lambda c: "é.é",
        lambda c: c * 50,
        lambda c: "W10." + c.partition(".")[2],
    ],
    ids=["signature", "payload", "no signature", "empty", "not ascii", "too long", "other payload"],
)
def test_a_forged_cookie_is_no_session(sessions, spoil):
    assert sessions.read(spoil(sessions.cookie(sessions.signed_in(ALICE)))) is None


def test_a_session_expires(sessions, clock):
    cookie = sessions.cookie(sessions.signed_in(ALICE))
    clock.now += 12 * 3600 - 1
    assert sessions.read(cookie)
    clock.now += 2
    assert sessions.read(cookie) is None


def test_each_sign_in_has_a_new_session_id(sessions):
    assert sessions.signed_in(ALICE).id != sessions.signed_in(ALICE).id != sessions.visitor().id


def test_a_sign_out_holds_after_a_restart(sessions, tmp_path, clock):
    made = sessions.signed_in(ALICE)
    other = sessions.signed_in(ALICE)
    sessions.end(made)
    again = Sessions(SessionFiles(tmp_path), 12, clock)
    assert again.read(sessions.cookie(made)) is None
    assert again.read(sessions.cookie(other)) == other


def test_ended_sessions_are_forgotten_after_their_expiry(sessions, tmp_path, clock):
    sessions.end(sessions.signed_in(ALICE))
    clock.wait(13 * 3600)
    sessions.end(sessions.signed_in(ALICE))
    assert len((tmp_path / "dashboard.ended").read_text().splitlines()) == 1


def test_a_sign_out_holds_after_a_clock_that_was_set_ahead_for_some_minutes(sessions, tmp_path, clock):
    made = sessions.signed_in(ALICE)
    sessions.end(made)
    clock.now += 86_400
    sessions.end(sessions.signed_in(ALICE))
    assert len(SessionFiles(tmp_path).ended) == 2
    clock.now -= 86_400
    assert sessions.read(sessions.cookie(made)) is None


def test_a_session_from_a_time_when_the_clock_was_set_ahead_is_none(sessions, clock):
    clock.now += 86_400
    cookie = sessions.cookie(sessions.signed_in(ALICE))
    assert sessions.read(cookie)
    clock.now -= 86_400
    assert sessions.read(cookie) is None


def test_a_new_password_changes_the_mark(sessions):
    assert sessions.mark(ALICE) != sessions.mark(Account("alice", password_hash="scrypt$2"))


def test_a_form_token_belongs_to_one_session(sessions):
    one, other = sessions.signed_in(ALICE), sessions.signed_in(ALICE)
    assert sessions.owns_form(one, sessions.form_token(one))
    assert not sessions.owns_form(other, sessions.form_token(one))
    assert not sessions.owns_form(one, "") and not sessions.owns_form(one, "é")


def test_the_secret_is_private_and_kept(sessions, tmp_path, clock):
    path = tmp_path / "dashboard.secret"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    again = Sessions(SessionFiles(tmp_path), 12, clock)
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.read(sessions.cookie(sessions.signed_in(ALICE)))


def test_a_sign_out_survives_a_power_failure(sessions, tmp_path, monkeypatch):
    """Unsynced data is lost in a power failure, and a file renamed before it was written is empty."""
    synced, sync = [], os.fsync

    def fsync_recorded(descriptor):
        synced.append({path.name: path.stat().st_size for path in tmp_path.glob("dashboard.ended*")})
        sync(descriptor)

    monkeypatch.setattr("tollgate.ledger.durable_files.os.fsync", fsync_recorded)
    sessions.end(sessions.signed_in(ALICE))
    size = (tmp_path / "dashboard.ended").stat().st_size
    assert size > 0 and synced == [{"dashboard.ended.new": size}, {"dashboard.ended": size}]


def test_simultaneous_sign_outs_all_hold(sessions, tmp_path, clock, caplog):
    cookies = [sessions.cookie(sessions.signed_in(ALICE)) for _ in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda cookie: sessions.end(sessions.read(cookie)), cookies))
    again = Sessions(SessionFiles(tmp_path), 12, clock)
    assert [cookie for cookie in cookies if sessions.read(cookie) or again.read(cookie)] == []
    assert caplog.records == []


def test_signing_in_and_out_works_while_the_disk_is_full(tmp_path, clock, caplog):
    (tmp_path / "dashboard.secret.new").mkdir()  # cannot be replaced, like a file on a full disk
    (tmp_path / "dashboard.ended.new").mkdir()
    sessions = Sessions(SessionFiles(tmp_path), 12, clock)
    cookie = sessions.cookie(made := sessions.signed_in(ALICE))
    assert sessions.read(cookie) == made
    sessions.end(made)
    assert sessions.read(cookie) is None
    assert "dashboard.secret cannot be written" in caplog.text and "dashboard.ended cannot be written" in caplog.text
