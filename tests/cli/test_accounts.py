"""`tollgate accounts`, on the store itself and through a running gateway."""

from __future__ import annotations

import json

from .tollgate import Tollgate


def test_an_account_is_created_listed_and_shown(tollgate: Tollgate) -> None:
    assert "alice is there with 10 credits" in tollgate("accounts", "create", "alice", "--name", "Alice", "--credits", "10").out
    assert "alice" in tollgate("accounts", "list").out
    assert "Alice" in tollgate("accounts", "show", "alice").out
    shown = json.loads(tollgate("accounts", "show", "alice", "--json").out)
    assert (shown["id"], shown["balance"], shown["role"], shown["keys"]) == ("alice", "10", "user", [])
    [listed] = json.loads(tollgate("accounts", "list", "--json").out)
    assert listed["granted"] == "10"


def test_mistakes_end_with_1_and_a_reason_on_stderr(tollgate: Tollgate) -> None:
    tollgate("accounts", "create", "alice")
    for words, reason in (
            (("accounts", "create", "alice"), 'account "alice" exists already'),
            (("accounts", "create", "Big Name"), "wanted lower-case letters"),
            (("accounts", "create", "bob", "--credits", "lots"), "amount: "),
            (("accounts", "show", "bob"), 'no account "bob"')):
        done = tollgate(*words)
        assert (done.code, done.out) == (1, ""), words
        assert reason in done.err
    assert tollgate("accounts", "create").code == 2


def test_a_broken_gateway_file_is_named(tollgate: Tollgate) -> None:
    tollgate.write("gateway.yaml", "stoer: {}\n")
    done = tollgate("accounts", "list")
    assert done.code == 1
    assert "gateway.yaml:1:1" in done.err


def test_a_broken_provider_file_is_no_obstacle(tollgate: Tollgate) -> None:
    tollgate.write("providers/acme.yaml", "not: [a provider")
    assert tollgate("accounts", "create", "alice").code == 0


async def test_through_a_running_gateway(running: Tollgate) -> None:
    assert (await running.later("accounts", "create", "bob", "--credits", "3")).code == 0
    assert running.ledger.balance("bob") == 3
    assert "bob" in (await running.later("accounts", "list")).out
