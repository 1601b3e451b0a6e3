"""Ids of provider-side state are known for the account that received them, also after a restart, and for no other."""

import threading

import pytest

from tollgate.errors import Unavailable
from tollgate.remembered.minted import KEEP_SECONDS, SOMEBODY, Minted, digest, written
from tollgate.steady_time import SteadyTime


async def test_an_id_is_known_for_its_account_only_and_survives_a_restart(tmp_path):
    path = tmp_path / "var" / "minted.sqlite"
    register = Minted(path)
    await register.remember("alice", "acme", ["resp_1", "msg_1"])
    assert await register.provider_of("alice", "resp_1") == "acme"
    assert await register.provider_of("bob", "resp_1") is None
    register.close()
    again = Minted(path)
    assert [await again.provider_of("alice", each) for each in ("resp_1", "msg_1", "resp_2")] == ["acme", "acme", None]
    again.close()
    assert b"resp_1" not in path.read_bytes()


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["short", "long"])
async def test_the_origin_of_an_encrypted_text_is_known_for_its_account_and_survives_a_restart(tmp_path, size):
    path = tmp_path / "minted.sqlite"
    first, second = "A" * size, "B" * size
    register = Minted(path)
    await register.remember_minter("alice", "elsewhere", [first])
    await register.remember_minter("alice", "", [second])
    register.close()
    again = Minted(path)
    texts = [first, second, "unknown"]
    assert await again.minters_of("alice", texts) == {first: "elsewhere", second: ""}
    assert await again.minters_of("bob", texts) == {} and await again.provider_of("alice", first) is None
    again.close()


@pytest.mark.parametrize(("size", "off_loop"), [(1_000, False), (1_000_000, True)], ids=["short", "long"])
async def test_digests_of_long_texts_are_computed_off_the_event_loop(monkeypatch, size, off_loop):
    made_by = []

    def of_text(account_id, text):
        made_by.append(threading.get_ident())
        return digest(account_id, text)

    monkeypatch.setattr("tollgate.remembered.minted._of_text", of_text)
    register = Minted(None)
    await register.remember_minter("alice", "elsewhere", ["A" * size])
    assert await register.minters_of("alice", ["A" * size]) == {"A" * size: "elsewhere"}
    assert [thread != threading.get_ident() for thread in made_by] == [off_loop, off_loop]
    register.close()


async def test_its_files_are_readable_by_the_owner_only_in_any_folder(tmp_path):
    register = Minted(tmp_path / "minted.sqlite")
    await register.remember("alice", "acme", ["resp_1"])
    assert {oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()} == {"0o600"}
    register.close()


class Clocks:
    """Two clocks that can be set."""

    def __init__(self, monkeypatch):
        self.wall, self.machine = 1_800_000_000, 5.0
        monkeypatch.setattr("tollgate.remembered.minted.time.time", lambda: self.wall)
        self.times = SteadyTime(lambda: self.wall, lambda: self.machine)

    def wait(self, seconds):
        self.wall += seconds
        self.machine += seconds


async def test_old_ids_are_forgotten(tmp_path, monkeypatch):
    clocks, path = Clocks(monkeypatch), tmp_path / "minted.sqlite"
    register = Minted(path, clocks.times)
    await register.remember("alice", "acme", [f"resp_{number}" for number in range(300)])
    clocks.wait(KEEP_SECONDS + 1)
    await register.remember("alice", "acme", ["resp_young"])
    register.close()
    assert {row[0] for row in written(path)} == {digest("alice", "resp_young"), digest(SOMEBODY, "resp_young")}


async def test_old_ids_are_forgotten_by_a_gateway_that_runs_for_months(tmp_path, monkeypatch):
    clocks, path = Clocks(monkeypatch), tmp_path / "minted.sqlite"
    register = Minted(path, clocks.times)
    clocks.wait(600)
    await register.remember("alice", "acme", [f"resp_{number}" for number in range(300)])
    clocks.wait(KEEP_SECONDS - 60 * 300)
    await register.remember("alice", "acme", ["resp_young"])
    for number in range(600):
        clocks.wait(60)
        await register.remember("alice", "acme", [f"later_{number}"])
    kept = {row[0] for row in written(path)}
    assert len(kept) == 2 * (1 + 600), "each is registered for the account, and for any account"
    assert digest("alice", "resp_young") in kept and digest("alice", "resp_1") not in kept
    register.close()


