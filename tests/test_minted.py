"""Ids of provider-side state are known for the account that got them, also after a restart, and for nobody else."""

from tollgate.minted import Minted


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


async def test_old_ids_are_forgotten(tmp_path, monkeypatch):
    path = tmp_path / "minted.sqlite"
    register = Minted(path)
    await register.remember("alice", "acme", ["resp_1"])
    register.close()
    monkeypatch.setattr("tollgate.minted.KEEP_SECONDS", -10)
    again = Minted(path)
    assert await again.provider_of("alice", "resp_1") is None
    again.close()
