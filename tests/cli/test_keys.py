"""`tollgate keys`: secrets are shown once, limits are set and changed, keys are revoked."""

from __future__ import annotations

import json
import re

import pytest

from tollgate.errors import Unauthorized
from tollgate.ledger import keys

from .tollgate import Tollgate

PROVIDER = """
provider: {name}
url: https://later.example/v1/chat/completions
speaks: chat
headers: {{x-key: {header}}}
models: {{{name}/one: {{}}, {name}/two: {{}}}}
"""


@pytest.fixture
def alice(tollgate: Tollgate) -> Tollgate:
    tollgate("accounts", "create", "alice")
    return tollgate


def test_the_secret_is_printed_once_and_alone_on_stdout(alice: Tollgate) -> None:
    made = alice("keys", "create", "--account", "alice", "--name", "laptop")
    secret = made.out.strip()
    assert keys.is_well_formed(secret)
    assert "only time it is shown" in made.err
    for words in (("keys", "list"), ("keys", "list", "--json"), ("accounts", "show", "alice")):
        done = alice(*words)
        assert secret not in done.out + done.err
        assert secret[-4:] in done.out


def test_a_key_has_the_limits_it_was_created_with(alice: Tollgate) -> None:
    made = json.loads(
        alice.typed(
            "keys create --account alice --name x --expires 30d --models acme/*,other --cap 5 --window week --rpm 60 "
            "--tpm 1000 --strict --concurrent 3 --endpoints messages,chat --addresses 192.0.2.1,10.0.0.0/8 --json"
        ).out
    )
    assert keys.is_well_formed(made["key"])
    [listed] = json.loads(alice("keys", "list", "--json").out)
    assert listed["expires_at"] == made["expires_at"]
    assert {
        name: listed[name]
        for name in (
            "id",
            "allowed_models",
            "spend_cap",
            "cap_window",
            "rpm",
            "tpm",
            "strict",
            "state",
            "max_concurrent",
            "endpoints",
            "allowed_addresses",
        )
    } == {
        "id": made["id"],
        "allowed_models": ["acme/*", "other"],
        "spend_cap": "5",
        "cap_window": "week",
        "rpm": 60,
        "tpm": 1000,
        "strict": True,
        "state": "active",
        "max_concurrent": 3,
        "endpoints": ["chat", "messages"],
        "allowed_addresses": ["192.0.2.1", "10.0.0.0/8"],
    }


def test_columns_of_rare_limits_are_shown_only_if_a_key_has_one(alice: Tollgate) -> None:
    alice("keys", "create", "--account", "alice", "--name", "plain")
    assert "at once" not in alice("keys", "list").out
    alice.typed("keys create --account alice --endpoints chat,mcp --addresses 2001:db8::/32")
    listed = alice("keys", "list").out
    assert "at once" in listed and "chat, mcp" in listed and "2001:db8::/32" in listed
    alice("keys", "change", "plain", "--concurrent", "7")
    assert " 7 " in alice("keys", "list").out
    assert "strict" not in alice("keys", "list").out
    alice("keys", "change", "plain", "--strict")
    assert re.search(r"\bstrict\b.*\bplain\b.* yes .*\n.* no ", alice("keys", "list").out, re.DOTALL)


def test_a_change_keeps_what_it_does_not_name(alice: Tollgate) -> None:
    made = json.loads(
        alice.typed(
            "keys create --account alice --name x --expires 30d --models acme/* --cap 5 --window week --rpm 60 "
            "--strict --concurrent 3 --endpoints chat --addresses ::1 --json"
        ).out
    )
    before = json.loads(alice("keys", "list", "--json").out)[0]
    assert json.loads(alice("keys", "change", "x", "--cap", "7.5", "--json").out) == before | {"spend_cap": "7.5"}
    ended = json.loads(
        alice.typed(
            f"keys change {made['id']} --name y --expires never --models all --cap none --rpm none --tpm 9 --no-strict "
            "--concurrent none --endpoints all --addresses all --json"
        ).out
    )
    assert ended == before | {
        "name": "y",
        "expires_at": None,
        "allowed_models": None,
        "spend_cap": None,
        "rpm": None,
        "tpm": 9,
        "strict": False,
        "max_concurrent": None,
        "endpoints": None,
        "allowed_addresses": None,
    }
    assert "all" in alice("keys", "change", "y", "--window", "day").out
    alice("keys", "revoke", "y", "--yes")
    assert "is revoked" in alice("keys", "change", "y", "--rpm", "1").err