@pytest.mark.parametrize("set_at", ["a start", "a running gateway"])
async def test_a_clock_set_ahead_for_some_minutes_makes_no_id_unknown(tmp_path, monkeypatch, set_at):
    clocks, path = Clocks(monkeypatch), tmp_path / "minted.sqlite"
    register = Minted(path, clocks.times)
    await register.remember("alice", "acme", ["resp_1"])
    clocks.wait(700)
    clocks.wall += 2 * KEEP_SECONDS
    if set_at == "a start":
        register.close()
        register = Minted(path, SteadyTime(lambda: clocks.wall, lambda: clocks.machine))
    for number in range(256):
        clocks.wait(2)
        await register.remember("alice", "acme", [f"later_{number}"])
    clocks.wall -= 2 * KEEP_SECONDS
    register.close()
    assert await Minted(path, clocks.times).provider_of("alice", "resp_1") == "acme"


async def test_a_few_ids_are_cached_and_the_rest_is_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tollgate.remembered.minted._RECENT", 3)
    register = Minted(tmp_path / "minted.sqlite")
    for number in range(9):
        await register.remember_minter("alice", "acme", [f"text {number}"])
    assert (len(register._recent), register._unwritten) == (3, [])
    texts = [f"text {number}" for number in range(9)]
    assert await register.minters_of("alice", texts) == dict.fromkeys(texts, "acme"), "the others are in the file"
    register.close()


async def test_an_id_that_cannot_be_written_is_known_and_written_with_the_next(tmp_path, caplog):
    path = tmp_path / "var" / "minted.sqlite"
    (tmp_path / "var").write_text("in the way")
    register = Minted(path)
    await register.remember("alice", "acme", ["resp_1"])
    await register.remember("alice", "acme", ["resp_2"])
    assert await register.provider_of("alice", "resp_1") == "acme"
    assert [record.levelname for record in caplog.records] == ["ERROR"], "logged once"
    (tmp_path / "var").unlink()
    await register.remember("alice", "acme", ["resp_3"])
    register.close()
    again = Minted(path)
    assert [await again.provider_of("alice", each) for each in ("resp_1", "resp_2", "resp_3")] == ["acme"] * 3
    again.close()


async def test_a_failed_write_is_rolled_back_and_repeated_with_the_next(tmp_path):
    register = Minted(tmp_path / "minted.sqlite")
    await register.remember("alice", "acme", ["resp_1"])
    register._opened.execute(
        "CREATE TRIGGER full BEFORE INSERT ON minted BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
    )
    await register.remember("alice", "acme", ["resp_2"])
    register._opened.execute("DROP TRIGGER full")
    await register.remember("alice", "acme", ["resp_3"])
    register.close()
    again = Minted(tmp_path / "minted.sqlite")
    assert [await again.provider_of("alice", each) for each in ("resp_1", "resp_2", "resp_3")] == ["acme"] * 3
    again.close()


@pytest.mark.parametrize("operation", ["provider_of", "foreign", "minters_of", "remember"])
@pytest.mark.parametrize("intact", [0, 4096], ids=["all of it", "all but its header"])
async def test_a_damaged_file_is_renamed_and_a_new_one_is_created(tmp_path, caplog, operation, intact):
    path = tmp_path / "minted.sqlite"
    register = Minted(path)
    await register.remember("alice", "acme", [f"resp_{each}" for each in range(1000)])
    register.close()
    pages = path.read_bytes()
    path.write_bytes(pages[:intact] + b"x" * (len(pages) - intact))
    register = Minted(path)
    match operation:
        case "provider_of":
            assert await register.provider_of("alice", "resp_1") is None
        case "foreign":
            assert await register.foreign("bob", ["resp_1"]) is None
        case "minters_of":
            assert await register.minters_of("alice", ["resp_1"]) == {}
        case "remember":
            await register.remember("alice", "acme", ["resp_5"])
    assert "minted.sqlite is damaged" in caplog.text and (tmp_path / "minted.damaged").exists()
    await register.remember("alice", "acme", ["resp_6"])
    register.close()
    again = Minted(path)
    assert await again.provider_of("alice", "resp_6") == "acme"
    again.close()


async def test_a_file_that_cannot_be_read_is_an_error_and_not_an_unknown_id(tmp_path):
    (tmp_path / "minted.sqlite").mkdir()
    register = Minted(tmp_path / "minted.sqlite")
    for lookup in (register.provider_of("alice", "resp_1"), register.foreign("alice", ["resp_1"])):
        with pytest.raises(Unavailable, match="cannot be looked up now"):
            await lookup
    assert (tmp_path / "minted.sqlite").is_dir()


async def test_a_table_that_cannot_be_read_is_an_error_and_not_an_unknown_id(tmp_path, caplog):
    register = Minted(tmp_path / "minted.sqlite")
    await register.remember("alice", "acme", ["resp_1"])
    register._opened.execute("DROP TABLE minted")
    with pytest.raises(Unavailable, match="cannot be looked up now"):
        await register.provider_of("alice", "resp_2")
    assert "cannot be read: no such table: minted" in caplog.text
    register.close()