@pytest.mark.parametrize(
    ("models", "warned"),
    [
        ("acme/*,!acme/two", []),
        ("none", []),
        ("all", []),
        ("acme/on", ["warning: acme/on fits no model; wanted are whole ids"]),
        ("acme/one,one,!acme/old*", ["warning: one fits no model;", "warning: !acme/old* fits no model;"]),
        ("later/*", ["warning: later/* fits only models of providers that are off;"]),
    ],
)
def test_globs_that_match_no_model_are_warned_of(alice: Tollgate, models: str, warned: list[str]) -> None:
    alice.write("providers/acme.yaml", PROVIDER.format(name="acme", header="x"))
    alice.write("providers/later.yaml", PROVIDER.format(name="later", header="$secret.LATER_KEY_OF_NOBODY"))
    made = alice("keys", "create", "--account", "alice", "--name", "x", "--models", models)
    changed = alice("keys", "change", "x", "--models", models)
    for done in (made, changed):
        lines = [line for line in done.err.splitlines() if line.startswith("warning")]
        assert (
            done.code == 0
            and len(lines) == len(warned)
            and all(line.startswith(start) for line, start in zip(lines, warned, strict=True))
        )
    assert "warning" not in alice("keys", "change", "x", "--rpm", "5").err


def test_a_key_is_created_beside_an_invalid_provider_file(alice: Tollgate) -> None:
    alice.write("providers/later.yaml", "no: provider\n")
    assert alice("keys", "create", "--account", "alice", "--models", "x/*").code == 0


def test_a_name_means_an_active_key_rather_than_a_revoked_one(alice: Tollgate) -> None:
    alice("keys", "create", "--account", "alice", "--name", "app")
    alice("keys", "revoke", "app", "--yes")
    made = json.loads(alice("keys", "create", "--account", "alice", "--name", "app", "--json").out)
    assert json.loads(alice("keys", "change", "app", "--rpm", "9", "--json").out)["id"] == made["id"]
    alice("keys", "create", "--account", "alice", "--name", "app")
    refused = alice("keys", "change", "app", "--rpm", "9")
    assert refused.code == 1 and '"app" fits 2 keys' in refused.err


def test_revocation_without_a_terminal_requires_yes(alice: Tollgate) -> None:
    alice("keys", "create", "--account", "alice", "--name", "laptop")
    refused = alice("keys", "revoke", "laptop")
    assert refused.code == 1
    assert "--yes" in refused.err
    assert "is revoked" in alice("keys", "revoke", "laptop", "--yes").out
    assert json.loads(alice("keys", "list", "--account", "alice", "--json").out)[0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("create", "--account", "bob"), 1, 'no account "bob"'),
        (("create", "--account", "alice", "--expires", "soon"), 1, "wanted a span"),
        (("create", "--account", "alice", "--expires", "99999y"), 1, "after the year 9999"),
        (("create", "--account", "alice", "--expires", "9999-12-31"), 1, "after the year 9999"),
        (("create", "--account", "alice", "--rpm", "9999999999"), 1, "from 1 to 1,000,000,000"),
        (("create", "--account", "alice", "--cap", "much"), 1, "cap: "),
        (("create", "--account", "alice", "--window", "year"), 2, "year"),
        (
            ("create", "--account", "alice", "--models", ""),
            2,
            '"" names no model; leave it out (or say all) to allow every model',
        ),
        (("create", "--account", "alice", "--models", " , "), 2, '" , " names no model'),
        (("create", "--account", "alice", "--endpoints", "models"), 1, 'endpoints has "models", wanted all, or'),
        (("create", "--account", "alice", "--addresses", "10.1.0.0/8"), 1, "that network is 10.0.0.0/8"),
        (("create", "--account", "alice", "--addresses", ""), 2, '"" names none of its addresses'),
        (("create", "--account", "alice", "--expires", ""), 2, "'--expires': it is empty; leave it out for no limit"),
        (("create", "--account", "alice", "--cap", " "), 2, "'--cap': it is empty; leave it out for no limit"),
        (("create", "--account", "alice", "--rpm", ""), 2, "'--rpm': it is empty"),
        (("create", "--account", "alice", "--tpm", ""), 2, "'--tpm': it is empty"),
        (("create", "--account", "alice", "--concurrent", ""), 2, "'--concurrent': it is empty"),
        (("change", "nothing", "--endpoints", " ,"), 2, "--endpoints is empty; say all to end the limit"),
        (("revoke", "nothing", "--yes"), 1, 'no key "nothing"'),
        (("change", "nothing", "--rpm", "5"), 1, 'no key "nothing"'),
        (("change", "nothing"), 2, "nothing to change; name at least one of"),
        (("change", "nothing", "--models", ""), 2, '"" names no model'),
        (("change", "nothing", "--cap", ""), 2, "--cap is empty; say none to end the limit"),
        (("list", "--account", "bob"), 1, 'no account "bob"'),
    ],
)
def test_mistakes_are_named_on_stderr(alice: Tollgate, words: tuple[str, ...], code: int, reason: str) -> None:
    done = alice("keys", *words)
    assert (done.code, done.out) == (code, "")
    assert reason in done.err


async def test_a_running_gateway_applies_new_and_revoked_keys_at_once(running: Tollgate) -> None:
    secret = (await running.in_thread("keys", "create", "--account", "alice", "--name", "new")).out.strip()
    assert running.ledger.find_key(secret).name == "new"
    await running.in_thread("keys", "revoke", "new", "--yes")
    with pytest.raises(Unauthorized, match="revoked"):
        running.ledger.find_key(secret)
